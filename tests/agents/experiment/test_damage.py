"""Damaged checkpoints: the short version of `benchmarks.damage`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from async_wrappers.agents.experiment.checkpoint import NoCheckpointLoads
from benchmarks.damage import make_cases, table, trials, turn_based


def test_a_damaged_run_is_right_or_says_what_it_is_and_never_begins_anew(tmp_path: Path) -> None:
    counts = trials(make_cases(tmp_path, ("turn-based",)), 24, 1, tmp_path / "damaged")
    assert counts.total() == 24
    assert not any(outcome == "FAILED" for _, _, outcome in counts), table(counts)
    assert {outcome for _, _, outcome in counts} == {"right", "less", "earlier", "refused"}


def test_the_replay_of_another_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for base_dir, seed in ((run, 0), (other, 1)):
        runner = turn_based(base_dir, 1)
        runner.seed = seed
        runner.run_experiment()
    replay = run / "checkpoints" / "replay"
    shutil.rmtree(replay)
    shutil.copytree(other / "checkpoints" / "replay", replay)
    with pytest.raises(
        NoCheckpointLoads, match=r"index_\d\.json is not the index that the checkpoint was written with"
    ):
        turn_based(run, 1).resume()
