"""Replays and checkpoints that Dopamine has written, as a student's teacher and data."""
