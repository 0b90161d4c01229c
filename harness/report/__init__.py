"""What people see: terminal tables now, pages and exports later."""
