"""A fixture for tests that play a few frames of many Atari games, whatever their beginnings."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["games_loaded_once"]


@pytest.fixture
def games_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reset with a seed go on with the emulator: to load the game anew takes a tenth of a second."""
    from ale_py.env import AtariEnv

    load, loaded = AtariEnv.load_game, list[Any]()

    def load_once(env: Any) -> None:
        if not any(env is each for each in loaded):
            loaded.append(env)
            load(env)

    monkeypatch.setattr(AtariEnv, "load_game", load_once)
