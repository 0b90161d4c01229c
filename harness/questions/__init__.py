"""What is hidden and asked, and what an answer is worth. Pure, imports no other room."""
