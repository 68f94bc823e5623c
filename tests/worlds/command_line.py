"""A user's directory with an environment and an experiment of his own, and `train.py` called in it."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import gin
import matplotlib.image
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from tests.worlds import forks

__all__ = [
    *("SWEEP", "Done", "bound", "call", "drawn", "in_a_fork", "in_a_process", "iterations", "place", "refused"),
    *("running", "start"),
]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "train.py"

MODULE = """
import gymnasium as gym
from tests.worlds.drifting_env import DriftingEnv


class Broken(DriftingEnv):
    def step(self, action):
        if len(self.lives) == 2:
            raise ZeroDivisionError("the game broke")
        return super().step(action)


for name, entry_point in (("Mine-v0", DriftingEnv), ("Broken-v0", Broken)):
    if name not in gym.registry:  # each test has a module of its own
        gym.register(name, entry_point=entry_point)
"""
EXPERIMENT = """
import {module}
include "configs/dqn/cartpole.gin"

create_gym_environment.environment_id = "Mine-v0"
RealtimeDelay.delay = 2  # frames
RealtimeDelay.noops = 1  # frames
RealtimeDelay.default_action = "random"
Runner.num_iterations = 2
Runner.training_steps = 40  # frames
Runner.evaluation_steps = 20  # frames
Runner.max_steps_per_episode = 15  # frames
Runner.report_episodes = 3
DQNAgent.min_replay_history = 10
DQNAgent.update_period = 2
DQNAgent.replay_capacity = 500
DQNAgent.batch_size = 4
MLPTorso.hidden = (8,)
"""
SWEEP = """
include "mine.gin"
Runner.num_iterations = 1
Runner.report_episodes = 2
Sweep.grid = ["RealtimeDelay.delay = 0, 2", "RealtimeDelay.noops = 0, RealtimeDelay.delay"]
Sweep.arms = {"learner": ["create_agent.agent_name = 'dqn'"],
              "random": ["create_agent.agent_name = 'random'", "RealtimeDelay.delay, RealtimeDelay.noops = (0, 0)"]}
Sweep.exclude = [["RealtimeDelay.delay = 0", "create_agent.agent_name = 'dqn'"]]
Sweep.seeds = 1
Sweep.trial_seconds = 60
"""


class Done(NamedTuple):
    """What a call of train.py came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def drawn() -> None:
    """Learning curves are drawn whole. Elsewhere they are a pixel: to draw one takes a third of a short run."""


_SAVEFIG = Figure.savefig


def _pixel(figure: Figure, file: Any, **how: Any) -> None:
    if "metadata" in how or how["format"] != "png":  # a figure that was asked for
        _SAVEFIG(figure, file, **how)
    else:
        matplotlib.image.imsave(file, np.zeros((1, 1, 3)), format="png")


@pytest.fixture(autouse=True)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the user's, with an environment and an experiment."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(Figure, "savefig", _pixel)
    module = "module_" + tmp_path.name
    (tmp_path / f"{module}.py").write_text(MODULE)
    (tmp_path / "mine.gin").write_text(EXPERIMENT.format(module=module))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    threads = torch.get_num_threads()
    gin.clear_config()
    yield tmp_path
    gin.clear_config()
    torch.set_num_threads(threads)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Calls train.py in this process."""

    def call_train(*words: str) -> Done:
        spec = importlib.util.spec_from_file_location("train_script", SCRIPT)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        capsys.readouterr()
        code = module.main(["train.py", *words])
        return Done(code, *capsys.readouterr())

    return call_train


def bound(*bindings: str) -> list[str]:
    """Return the words of a command line that bind."""
    return [word for binding in bindings for word in ("--gin_bindings", binding)]


def start(place: Path, *words: str, path: str = "", interrupt: Any = signal.SIG_DFL) -> subprocess.Popen[str]:
    """Start train.py in a process that knows nothing but the directory.

    Args:
        place: The directory.
        words: The command line.
        path: Of further modules.
        interrupt: What SIGINT does there; what runs the tests may ignore it, and a child inherits that.
    """
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *words],
        cwd=place,
        env={**_variables(place), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),
    )


def in_a_process(place: Path, *words: str) -> Done:
    """Run train.py in a process of its own to its end."""
    process = start(place, *words)
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    return Done(process.returncode, out, err)


def in_a_fork(
    place: Path,
    *words: str,
    script: Path = SCRIPT,
    descriptors: int | None = None,
    memory: int | None = None,
    **variables: str,
) -> Done:
    """Run train.py in a fork of this process, which has imported its libraries, to its end.

    Args:
        place: The working directory.
        words: The command line.
        script: What is run in the place of train.py.
        descriptors: How many it may open; None leaves the limit.
        memory: Bytes that it may have beside those of this process; None leaves the limit.
        variables: Further ones of its environment.
    """
    with forks.running(script, place, words, {**_variables(place), **variables}, descriptors, memory) as running:
        return Done(*running.end())


def running(place: Path, *words: str) -> AbstractContextManager[forks.Running]:
    """Run train.py in a fork while the block lasts."""
    return forks.running(SCRIPT, place, words, _variables(place))


def _variables(place: Path) -> dict[str, str]:
    # Matplotlib would take a second to find the fonts anew in each home.
    fonts = {"MPLCONFIGDIR": matplotlib.get_configdir()}
    return {"PATH": "/usr/bin:/bin", "HOME": str(place), "OMP_NUM_THREADS": "1", **fonts}


def iterations(base_dir: Path) -> list[dict[str, Any]]:
    """Return the lines that a run has written, one per iteration."""
    return [json.loads(line) for line in (base_dir / "metrics" / "iterations.jsonl").read_text().splitlines()]


def refused(done: Done) -> str:
    """Return the one line with which a command is refused, without the script's name."""
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "Traceback" not in done.err
    assert done.err.startswith("train.py: ")
    return done.err.removeprefix("train.py: ").rstrip("\n")
