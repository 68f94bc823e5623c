"""List the agents, environments and configurations that the command line and gin files can name."""

from __future__ import annotations

from argparse import Namespace

import ale_py
import gymnasium as gym

from agents.cli.configuration import HERE
from agents.cli.flags import Parser
from agents.experiment.config import find_gin_files
from agents.registry import AGENTS, BASELINES

__all__ = ["add_flags", "run"]


def add_flags(parser: Parser) -> None:
    """Add nothing: ``list`` has no flags of its own."""


def run(options: Namespace) -> None:
    """Print the names."""
    gym.register_envs(ale_py)
    games = sorted(name[4:-3] for name in gym.registry if name.startswith("ALE/") and name.endswith("-v5"))
    others = sorted(name for name in gym.registry if not name.startswith("ALE/") and "Frameskip" not in name)
    for title, names in (
        ("agents (create_agent.agent_name)", [*AGENTS, *BASELINES]),
        ("Atari games (create_atari_environment.game_name)", games),
        ("other environments (create_gym_environment.environment_id)", [name for name in others if "-ram" not in name]),
        ("configurations (--gin_files)", find_gin_files([HERE])),
    ):
        print(f"{title}:\n  " + "\n  ".join(names))
