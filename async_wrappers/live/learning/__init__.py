"""Learners beside the game."""
