"""Schedules: which observation each decision reads, and on which frame its action lands. Pure time: no environment."""
