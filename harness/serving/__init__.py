"""One server: found or started, talked to, its log read, stopped."""
