"""Replay memories: where an agent keeps its transitions and draws its batches from."""

from agents.replay.ring import RingReplay

__all__ = ["RingReplay"]
