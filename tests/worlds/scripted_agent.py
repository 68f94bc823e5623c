"""`ScriptedAgent`: an agent that writes down what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ScriptedAgent:
    """Always chooses `action` and remembers each call as (method, arguments...)."""

    def __init__(self, action: int = 0) -> None:
        self.eval_mode = False
        self.calls: list[tuple[Any, ...]] = []
        self.modes: list[bool] = []
        self.updates = 0
        self._action = action

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        self.modes.append(self.eval_mode)
        self.calls.append(("begin", observation.tolist(), realtime))
        return self._action

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        self.calls.append(("step", reward, observation.tolist(), realtime))
        return self._action

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        self.calls.append(("end", reward, terminal, observation.tolist(), realtime))

    def identity(self) -> dict[str, Any]:
        return {"agent": "scripted"}

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        return {"calls": len(self.calls)}

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any]) -> None:
        pass

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        pass

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        pass

    def keep_diverged_in(self, directory: Path) -> None:
        pass

    def set_report(self, report: Any) -> None:
        pass

    def overlap_learning(self) -> None:
        pass
