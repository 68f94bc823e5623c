"""`train.py record` and `import`: what they print, the datasets they leave, and a run that learns from one."""

from __future__ import annotations

import importlib.util
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.demonstrations.dataset import read_demonstrations
from async_wrappers.agents.experiment.pretraining import import_demonstrations
from tests.worlds.command_line import call, place

__all__ = ["call", "place"]

needs_minari = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("minari", "h5py")),
    reason="Minari is not installed: pip install 'minari[hdf5]'",
)
EXPERIMENT = """
include "configs/dqn/falling_blocks.gin"

RealtimeDelay.delay = 4  # frames
RealtimeDelay.noops = 1  # frames
Runner.num_iterations = 1
Runner.training_steps = 60  # frames
Runner.evaluation_steps = 20  # frames
Runner.max_steps_per_episode = 150  # frames
Runner.report_episodes = 0
Runner.pretrain_dataset = "shown"
Runner.pretrain_updates = 20
DQNAgent.min_replay_history = 10
DQNAgent.batch_size = 8
MLPTorso.hidden = (8,)
"""


@pytest.fixture(autouse=True)
def experiment(place: Path) -> None:
    """The user's experiment."""
    (place / "mine.gin").write_text(EXPERIMENT)


SCRIPT = ("--player", "docs.examples.falling_blocks:make_player")


