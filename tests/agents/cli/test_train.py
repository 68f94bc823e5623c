"""The command line: what it prints, the files it leaves and its exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

from async_wrappers.agents.cli.run_log import RunLog
from async_wrappers.agents.experiment.checkpoint import Checkpointer
from async_wrappers.agents.experiment.experiment import Experiment
from tests.worlds.command_line import (
    SCRIPT,
    bound,
    call,
    drawn,
    in_a_fork,
    in_a_process,
    iterations,
    place,
    refused,
    running,
    start,
)
from tests.worlds.lock_holder import holder

__all__ = ["call", "drawn", "place"]


@contextmanager
def importing(place: Path, **how: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A train.py that is still importing its libraries, and what SIGINT does there."""
    (place / "slow" / "absl").mkdir(parents=True)
    (place / "slow" / "absl" / "__init__.py").write_text(
        "import signal, time\nprint(repr(signal.getsignal(signal.SIGINT)), flush=True)\ntime.sleep(600)\n"
    )
    process = start(place, "--base_dir", "run", path=str(place / "slow"), **how)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate(timeout=200)


class TestARun:
    @pytest.mark.usefixtures("drawn")
    def test_from_another_directory_with_an_environment_of_ones_own(self, place: Path, call: Any) -> None:
        done = in_a_process(place, "--base_dir", "run", "--gin_files", "mine.gin", "--seed", "5")
        assert done.code == 0, done.err
        told = done.out.splitlines()
        assert told[:2] == ["base_dir: run", "seed: 5"]
        assert re.fullmatch(r"agent: DQNAgent, \d+ weights", told[2])
        assert told[3:7] == [
            "environment: Mine-v0",
            "delay: 2 frames, 1 no-op",
            "device: cpu, 1 thread",
            "iterations: 2, each of 40 training frames and 20 evaluation frames",
        ]
        assert told[-1] == "base_dir: run"
        assert [line.split(":")[0] for line in told if line.startswith("iteration ")] == ["iteration 0", "iteration 1"]
        assert any(line.startswith("random ") for line in told)
        assert any(line.startswith("trained ") for line in told)
        base_dir = place / "run"
        names = {path.name for path in (base_dir / "checkpoints").iterdir() if path.is_file()}
        assert names == {f"{name}.{n}" for name in ("ckpt", "sentinel_checkpoint_complete") for n in (0, 1)}
        config = (base_dir / "config.gin").read_text()
        assert "RealtimeDelay.delay = 2" in config
        assert "Runner.seed = 5" in config
        assert "import module_" in config
        assert [line["iteration"] for line in iterations(base_dir)] == [0, 1]
        assert list((base_dir / "metrics" / "tensorboard").iterdir())
        assert matplotlib.image.imread(base_dir / "learning_curve.png").ndim == 3
        assert [row["agent"] for row in json.loads((base_dir / "report.json").read_text())] == ["random", "trained"]

        # The same again says that it is finished, and how to go on. It draws what an interruption left undrawn.
        before = {path: path.read_bytes() for path in base_dir.rglob("*") if path.is_file()}
        (base_dir / "learning_curve.png").unlink()
        again = call("--base_dir", "run", "--trust")
        assert again.code == 0
        assert "finished: all 2 iterations are done" in again.out
        assert "--base_dir run --gin_bindings 'Runner.num_iterations = 3' --trust" in again.out
        assert "seed: 5" in again.out
        assert {path: path.read_bytes() for path in base_dir.rglob("*") if path.is_file()} == before

        # What it says does go on, and writes a report anew.
        more = call("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = 3")
        assert more.code == 0
        assert [line["iteration"] for line in iterations(base_dir)] == [0, 1, 2]
        assert "iteration 2:" in more.out and "iteration 1:" not in more.out
        assert (base_dir / "report.json").read_bytes() != before[base_dir / "report.json"]

        # Evaluation takes the saved configuration.
        evaluated = call("evaluate", "--base_dir", "run", "--trust", "--episodes", "4")
        assert evaluated.code == 0
        assert evaluated.out.startswith("4 episodes: mean return ")
        facts = json.loads((base_dir / "evaluation.json").read_text())
        assert len(facts["returns"]) == len(facts["frames"]) == 4
        single = call("evaluate", "--base_dir", "run", "--trust", "--episodes", "1").out
        assert single.startswith(f"1 episode: return {facts['returns'][0]:.1f}; written to ")
        assert facts["returns"][:3] == json.loads((base_dir / "report.json").read_text())[-1]["scores"]
        assert call("evaluate", "--base_dir", "run", "--trust", "--episodes", "4").out == evaluated.out
        delayed = call(
            "evaluate", "--base_dir", "run", "--trust", "--gin_bindings", "RealtimeDelay.delay = 6", "--episodes", "4"
        )
        assert delayed.code == 0
        assert json.loads((base_dir / "evaluation.json").read_text())["returns"] != facts["returns"]
        message = refused(call("evaluate", "--base_dir", "run", "--trust", "--video"))
        assert message == "render_mode of 'Mine-v0' must be None, got 'rgb_array'"

    def test_what_auto_became_is_said_once_and_kept_where_the_run_goes_on(
        self, call: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "DQNAgent.bf16 = 'auto'")
        one = bound("Runner.report_episodes = 0", "Runner.num_iterations = 1")
        told = []
        for more, flags in ((one, "avx2"), ((*one[:2], "--gin_bindings", "Runner.num_iterations = 2"), "avx512_bf16")):
            (place / "cpuinfo").write_text(f"flags\t: {flags}\n")
            monkeypatch.setattr("async_wrappers.agents.spaces.compute._PROCESSOR", place / "cpuinfo")
            done = call(*words, *more)
            assert done.code == 0, done.err
            told += [line for line in done.out.splitlines() if line.startswith("precision: ")]
        assert told == [
            "precision: float32, for the CPU does not compute in bfloat16 itself",
            "precision: float32, as when the run began, though the CPU computes in bfloat16 itself",
        ]
        bundle = Checkpointer(place / "run").load_each({}, continues=False)
        assert all(state["agent"]["learner"]["bf16"] is False for _, state in bundle)

    def test_the_word_train_is_the_default(self, call: Any, place: Path) -> None:
        short = ("--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
        assert call("--base_dir", "one", *short).code == call("train", "--base_dir", "other", *short).code == 0
        scores = [[line["train_episode_returns"] for line in iterations(place / name)] for name in ("one", "other")]
        assert scores[0] == scores[1]

    def test_without_a_base_dir_one_is_made_of_the_configurations_name(self, call: Any, place: Path) -> None:
        done = call("--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
        assert done.code == 0
        [base_dir] = (place / "results").iterdir()
        assert base_dir.name.startswith("mine_")
        assert f"base_dir: results/{base_dir.name}" in done.out

    def test_without_a_file_it_is_the_main_job_a_sweep_of_one_seed_and_its_figures(
        self, call: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        called: list[tuple[str, Any]] = []
        for name in ("sweep", "plot"):
            module = import_module(f"async_wrappers.agents.cli.{name}")
            monkeypatch.setattr(module, "run", lambda options, name=name: called.append((name, options)))
        done = call("--base_dir", "new", "--gin_bindings", "Runner.num_iterations = 1", "--trust")
        assert done.code == 0, done.err
        (first, swept), (second, drawn) = called
        assert (first, second) == ("sweep", "plot")
        assert (swept.gin_files, swept.seeds, swept.base_dir) == (["configs/default.gin"], 1, "new")
        assert swept.gin_bindings == ["Runner.num_iterations = 1"] and swept.trust and not swept.allow_unread
        assert drawn.dir == ["new"]
        assert done.out.splitlines()[-2:] == ["picture: new/figures/learning_curves.png", "base_dir: new"]
        assert refused(call("--seed", "3")).startswith(
            "--seed 3 is for one run, and without --gin_files the main job runs"
        )

    def test_without_a_closing_table_there_is_still_a_learning_curve(self, call: Any, place: Path) -> None:
        short = bound("Runner.num_iterations = 1", "Runner.report_episodes = 0")
        assert call("--base_dir", "run", "--gin_files", "mine.gin", *short).code == 0
        assert (place / "run" / "learning_curve.png").is_file()
        [row] = json.loads((place / "run" / "report.json").read_text())
        assert row["agent"] == "training" and row["best_score"] >= row["mean"]
        assert "finished" in call("--base_dir", "run", "--trust").out

    def test_the_directory_of_a_sweep_is_refused(self, call: Any, place: Path) -> None:
        (place / "swept").mkdir()
        (place / "swept" / "sweep.json").write_text("{}")
        message = refused(call("--base_dir", "swept", "--gin_files", "mine.gin"))
        assert "--base_dir swept holds a sweep: `python train.py sweep --base_dir swept` continues it" in message
        assert [path.name for path in (place / "swept").iterdir()] == ["sweep.json"]

    def test_a_run_of_no_iterations_is_done_or_refused_in_one_line(self, call: Any) -> None:
        done = call("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 0")
        assert done.code == 0 or refused(done)

    def test_a_report_that_is_missing_is_written_later(self, call: Any, place: Path) -> None:
        arguments = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
        assert call(*arguments).code == 0
        (place / "run" / "report.json").unlink()
        assert call("--base_dir", "run", "--trust").code == 0
        assert (place / "run" / "report.json").is_file()
        assert len(iterations(place / "run")) == 1

    def test_a_report_of_fewer_iterations_is_not_left_for_that_of_more(
        self, call: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        arguments = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
        assert call(*arguments).code == 0

        def interrupt(runner: Experiment, *arguments: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Experiment, "_run_iteration", interrupt)
            assert call("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = 2").code == 130
        assert not (place / "run" / "report.json").exists()
        assert call("--base_dir", "run", "--trust").code == 0
        assert (place / "run" / "report.json").is_file()
        assert len(iterations(place / "run")) == 2

    def test_a_closing_table_says_how_far_it_is_and_is_played_by_the_next_call_if_it_is_cut(
        self, call: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(runner: Experiment) -> None:
            raise KeyboardInterrupt

        words = ("--base_dir", "run", "--gin_files", "mine.gin", *bound("Runner.num_iterations = 1"))
        with monkeypatch.context() as patch:
            patch.setattr(Experiment, "trained_agent", interrupt)
            done = call(*words)
        told = "1 of 1 iterations are done in run, and the closing table is not; to go on: "
        assert done.code == 130
        assert f"\ninterrupted: {told}python train.py --base_dir run" in done.err
        assert not (place / "run" / "report.json").exists()
        again = call(*words)
        assert again.code == 0 and "iteration 0:" not in again.out
        rows = json.loads((place / "run" / "report.json").read_text())
        heads, *lines = [line for line in again.err.splitlines() if line.startswith("closing table")]
        assert heads == "closing table: each agent plays 3 episodes"
        assert [line.rpartition(", after ")[0] for line in lines] == [
            f"closing table, {k} of 2: {row['agent']}, mean return {row['mean']:.1f}" for k, row in enumerate(rows, 1)
        ]
        assert "finished: all 1 iterations are done" in call(*words).out


class TestExitCodes:
    def test_one_with_a_traceback_where_the_run_fails(self, place: Path, call: Any) -> None:
        done = in_a_fork(
            place,
            "--base_dir",
            "run",
            "--gin_files",
            "mine.gin",
            *bound(
                "create_gym_environment.environment_id = 'Broken-v0'",
                "Runner.training_episodes = 1",
                "Runner.evaluation_steps = 0",
            ),
        )
        assert done.code == 1
        assert "Traceback" in done.err
        assert done.err.rstrip().endswith("ZeroDivisionError: the game broke")
        assert (place / "run" / "config.gin").is_file()
        assert [line["iteration"] for line in iterations(place / "run")] == [0]

    def test_1_in_one_sentence_when_the_loss_is_not_finite(self, place: Path, call: Any) -> None:
        rate = "create_optimizer.learning_rate = 1e30"
        done = call("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", rate)
        assert done.code == 1
        assert re.fullmatch(r"train\.py: the loss of update \d+ is (nan|inf), and learning stops .*\n", done.err)
        (path,) = (place / "run").glob("diverged_batch_*.pt")
        assert str(path) in done.err

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_130_when_interrupted_and_the_same_base_dir_goes_on(
        self, place: Path, call: Any, number: signal.Signals
    ) -> None:
        many = ("--gin_bindings", "Runner.num_iterations = 100000")
        with running(place, "--base_dir", "run", "--gin_files", "mine.gin", *many) as run:
            sentinel = place / "run" / "checkpoints" / "sentinel_checkpoint_complete.0"
            deadline = time.monotonic() + 200
            while not sentinel.exists() and run.alive and time.monotonic() < deadline:
                time.sleep(0.02)
            assert sentinel.exists(), "no checkpoint was written"
            os.kill(run.pid, number)
            code, _, err = run.end()
        assert code == 130
        assert "Traceback" not in err
        # The last line of metrics may be of an iteration whose checkpoint the signal forestalled, and the newest
        # checkpoint may hold a part of an iteration.
        texts = [path.read_text() for path in sentinel.parent.glob("sentinel*")]
        done = max(int(text.partition(" ")[0].removeprefix("done=")) for text in texts)
        command = f"python {SCRIPT} --base_dir run --gin_bindings 'import module_{place.name}'"
        assert f"\ninterrupted: {done} of 100000 iterations are done in run; to go on: {command}\n" in err
        assert done >= 1
        resumed = call("--base_dir", "run", "--trust", "--gin_bindings", f"Runner.num_iterations = {done + 1}")
        assert resumed.code == 0
        assert [line["iteration"] for line in iterations(place / "run")] == list(range(done + 1))
        as_many = ("--gin_bindings", f"Runner.num_iterations = {done + 1}")
        assert call("--base_dir", "straight", "--gin_files", "mine.gin", *as_many).code == 0
        lines = zip(iterations(place / "run"), iterations(place / "straight"), strict=True)
        for resumed_line, straight_line in islice(lines, done):  # in the next one an episode was cut
            assert resumed_line["train_episode_returns"] == straight_line["train_episode_returns"]
            assert resumed_line["eval_episode_returns"] == straight_line["eval_episode_returns"]

    def test_130_counts_an_iteration_whose_checkpoint_was_just_written(
        self, place: Path, call: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save = Checkpointer.save

        def save_and_interrupt(self: Checkpointer, *arguments: Any) -> set[int]:
            save(self, *arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(Checkpointer, "save", save_and_interrupt)
        done = call("--base_dir", "run", "--gin_files", "mine.gin")
        assert done.code == 130
        # A slow machine adds the seconds since the checkpoint before.
        assert re.search(r"\ninterrupted: 1 of 2 iterations are done in run[;,] ", done.err)

    def test_130_with_the_directory_where_none_was_named(
        self, place: Path, call: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*arguments: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Experiment, "run_experiment", interrupt)
        done = call("--gin_files", "configs/dqn/cartpole.gin")
        (base_dir,) = (place / "results").iterdir()
        what = f"0 of 10 iterations are done in results/{base_dir.name}, and no checkpoint was written"
        told = f"\ninterrupted: {what}, so that the run begins anew; to go on: "
        assert done.err == f"{told}python train.py --base_dir results/{base_dir.name}\n"
        monkeypatch.setattr(Experiment, "resume", interrupt)
        done = call("--gin_files", "configs/dqn/cartpole.gin", "--base_dir", "new")
        assert done.err == "\ninterrupted: nothing had begun in new; the same command begins again\n"

    # The next test sends SIGTERM too.
    @pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
    def test_130_in_one_line_while_the_libraries_are_imported(self, place: Path, number: signal.Signals) -> None:
        with importing(place) as (process, _):
            process.send_signal(number)
            out, err = process.communicate(timeout=200)
        assert (process.returncode, out, err) == (130, "", "\ninterrupted: nothing had begun\n")
        assert not (place / "run").exists()

    def test_an_interrupt_that_is_ignored_stays_so_and_a_termination_ends_it(self, place: Path) -> None:
        with importing(place, interrupt=signal.SIG_IGN) as (process, interrupt):
            assert "SIG_IGN" in interrupt
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=200)
        assert (process.returncode, err) == (130, "\ninterrupted: nothing had begun\n")

    def test_2_at_once_where_another_process_is_there_and_nothing_is_touched(self, place: Path, call: Any) -> None:
        arguments = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
        assert call(*arguments).code == 0
        more = ("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = 2")
        with holder(place / "run") as (process, _):
            before = {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()}
            message = refused(call(*more))
            assert message.startswith("base_dir run is in use (by another run or sweep, process ")
            assert str(process.pid) in message
            assert {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()} == before
            assert call("evaluate", "--base_dir", "run", "--trust", "--episodes", "1").code == 0
        assert call(*more).code == 0

    def test_a_run_that_is_killed_leaves_its_directory_free(self, place: Path, call: Any) -> None:
        many = ("--gin_bindings", "Runner.num_iterations = 100000")
        with running(place, "--base_dir", "run", "--gin_files", "mine.gin", *many) as run:
            while "\niteration 0" not in run.printed():
                assert run.alive
                time.sleep(0.02)
            message = refused(call("--base_dir", "run", "--gin_files", "mine.gin"))
            assert f"process {run.pid}" in message
        done = len(iterations(place / "run"))
        again = ("--gin_bindings", f"Runner.num_iterations = {done + 1}", "--trust")
        assert call("--base_dir", "run", *again).code == 0

    @pytest.mark.parametrize("base_dir", ["mine.gin/run", "/proc/run", "x" * 300, "x" * 200 + "/" + "y" * 300])
    def test_2_in_one_sentence_where_the_base_dir_cannot_be_made(self, call: Any, place: Path, base_dir: str) -> None:
        before = sorted(place.iterdir())
        message = refused(call("--base_dir", base_dir, "--gin_files", "mine.gin"))
        assert message.startswith(f"--base_dir {base_dir} cannot be written (")
        assert message.endswith("): name another")
        swept = refused(
            call("sweep", "--base_dir", base_dir, "--gin_files", "mine.gin", "--grid", "Runner.threads = 1")
        )
        assert swept == message
        assert "evaluate needs --base_dir" in refused(call("evaluate", "--base_dir", base_dir))
        assert sorted({*place.iterdir()} - {place / "__pycache__"}) == before

    @pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
    def test_2_in_one_sentence_where_the_base_dir_is_read_only_which_can_be_evaluated(
        self, call: Any, place: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        arguments = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings")
        assert call(*arguments, "Runner.num_iterations = 1").code == 0
        really_open = open

        def read_only(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            if set(mode) & set("wax+") and str(path).startswith("run/"):
                raise OSError(number, os.strerror(number), str(path))
            return really_open(path, mode, *arguments, **named)

        monkeypatch.setattr("builtins.open", read_only)
        message = refused(call(*arguments, "Runner.num_iterations = 2"))
        refusal = f"--base_dir run cannot be written ({os.strerror(number)}: run/config.gin)"
        assert message == f"{refusal}: make it writable, or name another"
        done = call("evaluate", "--base_dir", "run", "--episodes", "1", "--trust")
        assert done.code == 0
        assert f"not written to run/evaluation.json ({os.strerror(number)})" in done.out

    def test_1_in_one_sentence_where_the_disk_is_full_and_the_same_base_dir_goes_on(
        self, call: Any, place: Path
    ) -> None:
        # A limit on the size of files fails as a full disk does, in the midst of writing one.
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        arguments = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = {}")
        assert call(*arguments[:-1], arguments[-1].format(1)).code == 0
        size = (place / "run" / "checkpoints" / "ckpt.0").stat().st_size
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
            done = call(*arguments[:-1], arguments[-1].format(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, ignored)
        assert done.code == 1
        remedy = "free space, and continue with the same --base_dir"
        assert re.fullmatch(rf"train\.py: File too large, writing run/checkpoints/\S+: {remedy}\n", done.err)
        assert not list(place.rglob("*.tmp"))
        assert call(*arguments[:-1], arguments[-1].format(2)).code == 0
        assert [line["iteration"] for line in iterations(place / "run")] == [0, 1]
        assert call("--base_dir", "straight", *arguments[2:-1], arguments[-1].format(2)).code == 0
        scores = [[line["train_episode_returns"] for line in iterations(place / name)] for name in ("run", "straight")]
        assert scores[0] == scores[1]

    @pytest.mark.parametrize(
        ("bindings", "named"),
        [
            (["RealtimeDelay.delay = -1"], "delay must be >= 0 frames, got -1"),
            (["RealtimeDelay.delay = 2.5"], "delay must be a whole number of frames (an int), got 2.5"),
            (["RealtimeDelay.noops = 1.5"], "noops must be a whole number of frames (an int), got 1.5"),
            (["RealtimeDelay.default_action = 'noop'"], "default_action='noop' needs an environment with a no-op"),
            (["create_gym_environment.environment_id = 'Pendulum-v1'"], "agent 'dqn' needs Discrete actions"),
            (["create_runner.schedule = 'train'"], "create_runner.schedule must be one of"),
            (["Runner.training_steps = 0"], "Runner.training_steps must be >= 1 frame, got 0"),
            (["Runner.create_environment_fn = %gin.REQUIRED"], "create_environment_fn"),
            (["Runner.initial_checkpoint = 'cartpol'"], "got 'cartpol'; did you mean 'cartpole'?"),
            (["Runner.initial_checkpoint = 'mine.gin'"], "mine.gin"),
            (["DQNAgent.stack_size = 'four'"], "stack_size|DQNAgent"),
            (["MLPTorso.hidden = 8"], "hidden|MLPTorso"),
            (
                ["create_gym_environment.environment_id = 'Humanoid-v2'"],
                "'Humanoid-v2' cannot be made|gymnasium-robotics",
            ),
            (["create_gym_environment.environment_id = 'Humanoid-v2'"], "use 'Humanoid-v5'"),
            (["create_gym_environment.environment_id = 'phys2d/CartPole-v1'"], "needs a module that is missing"),
            (
                ["create_gym_environment.environment_id = 'LunarLander-v2'"],
                "got 'LunarLander-v2'; close names are Lunar",
            ),
            (
                ["create_gym_environment.environment_id = 3"],
                "environment_id must be a text, such as 'CartPole-v1', got 3",
            ),
            (["create_gym_environment.environment_id = 'a:b:c'"], "environment_id must read"),
            (["create_gym_environment.environment_id = ':'"], "environment_id must read"),
            (["create_gym_environment.environment_kwargs = 'x'"], "environment_kwargs must be a dict"),
            (["create_gym_environment.render_mode = 3"], "render_mode of 'Mine-v0' must be None, got 3"),
            (["Runner.create_environment_fn = 'string'"], "Runner.create_environment_fn must be a function or a class"),
            (["Runner.create_environment_fn = None"], "Runner.create_environment_fn must be a function or a class"),
            (
                ["Runner.create_environment_fn = @create_gym_environment()"],
                "Runner.create_environment_fn must be a function",
            ),
            (
                ["Runner.create_environment_fn = @Sweep"],
                "Runner.create_environment_fn must make an environment, not a Sweep",
            ),
            (["Runner.create_agent_fn = 3"], "Runner.create_agent_fn must be a function or a class"),
            (
                ["DQNAgent.network = 3"],
                "DQNAgent.network must be a function or a class, such as @create_network, got 3",
            ),
            (["DQNAgent.epsilon_fn = 'x'"], "DQNAgent.epsilon_fn must be a function or a class"),
            (["DQNAgent.optimizer = None"], "DQNAgent.optimizer must be a function or a class"),
            (
                ["create_agent.agent_name = @create_network"],
                "or a subclass of async_wrappers.agents.spec.Spec such as",
            ),
            (["create_runner.schedule = []"], "create_runner.schedule must be one of"),
            (["Runner.seed = "], "not a gin statement"),
            (["Runner.seed = @Runner()"], "a reference or a macro leads back to itself"),
            (["x = %x", "Runner.seed = %x"], "a reference or a macro leads back to itself"),
            (
                ["create_network.torso = 'nature'"],
                "network must take|observation_shape must be [C, H, W],",
            ),
        ],
    )
    def test_two_with_one_line_where_a_binding_is_wrong(
        self, call: Any, place: Path, bindings: list[str], named: str
    ) -> None:
        words = bound(*bindings)
        message = refused(call("--base_dir", "run", "--gin_files", "mine.gin", *words))
        assert any(name in message for name in named.split("|"))
        assert not (place / "run").exists()

    @pytest.mark.parametrize(
        ("words", "named"),
        [
            (["--gin_files", "min.gin"], "--gin_files min.gin: no such file"),
            (["--gin_files", "configs/dqn/cartpol.gin"], "did you mean configs/dqn/cartpole.gin"),
            (["sweeps"], "no command 'sweeps': use one of train, evaluate"),
            (["mine.gin"], "no command 'mine.gin'"),
            (["--gin_files", "mine.gin", "other.gin"], "'other.gin' belongs to no flag"),
            (["--gin_file", "mine.gin"], "gin_file"),
            (["--base_dir", "mine.gin", "--gin_files", "mine.gin"], "base_dir"),
            (["--seed", "-1"], "seed"),
            (["--seed", "x"], "seed"),
            (["--episodes", "0"], "episodes"),
        ],
    )
    def test_two_with_one_line_where_the_command_line_is_wrong(
        self, call: Any, place: Path, words: list[str], named: str
    ) -> None:
        before = sorted(place.iterdir())
        assert named in refused(call(*words))
        assert sorted(place.iterdir()) == before

    @pytest.mark.parametrize(
        ("bindings", "reason"),
        [
            (["C51Agent.vmax = 3.0"], "nothing reads C51Agent.vmax, as create_agent.agent_name is 'dqn'"),
            (["LiveRunner.standing_at = 3"], "nothing reads LiveRunner.standing_at, as create_runner.schedule is"),
            (["AppliedActions.length = 3"], "nothing reads AppliedActions.length, as nothing that is made refers to"),
            (
                ["create_agent.agent_name = 'rainbow'", "DQNAgent.update_horizon = 2"],
                "nothing reads DQNAgent.update_horizon, as RainbowAgent has a default of its own for it (3): bind "
                "RainbowAgent.update_horizon instead",
            ),
        ],
    )
    def test_two_where_nothing_reads_a_binding(self, call: Any, place: Path, bindings: list[str], reason: str) -> None:
        words = bound(*bindings)
        message = refused(call("--base_dir", "run", "--gin_files", "mine.gin", *words))
        assert message.startswith(f"--gin_bindings {bindings[-1]!r}: {reason}")
        assert message.endswith("(--allow_unread accepts it)")
        assert not (place / "run").exists()

    def test_what_nothing_reads_is_without_effect_where_it_is_accepted_or_saved_with_the_run(self, call: Any) -> None:
        words = bound("C51Agent.vmax = 3.0", "LiveRunner.standing_at = 3", "Runner.num_iterations = 1")
        assert call("--base_dir", "run", "--gin_files", "mine.gin", *words, "--allow-unread").code == 0
        assert call("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = 2").code == 0
        assert call("evaluate", "--base_dir", "run", "--trust", "--episodes", "1").code == 0

    def test_a_binding_of_an_evaluation_that_nothing_reads_is_refused(self, call: Any) -> None:
        short = ("--gin_bindings", "Runner.num_iterations = 1")
        assert call("--base_dir", "run", "--gin_files", "mine.gin", *short).code == 0
        message = refused(call("evaluate", "--base_dir", "run", "--trust", "--gin_bindings", "C51Agent.vmax = 3.0"))
        assert message.startswith("--gin_bindings 'C51Agent.vmax = 3.0': nothing reads C51Agent.vmax")

    def test_a_file_of_ones_own_is_refused_for_what_nothing_reads_but_not_for_its_includes(
        self, call: Any, place: Path
    ) -> None:
        (place / "top.gin").write_text('include "mine.gin"\nC51Agent.vmax = 3.0\n')
        (place / "above.gin").write_text('include "top.gin"\nRunner.num_iterations = 1\n')
        message = refused(call("--base_dir", "run", "--gin_files", "top.gin"))
        assert message.startswith(
            "--gin_files top.gin: nothing reads C51Agent.vmax, as create_agent.agent_name is 'dqn'"
        )
        assert call("--base_dir", "run", "--gin_files", "above.gin").code == 0
        chosen = bound("create_agent.agent_name = 'random'", "Runner.num_iterations = 1")
        assert call("--base_dir", "other", "--gin_files", "mine.gin", *chosen).code == 0

    def test_two_where_the_base_dir_holds_another_experiment(self, call: Any, place: Path) -> None:
        arguments = ("--base_dir", "run", "--gin_files", "mine.gin", "--gin_bindings", "Runner.num_iterations = 1")
        assert call(*arguments).code == 0
        before = {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()}
        assert "seed: 0 there, 3 here" in refused(call("--base_dir", "run", "--trust", "--seed", "3"))
        message = refused(call("--base_dir", "run", "--trust", "--gin_bindings", "DQNAgent.gamma = 0.5"))
        assert "gamma" in message
        assert {path: path.read_bytes() for path in (place / "run").rglob("*") if path.is_file()} == before


class TestLog:
    def test_what_a_run_prints_and_logs_is_in_its_log_and_is_appended_to(self, place: Path, call: Any) -> None:
        first = call("--base_dir", "run", "--gin_files", "mine.gin")
        log = (place / "run" / "log.txt").read_text()
        header, *lines = log.splitlines()
        assert re.match(r"--- \d{4}-\d\d-\d\dT[\d:]{8}\+00:00 ", header)
        assert sorted(lines) == sorted((first.out + first.err).splitlines())
        assert [line for line in lines if line in first.out.splitlines()] == first.out.splitlines()
        (place / "run" / "checkpoints" / "sentinel_checkpoint_complete.1").write_text("torn")
        more = call("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = 3")
        assert more.code == 0, more.err
        both = (place / "run" / "log.txt").read_text()
        assert both.startswith(log) and both.count("\n--- ") == 1
        assert set(more.out.splitlines()) <= set(both.splitlines())
        assert re.search(r"^W\d{4} .*checkpoint", both, re.MULTILINE)  # absl's

    def test_a_finished_run_and_a_refused_one_write_nothing(self, place: Path, call: Any) -> None:
        call("--base_dir", "run", "--gin_files", "mine.gin")
        log = (place / "run" / "log.txt").read_bytes()
        assert "finished" in call("--base_dir", "run", "--trust").out
        refused(call("--base_dir", "run", "--trust", "--gin_bindings", "Runner.num_iterations = -1"))
        assert (place / "run" / "log.txt").read_bytes() == log
        refused(call("--base_dir", "new", "--gin_files", "mine.gin", "--gin_bindings", "Runner.seed = -1"))
        assert not (place / "new" / "log.txt").exists()

    def test_what_ends_a_run_is_its_last_line(self, place: Path, call: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            call(
                "--base_dir",
                "run",
                "--gin_files",
                "mine.gin",
                "--gin_bindings",
                'create_gym_environment.environment_id = "Broken-v0"',
            )
        assert (place / "run" / "log.txt").read_text().splitlines()[-1] == "ZeroDivisionError: the game broke"

    def test_of_a_bar_that_is_drawn_again_the_last_one_is_kept(self, tmp_path: Path) -> None:
        log = RunLog()
        log.write("before\n 10 %\r 50 %\r")
        log.begin(tmp_path)
        log.write("100 %\nafter")
        log.close()
        assert (tmp_path / "log.txt").read_text().splitlines()[1:] == ["before", "100 %", "after"]
