"""Damaged checkpoints: the short version of `benchmarks.damage`."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from async_wrappers.agents.experiment.checkpoint import NoCheckpointLoads
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.registry import create_runner
from benchmarks.damage import make_cases, table, trials, turn_based
from tests.worlds.experiments import load_gin


def test_a_damaged_run_is_right_or_says_what_it_is_and_never_begins_anew(tmp_path: Path) -> None:
    runs = tuple(f"turn-based, {name}" for name in ("priorities", "reservoir", "PPO"))  # three kinds of files
    counts = trials(make_cases(tmp_path, runs), 12, 2, tmp_path / "damaged")
    assert counts.total() == 12
    assert not any(outcome == "FAILED" for _, _, outcome in counts), table(counts)
    assert {outcome for _, _, outcome in counts} == {"right", "earlier", "refused"}


def on_many(base_dir: Path, keep: int) -> Experiment:
    """Return a runner of DQN on two environments at once, with a tiny network."""
    bindings = (
        "create_runner.schedule = 'vector'",
        "VectorRunner.num_envs = 2",
        f"Runner.checkpoint_duration = {keep}",
        "Runner.num_iterations = 2",
        "Runner.training_steps = 100",
        "Runner.evaluation_steps = 0",
        "Runner.report_episodes = 0",
        "DQNAgent.min_replay_history = 20",
        "DQNAgent.batch_size = 4",
        "MLPTorso.hidden = (8,)",
    )
    load_gin("configs/dqn/cartpole.gin", bindings=bindings)
    return create_runner(base_dir)


@pytest.mark.parametrize("make", [turn_based, on_many])
def test_the_replay_of_another_run_is_refused_in_one_sentence(
    tmp_path: Path, make: Callable[[Path, int], Experiment]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for base_dir, seed in ((run, 0), (other, 1)):
        runner = make(base_dir, 1)
        runner.settings = dataclasses.replace(runner.settings, seed=seed)
        runner.run_experiment()
    replay = run / "checkpoints" / "replay"
    shutil.rmtree(replay)
    shutil.copytree(other / "checkpoints" / "replay", replay)
    with pytest.raises(
        NoCheckpointLoads, match=r"index_\d\.json is not the index that the checkpoint was written with"
    ):
        make(run, 1).resume()