@needs_minari
class TestRecording:
    def test_a_script_plays_a_small_agent_learns_from_it_goes_on_and_is_recorded_itself(
        self, call: Any, place: Path
    ) -> None:
        recorded = call("record", "--gin_files", "mine.gin", "--dataset", "shown", "--episodes", "2", *SCRIPT)
        assert recorded.code == 0, recorded.err
        assert recorded.out.startswith(f"2 episodes, 300 frames in {place / 'shown'}\n")
        episodes = list(read_demonstrations("shown"))
        assert [(len(each), each.terminated) for each in episodes] == [(150, False)] * 2  # cut
        assert episodes[0].observations.shape == (151, 18, 10)
        assert episodes[0].rewards.sum() > 0
        assert not np.array_equal(episodes[0].observations, episodes[1].observations)

        trained = call("--gin_files", "mine.gin", "--base_dir", "run")
        assert trained.code == 0, trained.err
        # effects on 4, 6, .. 148 of each 150 frames
        assert "pretraining: 20 updates on 146 transitions (2 episodes, 300 frames, " in trained.out
        assert "iteration 0: " in trained.out
        first = json.loads((place / "run/metrics/pretraining.jsonl").read_text().splitlines()[0])
        assert first["transitions"] == 146
        assert 0 < first["departures"] <= 300 - 146

        again = call("record", "--base_dir", "run", "--trust", "--dataset", "trained", "--episodes", "1")
        assert again.code == 0, again.err
        (shown,) = read_demonstrations("trained")
        noop_frames = [*range(4), *range(5, len(shown), 2)]
        assert not shown.actions[noop_frames].any()  # it lives under its delay, and in between is the no-op

    def test_an_agent_that_ships_is_recorded(self, call: Any, place: Path) -> None:
        recorded = call("record", "--agent", "cartpole", "--dataset", "balanced", "--episodes", "1")
        assert (recorded.code, recorded.out.splitlines()[0]) == (0, f"1 episodes, 500 frames in {place / 'balanced'}")
        (shown,) = read_demonstrations("balanced")
        assert shown.rewards.sum() == 500.0

    def test_the_same_seed_records_the_same(self, call: Any) -> None:
        for name in ("first", "second"):
            words = ("--player", "random", "--episodes", "1", "--seed", "7")
            assert call("record", "--gin_files", "mine.gin", "--dataset", name, *words).code == 0
        first, second = (next(read_demonstrations(name)) for name in ("first", "second"))
        assert np.array_equal(first.observations, second.observations)
        assert np.array_equal(first.actions, second.actions)

    def test_an_interruption_keeps_the_episodes_that_had_ended(
        self, call: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / f"{place.name}_player.py").write_text(
            "def make(environment):\n"
            "    frames = iter(range(160))\n"
            "    def act(observation):\n"
            "        if next(frames, None) is None:\n"
            "            raise KeyboardInterrupt\n"
            "        return 0\n"
            "    return act\n"
        )
        monkeypatch.setattr(sys, "path", [*sys.path, str(place)])
        player = f"{place.name}_player:make"
        done = call("record", "--gin_files", "mine.gin", "--dataset", "shown", "--player", player)
        assert done.code == 130
        assert "interrupted: the episodes that had ended are in shown, if there were any" in done.err
        assert [len(each) for each in read_demonstrations("shown")] == [150]

    def test_chance_plays_real_numbers_which_are_read_and_imported(self, call: Any, place: Path) -> None:
        (place / "pendulum.gin").write_text(
            'create_gym_environment.environment_id = "Pendulum-v1"\n'
            "Runner.create_environment_fn = @create_gym_environment\n"
        )
        words = ("--dataset", "swings", "--player", "random", "--episodes", "2")
        recorded = call("record", "--gin_files", "pendulum.gin", *words)
        assert (recorded.code, recorded.out.splitlines()[0]) == (0, f"2 episodes, 400 frames in {place / 'swings'}")
        assert call("import", "swings", "--dataset", "copied").code == 0
        for first, second in zip(read_demonstrations("swings"), read_demonstrations("copied"), strict=True):
            assert (first.actions.shape, first.actions.dtype) == ((200, 1), np.float32)
            assert np.array_equal(first.actions, second.actions)
            assert len(np.unique(first.actions)) > 190

    def test_a_pickle_is_imported(self, call: Any, place: Path) -> None:
        images = [np.full((1, 1, 84, 84), number, np.uint8) for number in range(5)]
        rows = [(images[frame], 6, 1.0, images[frame + 1]) for frame in range(4)]
        (place / "tetris_episode0.pkl").write_bytes(pickle.dumps(rows))
        done = call("import", "tetris_episode0.pkl", "--dataset", "imported")
        assert (done.code, done.out.splitlines()[0]) == (0, f"1 episodes, 4 frames in {place / 'imported'}"), done.err
        (pickled,), (imported,) = read_demonstrations("tetris_episode0.pkl"), read_demonstrations("imported")
        assert np.array_equal(pickled.observations, imported.observations)
        assert imported.actions.tolist() == [6] * 4

    def test_actions_below_0_are_imported_as_they_are(self, place: Path) -> None:
        (place / "below.pkl").write_bytes(pickle.dumps([(np.zeros(2), action, 1.0, np.zeros(2)) for action in (-2, 1)]))
        import_demonstrations("below.pkl", "imported")
        (imported,) = read_demonstrations("imported")
        assert imported.actions.tolist() == [-2, 1]
        written = json.loads((place / "imported" / "data" / "metadata.json").read_text())
        assert json.loads(written["action_space"]) == {"type": "Discrete", "dtype": "int64", "start": -2, "n": 4}

    @pytest.mark.parametrize(("first", "last"), [(0, 2**63 - 1), (-(2**63), 0)])
    def test_actions_whose_numbers_no_space_holds_are_refused_before_anything_is_written(
        self, call: Any, place: Path, first: int, last: int
    ) -> None:
        rows = [(np.zeros(2), action, 1.0, np.zeros(2)) for action in (first, last)]
        (place / "large.pkl").write_bytes(pickle.dumps(rows))
        done = call("import", "large.pkl", "--dataset", "imported")
        said = f"train.py: large.pkl must hold the numbers of actions, which begin at 0, got {first} to {last}\n"
        assert (done.code, done.err) == (2, said)
        assert [path.name for path in place.iterdir() if "imported" in path.name] == []

    @pytest.mark.parametrize("kind", ["?", "i2", "f4"])
    def test_observations_of_any_kind_of_number_are_imported(self, place: Path, kind: str) -> None:
        images = [np.full((2, 2), number % 2, kind) for number in range(4)]
        rows = [(images[frame], 0, 1.0, images[frame + 1]) for frame in range(3)]
        (place / "kinds.pkl").write_bytes(pickle.dumps(rows))
        import_demonstrations("kinds.pkl", "imported")
        (imported,) = read_demonstrations("imported")
        assert imported.observations.dtype == kind
        assert np.array_equal(imported.observations, images)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["record", "--player", "random"], "record needs --dataset"),
        (["record", "--dataset", "x", "--player", "random", "--base_dir", "y"], "--base_dir and --player exclude"),
        (["record", "--dataset", "x", "--player", "random", "--agent", "cartpole"], "--agent and --player exclude"),
        (["record", "--dataset", "x", "--base_dir", "y", "--agent", "cartpole"], "--agent and --base_dir exclude"),
        (
            ["record", "--dataset", "x", "--agent", "cartpol"],
            "--agent must be .*, got 'cartpol'; did you mean 'cartpole'",
        ),
        (["record", "--gin_files", "mine.gin", "--dataset", "x", "--player", "man"], "player must be 'human'"),
        (["record", "--dataset", "x", "--base_dir", "no_run"], "record needs --base_dir with a run in it .*'no_run'"),
        (["import", "x.pkl"], "import needs --dataset"),
        (["import", "--dataset", "x"], "import needs a file: python train.py import FILE"),
        (["import", "x.pkl", "--dataset", "y"], "'x.pkl' must be a Minari dataset .* or a pickle"),
        (["--gin_files", "mine.gin", "--base_dir", "run"], "'shown' must be a Minari dataset"),
    ],
)
def test_a_wrong_call_is_one_sentence(call: Any, place: Path, words: list[str], sentence: str) -> None:
    done = call(*words)
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if line.startswith("train.py: ")]
    assert re.match(sentence, line.removeprefix("train.py: "))
    assert not (place / "x").exists() and not (place / "y").exists()


def test_without_minari_one_sentence_says_how_to_install_it(
    call: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    words = ("record", "--gin_files", "mine.gin", "--dataset", "x", "--player", "random")
    done = call(*words)
    assert done.code == 2
    assert re.search(
        r"a dataset of demonstrations needs the extra 'minari' \(.*\): pip install 'async-wrappers\[minari\]'", done.err
    )


def test_the_published_updates_are_the_default() -> None:
    import inspect

    from async_wrappers.agents.play.run_settings import Runner

    assert inspect.signature(Runner).parameters["pretrain_updates"].default == 16_000
    assert inspect.signature(Runner).parameters["pretrain_dataset"].default is None
