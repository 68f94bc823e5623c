"""Processes that end with the one that started them: the rule of a fleet, its driver, and the memory they share."""
