"""Sweeps on the command line: runs of train.py, what continues them, and what is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.sweep.plan import read_plan
from async_wrappers.agents.sweep.results import read_frame_rate, read_rows, read_subject
from async_wrappers.agents.sweep.sweeping import sweep
from async_wrappers.agents.sweep.trial import TrialsCutOff
from async_wrappers.agents.sweep.view import make_view
from tests.worlds.command_line import SWEEP, bound, call, place, refused
from tests.worlds.forks import fork_trials
from tests.worlds.sweeps import facts

__all__ = ["call", "fork_trials", "place"]


@pytest.fixture
def short(place: Path) -> str:
    (place / "short.gin").write_text(SWEEP)
    return "short.gin"


@pytest.mark.usefixtures("fork_trials")
def test_a_sweep_of_a_gin_file_is_run_kept_and_continued(call: Any, place: Path, short: str) -> None:
    done = call("sweep", "--gin_files", short, "--base-dir", "s", "--jobs", "2")
    assert done.code == 0, done.out + done.err
    assert "3 trials (3 points x 1 seeds), 3 to run, 2 at a time, about 90 s" in done.out
    assert "; 3 of 3 done\n" in done.out and "; 1 of 3 done, about " in done.out
    assert read_subject(place / "s") == "Mine-v0, DQNAgent"
    rows = read_rows(place / "s")
    found = {(row["arm"], row["RealtimeDelay.delay"], row["RealtimeDelay.noops"]) for row in rows}
    assert found == {("random", 0, 0), ("learner", 2, 0), ("learner", 2, 2)}
    assert {"frames", "train_average_return", "training_return", "final_return"} <= {row["metric"] for row in rows}
    plan = json.loads((place / "s" / "sweep.json").read_text())
    assert plan["axes"] == ["RealtimeDelay.delay", "RealtimeDelay.noops"]
    config = (place / "s" / "trials" / "0002" / "config.gin").read_text()
    assert "RealtimeDelay.delay = 2" in config and "RealtimeDelay.noops = 2" in config

    # A trial is the run that its own command line would be.
    seed = next(line for line in config.splitlines() if line.startswith("Runner.seed"))
    bindings = ("RealtimeDelay.delay = 2", "RealtimeDelay.noops = 2", seed)
    words = bound(*bindings)
    assert call("--gin_files", short, "--base_dir", "alone", *words).code == 0
    score = json.loads((place / "alone" / "report.json").read_text())[-1]["mean"]
    assert [row["value"] for row in rows if row["trial"] == "0002" and row["metric"] == "final_return"] == [score]

    again = call("sweep", "--base_dir", "s", "--trust")
    assert again.code == 0
    assert "3 trials (3 points x 1 seeds), 0 to run" in again.out
    assert read_rows(place / "s") == rows

    # A trial that was taken from a table does not say which environment it played.
    (place / "s" / "trials" / "0002" / "metrics" / "run.json").unlink()
    assert read_subject(place / "s") == "DQNAgent"


@pytest.mark.usefixtures("fork_trials")
def test_a_part_of_the_grid_runs_first_and_the_rest_with_the_next_call(call: Any, place: Path, short: str) -> None:
    some = call("sweep", "--gin_files", short, "--base_dir", "s", "--jobs", "2", "--only", "RealtimeDelay.noops = 2")
    assert some.code == 0, some.out + some.err
    assert "3 trials (3 points x 1 seeds), 1 to run" in some.out and "; 1 of 1 done\n" in some.out
    assert {(row["arm"], row["RealtimeDelay.noops"]) for row in read_rows(place / "s")} == {("learner", 2)}
    sentence = refused(call("sweep", "--base_dir", "s", "--trust", "--only", "RealtimeDelay.delay = 5"))
    assert "only 'RealtimeDelay.delay = 5': no point of this grid has such a value, they have 0; 2" in sentence
    rest = call("sweep", "--base_dir", "s", "--trust", "--jobs", "2")
    assert "3 trials (3 points x 1 seeds), 2 to run" in rest.out and "; 3 of 3 done\n" in rest.out


@pytest.mark.usefixtures("fork_trials")
def test_a_sweep_whose_file_has_changed_is_refused_in_a_sentence(call: Any, place: Path, short: str) -> None:
    assert call("sweep", "--gin_files", short, "--base_dir", "s", "--grid", "RealtimeDelay.delay = 2").code == 0
    text = (place / short).read_text()
    (place / short).write_text(f"{text}\nDQNAgent.gamma = 0.9\n")
    sentence = "base_dir s holds a sweep that was begun with other settings (DQNAgent.gamma = "
    for words in (("--gin_files", short, "--grid", "RealtimeDelay.delay = 2"), ("--trust",)):
        assert sentence in refused(call("sweep", "--base_dir", "s", *words))
    # What the sweep alone reads may change, and the file may come back.
    (place / short).write_text(f"{text}\nSweep.trial_seconds = 1\n")
    assert call("sweep", "--base_dir", "s", "--trust").code == 0


SIDE_BY_SIDE = """
include "mine.gin"
create_runner.schedule = "vector"
VectorRunner.num_envs = 3
Runner.num_iterations = 1
Runner.report_episodes = 2
Sweep.grid = ["RealtimeDelay.delay = 0, 2", "RealtimeDelay.noops = 0, RealtimeDelay.delay"]
Sweep.seeds = 1
"""
A_VECTOR = """
include "configs/dqn/cartpole.gin"
create_runner.schedule = "vector"
VectorRunner.num_envs = 3
VectorRunner.create_vector_fn = @create_gym_vector
create_gym_vector.environment_id = "CartPole-v1"
create_gym_vector.wrappers = [@VectorRealtimeDelay]
VectorRealtimeDelay.default_action = "repeat"
Runner.num_iterations = 1
Runner.training_steps = 60  # frames
Runner.evaluation_steps = 0
Runner.report_episodes = 2
DQNAgent.min_replay_history = 10
DQNAgent.batch_size = 4
MLPTorso.hidden = (8,)
Sweep.grid = [
    "VectorRealtimeDelay.delay = 0, 2",
    "VectorRealtimeDelay.noops = 0, VectorRealtimeDelay.delay",
    "RealtimeDelay.delay = VectorRealtimeDelay.delay",
    "RealtimeDelay.noops = VectorRealtimeDelay.noops",
]
Sweep.seeds = 1
"""


@pytest.mark.usefixtures("fork_trials")
@pytest.mark.parametrize(("text", "layer"), [(SIDE_BY_SIDE, "RealtimeDelay"), (A_VECTOR, "VectorRealtimeDelay")])
def test_delays_are_swept_on_many_environments(call: Any, place: Path, text: str, layer: str) -> None:
    (place / "many.gin").write_text(text)
    done = call("sweep", "--gin_files", "many.gin", "--base_dir", "s", "--jobs", "2")
    assert done.code == 0, done.out + done.err
    rows = read_rows(place / "s")
    assert {(row[f"{layer}.delay"], row[f"{layer}.noops"]) for row in rows} == {(0, 0), (2, 0), (2, 2)}
    assert {"frames", "train_average_return", "final_return"} <= {row["metric"] for row in rows}
    found = [json.loads(path.read_text()) for path in sorted((place / "s").glob("trials/*/metrics/run.json"))]
    assert [each["delay"] for each in found] == ["none", "2 frames", "2 frames, 2 no-ops"]
    assert all(each["environment"].endswith(", 3 at once") for each in found)
    assert read_frame_rate(place / "s") == (50.0 if layer == "VectorRealtimeDelay" else None)  # CartPole's

    (panel,) = make_view(read_plan(place / "s"), rows).panels
    assert {name: [score.x for score in curve] for name, curve in panel.curves.items()} == {
        "asynchronous": [0, 2],
        "sequential": [0, 2],
    }


def test_a_vector_with_another_delay_than_its_environment_is_refused(call: Any, place: Path) -> None:
    (place / "many.gin").write_text(A_VECTOR)
    grid = ("--grid", "VectorRealtimeDelay.delay = 0, 2")
    said = refused(call("sweep", "--gin_files", "many.gin", "--base_dir", "s", *grid))
    assert said == (
        "grid point VectorRealtimeDelay.delay = 2: VectorRunner.create_vector_fn must make environments with the delay "
        "of Runner.create_environment_fn, which final evaluations play, none, got 2 frames: bind RealtimeDelay and "
        "VectorRealtimeDelay alike"
    )
    assert not (place / "s").exists()


def test_an_interrupted_sweep_says_how_to_go_on(
    call: Any, place: Path, short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("async_wrappers.agents.sweep.sweeping.run_pool", interrupt)
    done = call("sweep", "--gin_files", short, "--base_dir", "s", "--jobs", "2")
    command = "python train.py sweep --base_dir s --jobs 2 --trust"
    assert (done.code, done.err) == (130, f"\ninterrupted: 0 of 3 trials are done in s; to go on: {command}\n")
    done = call("sweep", "--base_dir", "s", "--retry-failed", "--jobs", "2", "--trust")
    assert done.err.endswith("to go on: python train.py sweep --base_dir s --jobs 2 --retry-failed --trust\n")


def test_a_sweep_whose_trials_are_cut_off_says_why_and_how_to_go_on(
    call: Any, place: Path, short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*arguments: Any) -> None:
        raise TrialsCutOff("Ray has ended a trial")

    monkeypatch.setattr("async_wrappers.agents.sweep.sweeping.run_pool", die)
    done = call("sweep", "--gin_files", short, "--base_dir", "s", "--jobs", "2")
    command = "python train.py sweep --base_dir s --jobs 2 --trust"
    said = f"train.py: Ray has ended a trial; 0 of 3 trials are done in s; to go on: {command}\n"
    assert (done.code, done.err) == (1, said)


@pytest.mark.usefixtures("fork_trials")
def test_a_failed_trial_makes_the_exit_code_1_and_names_it(call: Any, place: Path) -> None:
    grid = "create_gym_environment.environment_id = 'Broken-v0'"
    words = ("sweep", "--gin_files", "mine.gin", "--base_dir", "s", "--grid", grid, "--seeds", "1", "--jobs", "2")
    done = call(*words, "--gin_bindings", "Runner.num_iterations = 1")
    assert done.code == 1
    assert done.err.strip().endswith("1 of 1 trials failed (0000): mend the cause, add --retry-failed")
    assert "ZeroDivisionError: the game broke" in done.out
    again = call("sweep", "--base_dir", "s", "--trust")
    assert again.code == 1
    retry = "(1 failed before, which --retry-failed, retry_failed=True, runs again)"
    assert f"1 trials (1 points x 1 seeds), 0 to run {retry}" in again.out
    assert again.err == (
        "train.py: ZeroDivisionError: the game broke (1 trial, see s/trials/0000); "
        "1 of 1 trials failed (0000): mend the cause, add --retry-failed\n"
    )
    assert "has finished yet, and 1 have failed: mend the cause, and run it again" in refused(call("plot", "s"))


@pytest.mark.usefixtures("fork_trials")
def test_a_finished_trial_without_its_replay_can_still_be_evaluated(call: Any, place: Path) -> None:
    alone = "Sweep.keep_checkpoints = False\nSweep.arms = {}\nSweep.exclude = []"
    (place / "short.gin").write_text(SWEEP + alone)
    grid = ("--grid", "RealtimeDelay.delay = 2")
    assert call("sweep", "--gin_files", "short.gin", "--base_dir", "s", "--jobs", "2", *grid).code == 0
    trial = place / "s" / "trials" / "0000"
    assert {path.name for path in (trial / "checkpoints").iterdir()} == {"ckpt.0", "sentinel_checkpoint_complete.0"}
    done = call("evaluate", "--base_dir", str(trial), "--episodes", "2", "--trust")
    assert done.code == 0, done.err
    assert done.out.startswith("2 episodes: mean return ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full to write to")
@pytest.mark.usefixtures("fork_trials")
def test_a_full_disk_loses_only_that_trials_last_iteration(call: Any, place: Path, short: str) -> None:
    words = ("sweep", "--gin_files", short, "--gin_bindings", "Runner.num_iterations = 2", "--jobs", "2")
    checkpoints = place / "s" / "trials" / "0001" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "ckpt.1.tmp").symlink_to("/dev/full")  # every write to it ends with: no space left
    done = call(*words, "--base_dir", "s")
    assert done.code == 1
    failure = json.loads((checkpoints.parent / "failure.json").read_text())
    assert "No space left on device" in failure["error"]
    assert {row["trial"] for row in read_rows(place / "s")} == {"0000", "0002"}
    assert (checkpoints / "sentinel_checkpoint_complete.0").is_file()

    (checkpoints / "ckpt.1.tmp").unlink(missing_ok=True)
    assert call("sweep", "--base_dir", "s", "--retry-failed", "--trust").code == 0
    log = (checkpoints.parent / "log.txt").read_text()
    assert (log.count("\niteration 0: "), log.count("\niteration 1: ")) == (1, 1)  # the second was not said at first
    assert call(*words, "--base_dir", "undisturbed").code == 0
    assert facts(place / "s") == facts(place / "undisturbed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "grid: it is empty"),
        (
            ["--grid", "RealtimeDelay.dely = 1"],
            "RealtimeDelay has no parameter 'dely'; did you mean",
        ),
        (["--grid", "RealtimeDely.delay = 1"], "nothing is named 'RealtimeDely'"),
        (
            ["--grid", "RealtimeDelay.delay = 1, 2.5"],
            "grid point RealtimeDelay.delay = 2.5: delay must be a whole number",
        ),
        (["--grid", "RealtimeDelay.delay = 1, 'x'"], "grid point RealtimeDelay.delay = 'x'"),
        (["--grid", "RealtimeDelay.delay ="], "RealtimeDelay.delay has no values"),
        (["--grid", "RealtimeDelay.delay = eight"], "eight is not a gin value"),
        (["--grid", "create_agent.agent_name = 'dqn', 'a2c'"], "create_agent.agent_name must be one of"),
        (["--grid", "Runner.seed = 1, 2"], "Runner.seed is not a key of a grid"),
        (["--grid", "RealtimeDelay.delay = 1", "--seed", "3"], "--seed is for one run"),
        (["--grid", "RealtimeDelay.delay = 1", "--seeds", "0"], "seeds"),
        (["--grid", "RealtimeDelay.delay = 1", "--jobs", "0"], "jobs"),
        (
            ["--grid", "C51Agent.vmax = 1.0, 2.0"],
            "--grid: nothing reads C51Agent.vmax, as create_agent.agent_name is 'dqn'",
        ),
        (
            ["--grid", "RealtimeDelay.delay = 1, 2", "--gin_bindings", "C51Agent.vmax = 1.0"],
            "--gin_bindings 'C51Agent.vmax = 1.0': nothing reads C51Agent.vmax, as create_agent.agent_name is 'dqn'",
        ),
        (
            ["--grid", "RealtimeDelay.delay = 1, 2", "--gin_bindings", "RealtimeDelay.delay = 4"],
            "--gin_bindings 'RealtimeDelay.delay = 4': every point of the grid binds RealtimeDelay.delay, and wins: ",
        ),
        (
            ["--grid", "create_network.torso = 'mlp'", "--gin_bindings", "create_network.torso = 'my/mlp'"],
            "--gin_bindings \"create_network.torso = 'my/mlp'\": every point of the grid binds create_network.torso",
        ),
        (
            ["--grid", "evaluation/RealtimeDelay.delay = 1, 7"],
            "--grid: nothing reads evaluation/RealtimeDelay.delay, as RealtimeDelay is never made in the scope",
        ),
        (
            ["--grid", "evaluation/RealtimeDelay.delay = 1, 7", "--gin_bindings", "RealtimeDelay.delay = 4"],
            "--grid: nothing reads evaluation/RealtimeDelay.delay, as RealtimeDelay is never made in the scope",
        ),
        (
            ["--grid", "RealtimeDelay.delay = 1, 2", "--only", "RealtimeDelay.dely = 1"],
            "no point of this grid binds RealtimeDelay.dely, they bind RealtimeDelay.delay; did you mean 'RealtimeD",
        ),
        (["--gin_bindings", "Sweep.grd = 1"], "Sweep has no parameter 'grd'; did you mean Sweep.grid"),
        (["--gin_bindings", "Sweep.seeds = 0"], "Sweep.seeds must be a whole number >= 1, got 0"),
    ],
)
def test_what_makes_no_sweep_is_refused_before_anything_is_written(
    call: Any, place: Path, words: list[str], said: str
) -> None:
    assert said in refused(call("sweep", "--gin_files", "mine.gin", "--base_dir", "s", *words))
    assert not (place / "s").exists()
    assert not (place / "not_written").exists()


@pytest.mark.usefixtures("fork_trials")
def test_what_one_trial_reads_is_read(call: Any, place: Path) -> None:
    bindings = ("Runner.num_iterations = 1", "Runner.report_episodes = 0", "C51Agent.vmax = 20.0")
    words = bound(*bindings)
    grid = ("--grid", "create_agent.agent_name = 'dqn', 'c51', 'random'", "--seeds", "1", "--jobs", "2")
    done = call("sweep", "--gin_files", "mine.gin", "--base_dir", "s", *grid, *words)
    assert done.code == 0, done.out + done.err
    assert len({row["trial"] for row in read_rows(place / "s")}) == 3
    assert call("sweep", "--base_dir", "s", "--trust").code == 0


def test_a_sweep_in_python_is_not_continued_on_the_command_line(call: Any, place: Path) -> None:
    sweep(lambda point, seed, directory: {"score": 1.0}, {"delay": [1]}, 1, place / "s")
    assert "go on with it in Python" in refused(call("sweep", "--base_dir", "s", "--trust"))
