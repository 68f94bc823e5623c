"""`train.py list`: what the command line and gin files can name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.command_line import call, place

__all__ = ["call", "place"]


@pytest.mark.parametrize("word", ["list", "--list"])
def test_the_list_names_agents_games_environments_and_configurations(call: Any, word: str) -> None:
    done = call(word)
    assert done.code == 0
    words = set(done.out.split())
    assert {"dqn", "noop", "random", "Boxing", "Pong", "CartPole-v1", "configs/dqn/cartpole.gin"} <= words
    assert "configs/paper/asynchronous_8.gin" in words
