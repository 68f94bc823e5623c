"""Gin files of students that learn from a teacher."""
