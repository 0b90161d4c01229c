"""What is asked of a server, when, and how often; ends as lines of a record."""
