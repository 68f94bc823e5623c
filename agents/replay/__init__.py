"""Replay memories: where an agent keeps its transitions and draws its batches from."""

from agents.replay.create import create_replay
from agents.replay.observations import observation_schema
from agents.replay.prioritized import PrioritizedReplay
from agents.replay.reservoir import ReservoirReplay
from agents.replay.ring import RingReplay

__all__ = ["PrioritizedReplay", "ReservoirReplay", "RingReplay", "create_replay", "observation_schema"]
