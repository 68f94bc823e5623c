"""Where a system lacks what POSIX has: wrappers, vectors, training, sweeps and plots work, and the rest is refused.

A process of its own has the place of such a system; see `tests/worlds/without_posix/sitecustomize.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = """
include "configs/dqn/cartpole.gin"
Runner.num_iterations = 1
Runner.training_steps = 120
Runner.evaluation_steps = 20
Runner.report_episodes = 1
Runner.max_steps_per_episode = 30
DQNAgent.min_replay_history = 100
DQNAgent.batch_size = 8
MLPTorso.hidden = (8,)
"""
VECTOR = """
include "configs/vtrace/cartpole.gin"
Runner.num_iterations = 1
Runner.training_steps = 200
Runner.evaluation_episodes = 1
Runner.report_episodes = 1
Runner.max_steps_per_episode = 20
VectorRunner.num_envs = 2
VTraceAgent.batch_size = 2
"""
# One process for all commands: each would import PyTorch, which takes seconds.
IN_TURN = """
import json, sys, traceback
import train
for words in json.loads(sys.argv[1]):
    try:
        code = train.main(["train.py", *words])
    except Exception:
        code = 1
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        print("\\n== ended:", code, file=stream, flush=True)
"""


def alone(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    hidden = os.pathsep.join([str(ROOT / "tests" / "worlds" / "without_posix"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": hidden}
    done = [sys.executable, *words]
    return subprocess.run(done, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280)


def run(*words: str, cwd: Path) -> str:
    done = alone(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cannot be locked" not in done.stderr
    return done.stdout


# Command lines of train.py, and what each says; one may read what another has written before it.
TRAIN = ("--gin_files", "small.gin", "--base_dir")
MANY = ("--gin_files", "vector.gin", "--base_dir")
SWEEP = ("sweep", "--gin_files", "small.gin", "--grid", "RealtimeDelay.delay = 1", "--seeds", "1", "--base_dir")
COMMANDS = [
    ((*TRAIN, "run"), "learning curve"),
    (("evaluate", "--base_dir", "run", "--trust", "--episodes", "1"), "1 episode"),
    (("plot", "run"), "learning_curve.png"),
    ((*MANY, "many"), "learning curve"),
    ((*SWEEP, "swept"), "1 of 1 done"),
    (("plot", "swept"), "swept"),
]


def test_commands_of_train_py_do_their_work_but_for_environments_in_processes(tmp_path: Path) -> None:
    (tmp_path / "small.gin").write_text(SMALL)
    (tmp_path / "vector.gin").write_text(VECTOR)
    processes = (*MANY, "other", "--gin_bindings", "VectorRunner.processes = 2")
    words = [*(words for words, _ in COMMANDS), processes]
    done = alone("-c", IN_TURN, json.dumps(words), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cannot be locked" not in done.stderr
    outputs, errors = (re.split(r"\n== ended: (\d+)\n", text) for text in (done.stdout, done.stderr))
    assert outputs[1::2] == ["0"] * len(COMMANDS) + ["1"], done.stdout + done.stderr
    for (line, said), output in zip(COMMANDS, outputs[::2], strict=False):
        assert said in output, (line, output)
    assert "processes=2 needs a POSIX system" in errors[2 * len(COMMANDS)]


def test_every_module_is_imported(tmp_path: Path) -> None:
    code = """
import importlib, os, pkgutil, signal
import async_wrappers
assert not hasattr(os, "fork") and not hasattr(os, "sched_getaffinity") and not hasattr(signal, "SIGKILL")
try:
    from async_wrappers import posix
    assert posix.fcntl is None and posix.cores() >= 1
    for module in pkgutil.walk_packages(async_wrappers.__path__, "async_wrappers."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:  # an extra
                assert error.name in ("ray", "psutil", "hypothesis", "pytest", "ale_py", "cv2", "jax"), error
finally:
    print("done")
"""
    assert run("-c", code, cwd=tmp_path) == "done\n"


def test_wrappers_vectors_and_threads_play_and_processes_are_refused_in_one_sentence(tmp_path: Path) -> None:
    script = tmp_path / "play.py"
    script.write_text(
        """
import gymnasium as gym
import numpy as np
from async_wrappers import AsyncRunner, LimitAction, Limits, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.batched.factory import create_batched_envs
from async_wrappers.live.served.served_runner import ServedRunner


def make_env():
    return gym.make("CartPole-v1")


def make_policy():
    return lambda observation: int(observation[2] > 0)


if __name__ == "__main__":
    env = RealtimeDelay(make_env(), latency=0.05, workers=2, default_action="repeat")
    env.reset(seed=0)
    assert env.step(1)[1] > 0
    env = LimitAction(gym.make("Pendulum-v1"), Limits(rate=1.0))
    env.reset(seed=0)
    env.step(np.ones(1, np.float32))
    vector = VectorRealtimeDelay(gym.make_vec("CartPole-v1", 2, "sync"), delay=2, default_action="repeat")
    vector.reset(seed=0)
    vector.step(np.array([0, 1]))
    envs = create_batched_envs(lambda: RealtimeDelay(make_env(), delay=1, default_action="repeat"), 2)
    envs.begin([0, 1])
    envs.send(envs.recv().env_ids, np.array([0, 1]))
    arguments = {"fps": 200, "default_action": "repeat"}
    for clock in ({"backend": "virtual", "latency": 0.01}, {"backend": "thread"}):
        assert AsyncRunner(make_env, make_policy, 1, **arguments, **clock).run(frames=9).frames["total"] == 9
    for refused in (
        lambda: AsyncRunner(make_env, make_policy, 1, **arguments, backend="process").run(frames=9),
        lambda: create_batched_envs(make_env, 2, processes=2),
        lambda: ServedRunner(make_env, make_policy, 2, **arguments).run(seconds=1),
    ):
        try:
            refused()
        except ValueError as error:
            assert "needs a POSIX system (Linux, macOS, or WSL on Windows)" in str(error), error
        else:
            raise AssertionError("not refused")
    print("done")
"""
    )
    assert run(str(script), cwd=tmp_path) == "done\n"


def test_the_directory_of_a_run_is_locked(tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(
        """
import subprocess, sys
from pathlib import Path
from async_wrappers.agents.experiment.lock import alone_in, is_in_use

with alone_in(Path("run")):
    if sys.argv[1:]:
        done = subprocess.run([sys.executable, "hold.py"], capture_output=True, text=True)
        print(done.returncode, done.stderr[-300:])
"""
    )
    (tmp_path / "run").mkdir()
    said = run("hold.py", "once more", cwd=tmp_path)
    assert said.startswith("1 ")
    assert "is in use (by another run" in said


def test_a_system_without_any_locks_only_warns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from async_wrappers import posix
    from async_wrappers.agents.experiment.lock import alone_in

    monkeypatch.setattr(posix, "fcntl", None)
    with alone_in(tmp_path) as descriptor:
        assert descriptor is None
