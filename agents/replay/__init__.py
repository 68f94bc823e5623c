"""Replay memories: where an agent keeps its transitions and draws its batches from."""

from agents.replay.assemblers import NStep
from agents.replay.create import create_replay
from agents.replay.replay import Replay
from agents.replay.reservoir import Reservoir
from agents.replay.ring import Ring
from agents.replay.selectors import Prioritized, Uniform

__all__ = ["NStep", "Prioritized", "Replay", "Reservoir", "Ring", "Uniform", "create_replay"]
