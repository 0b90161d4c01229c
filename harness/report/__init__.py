"""What people and other tools read. Decides nothing."""
