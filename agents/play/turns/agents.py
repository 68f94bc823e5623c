"""The agents that play in turn."""

from __future__ import annotations

from async_wrappers.agents.play.turns.baselines import NoopAgent, RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent

Agent = TurnBasedAgent | NoopAgent | RandomAgent
"""What an episode is played with; an agent of a user's own may also be any class with the methods of `NoopAgent`."""
