"""Processes that end with the one that started them: starting, watching, ending, and the memory they share."""
