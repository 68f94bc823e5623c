"""What a student learns from its teacher, one method a file."""
