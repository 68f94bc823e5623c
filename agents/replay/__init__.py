"""Replay memories: where an agent keeps its transitions and draws its batches from."""
