"""Replay memories, which keep an agent's transitions and draw its batches."""
