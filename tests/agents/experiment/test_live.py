"""Live runs through `train.py`'s runner: phases, files, resume, evaluation, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from async_wrappers import AsyncRunner
from async_wrappers.agents.experiment import experiment as runner_module
from async_wrappers.agents.experiment.checkpoint import Checkpointer, NoCheckpointLoads
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.progress import PhasesShown, Progress, closing_line
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.play.live import Live, shown_by_the_clock
from async_wrappers.agents.play.play import DifferentExperiment, Length, Phase, RunStopped, environment_seed
from async_wrappers.agents.replay.replay import create_replay
from async_wrappers.agents.replay.segments import read_index
from async_wrappers.live.report.report import EpisodeTiming, Measurements, TimingReport
from tests.worlds.command_line import bound
from tests.worlds.duels_env import FRAMES, won_by
from tests.worlds.experiments import QUICK_LIVE
from tests.worlds.experiments import build_live as build
from tests.worlds.plain_data import assert_identical, differs

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("fork_server")]


@pytest.mark.parametrize("agent", ["dqn", "rainbow"])
def test_an_unset_warmup_of_epsilon_is_refused_with_the_line_to_bind(tmp_path: Path, agent: str) -> None:
    name = f"create_agent.agent_name = {agent!r}"
    with pytest.raises(ValueError, match=r"^DQNAgent.epsilon_warmup must .*: bind DQNAgent.epsilon_warmup = 20 for an"):
        build(tmp_path, name, "DQNAgent.epsilon_warmup = None")
    assert not list(tmp_path.iterdir())
    build(tmp_path, name, "DQNAgent.epsilon_warmup = 20")
    build(tmp_path, name, "DQNAgent.epsilon_warmup = None", "DQNAgent.epsilon_fn = @identity_epsilon")


def newest(base_dir: Path) -> dict:
    return next(Checkpointer(base_dir).load_each())[1]


def trained(base_dir: Path, iterations: int, *bindings: str) -> Experiment:
    """Train for so many iterations, and for more while a learner on a busy machine had no turn in the newest."""
    before = [learner["updates"] for learner in newest(base_dir)["learners"]] if list(base_dir.iterdir()) else [0, 0]
    for number in range(iterations, iterations + 20):
        runner = build(base_dir, *bindings, f"Runner.num_iterations = {number}")
        runner.resume()
        runner.run_experiment()
        if all(after["updates"] > old for after, old in zip(newest(base_dir)["learners"], before, strict=False)):
            break
    return runner


def test_the_learners_of_a_live_run_put_a_batch_that_is_not_finite_into_base_dir(tmp_path: Path) -> None:
    parts = cloudpickle.loads(cloudpickle.dumps(build(tmp_path / "run").agent.spec))  # as they reach a learner
    assert [Path(make_learner(parts, number, 2).diverged_dir) for number in range(2)] == [tmp_path / "run"] * 2


@pytest.mark.usefixtures("children_of_a_server")
def test_a_live_run_trains_evaluates_stops_and_goes_on(tmp_path: Path) -> None:
    fps = "AsyncRunner.fps = 100"
    assert isinstance(trained(tmp_path, 1, fps).play, Live)
    before = newest(tmp_path)
    assert before["frames"] >= 300
    assert before["episodes"]["TRAIN"] > 0
    assert before["episodes"]["EVAL"] > 0
    assert before["learners"][0]["updates"] > 0

    second = trained(tmp_path, before["current_iteration"] + 2, fps)
    assert second.start_iteration > before["current_iteration"]
    after = newest(tmp_path)
    assert after["frames"] >= before["frames"] + 300
    assert after["episodes"]["TRAIN"] > before["episodes"]["TRAIN"]
    assert after["learners"][0]["updates"] > before["learners"][0]["updates"]
    done = range(after["current_iteration"] + 1)
    assert [line["iteration"] for line in after["logs"]] == list(done)
    assert not list((tmp_path / "checkpoints").glob("learner_*"))

    reports = {path.name for path in (tmp_path / "timing").iterdir()}
    assert reports == {f"{phase}.{number}.json" for phase in ("eval", "train") for number in done}
    shown = json.loads((tmp_path / "live" / "now.json").read_text())
    last = json.loads((tmp_path / "timing" / f"eval.{done[-1]}.json").read_text())
    assert (shown["over"], shown["phase"], shown["frames"]) == (True, 1, last["frames"]["total"])
    train, evaluation = (
        json.loads((tmp_path / "timing" / f"{name}.{done[-1]}.json").read_text()) for name in ("train", "eval")
    )
    assert train["frames"]["fresh"] > 0
    assert train["updates"] > 0
    assert evaluation["updates"] == 0

    third = build(tmp_path)
    episodes = third.evaluation(third.trained_agent(), 2)
    assert len(episodes) == 2
    assert all(0 < episode.score == episode.frames <= 500 for episode in episodes)


VIRTUAL = (
    "AsyncRunner.backend = 'virtual'",
    "AsyncRunner.fps = 50",
    "AsyncRunner.latency = 0.03",
    "AsyncRunner.learner_latency = 0.015",
    "Runner.num_iterations = 2",
    "Runner.training_steps = 150",
)


def test_an_agent_that_reads_stacks_trains_goes_on_and_is_evaluated_live(tmp_path: Path) -> None:
    stacks = ("DQNAgent.stack_size = 4", "Runner.training_steps = 100", *VIRTUAL)
    build(tmp_path, *stacks, "Runner.num_iterations = 1").run_experiment()
    again = build(tmp_path, *stacks)
    assert again.resume()
    again.run_experiment()
    learner = newest(tmp_path)["learners"][0]
    assert learner["updates"] > 20
    assert all(episode.score > 0 for episode in again.evaluation(again.trained_agent(), 1))


@pytest.mark.parametrize("backend", ["virtual", "process"])
@pytest.mark.usefixtures("children_of_a_server")
def test_a_live_run_begins_with_the_weights_that_another_run_has_learnt(tmp_path: Path, backend: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    build(old, *VIRTUAL, "Runner.num_iterations = 1").run_experiment()
    learnt = newest(old)["learners"][0]
    assert learnt["updates"] > 20
    clock = VIRTUAL if backend == "virtual" else ()
    warm = (f"Runner.initial_checkpoint = {str(old)!r}", "Runner.seed = 7", "AsyncRunner.learners = 2", *clock)
    none_is_made = "DQNAgent.min_replay_history = 10_000"
    first = build(new, *warm, none_is_made, "Runner.num_iterations = 1")
    assert not first.resume()
    first.run_experiment()
    for learner in newest(new)["learners"]:
        assert learner["updates"] == 0 and not learner["optimizer"]["state"]
        assert_identical(dict(learner["network"]), dict(learnt["network"]))
        assert_identical(dict(learner["target"]), dict(learnt["network"]))
    trained(new, 2, *warm)
    assert all(learner["updates"] > 0 for learner in newest(new)["learners"])


def test_weights_that_a_live_run_cannot_begin_with_are_refused_before_a_part_starts(tmp_path: Path) -> None:
    runner = build(tmp_path, "Runner.initial_checkpoint = 'nowhere'")
    with pytest.raises(ValueError, match=r"^Runner.initial_checkpoint must .*, got 'nowhere'"):
        runner.resume()
    assert not list(tmp_path.iterdir())


def result(base_dir: Path) -> tuple[list, list, list[str]]:
    """Return what a run came to, but for what depends on a clock: learners, statistics, timing reports."""
    bundle = newest(base_dir)
    lines = [{name: value for name, value in line.items() if "second" not in name} for line in bundle["logs"]]
    return bundle["learners"], lines, [path.read_text() for path in sorted((base_dir / "timing").iterdir())]


def test_a_run_on_the_virtual_clock_is_a_function_of_its_seed_wherever_it_was_ended(tmp_path: Path) -> None:
    build(tmp_path / "whole", *VIRTUAL).run_experiment()
    build(tmp_path / "pieces", *VIRTUAL, "Runner.num_iterations = 1").run_experiment()
    build(tmp_path / "pieces", *VIRTUAL).run_experiment()
    whole = result(tmp_path / "whole")
    assert_identical(result(tmp_path / "pieces"), whole)
    assert newest(tmp_path / "whole")["learners"][0]["updates"] > 60
    report = json.loads((tmp_path / "whole" / "timing" / "train.1.json").read_text())
    assert report["learner_step_ms"]["mean"] == 15.0
    assert report["lateness_ms"]["max"] == 0.0

    build(tmp_path / "slower", *VIRTUAL, "AsyncRunner.learner_latency = 0.05").run_experiment()
    assert differs(result(tmp_path / "slower")[0], whole[0])


def test_a_live_run_that_is_stopped_counts_what_was_played_and_goes_on(tmp_path: Path) -> None:
    def stopped_at(frame: int) -> Experiment:
        runner = build(tmp_path, *VIRTUAL, "Runner.evaluation_steps = 0")
        if frame:
            make = runner.play.create_async_runner

            def made(*parts: Any, **terms: Any) -> Any:
                live = make(*parts, **terms)
                loop = live._backend._loop
                begin = loop.clock.begin_frame

                def noted(ticket: Any, *rest: Any) -> None:
                    if ticket.decision.frame == frame:
                        runner.ending.ask(KeyboardInterrupt())
                        runner.play.stop()
                    begin(ticket, *rest)

                loop.clock.begin_frame = noted
                return live

            runner.play.create_async_runner = made
        return runner

    here = stopped_at(100)
    with pytest.raises(KeyboardInterrupt):
        here.run_experiment()
    bundle = newest(tmp_path)
    assert bundle["current_iteration"] == -1 and bundle["frames"] == 101 and bundle["learners"][0]["updates"] > 0
    there = stopped_at(0)
    assert there.resume() and there.counts.frames == 101
    there.run_experiment()
    lines = newest(tmp_path)["logs"]
    whole = sum(sum(line["train_episode_lengths"]) for line in lines)
    assert lines[-1]["frames"] == whole + lines[-1]["cut_frames"] and lines[0]["frames"] >= 150


class Interrupted:
    """A runner in whose n-th call Ctrl-C is pressed: "run", "save", "take_states" or "forget"."""

    is_open = True
    cut_after = 50  # frames of the episode in which it is pressed

    def __init__(self, call: str, n: int) -> None:
        self._call, self._left, self._states, self._stopped = call, n, 0, False

    def stop(self) -> None:
        self._stopped = True

    def __enter__(self) -> Interrupted:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        pass

    def start(self) -> None:
        pass

    def put_states(self, *where: object) -> None:
        pass

    def drop_states(self, *where: object) -> None:
        pass

    def restore(self, *where: object) -> None:
        pass

    def run(self, **phase: Any) -> TimingReport:
        assert phase["frames"] is None or phase["frames"] >= 1
        self._stopped = False
        self._count("run")
        episodes, effects = [EpisodeTiming(9.0, 300)], [[(0, 2)]]
        if self._stopped:  # in the second one
            episodes, effects = [EpisodeTiming(9.0, 200), EpisodeTiming(2.0, self.cut_after)], [[(0, 2)], []]
        record = Measurements(50.0, 1, episodes=episodes, effects=effects, lateness=[0] * 250)
        record.reason = "stop() was called" if self._stopped else None
        return record.report()

    def save(self, directory: Path, iteration: int) -> None:
        self._count("save")
        create_replay(Box(-np.inf, np.inf, (4,)), capacity=10).save(directory / "replay_0", iteration)

    def take_states(self, *where: object) -> list[dict]:
        self._count("take_states")
        self._states += 1
        return [{"network": {}, "learnt": self._states}]

    def forget(self, *where: object) -> None:
        self._count("forget")

    def _count(self, call: str) -> None:
        self._left -= call == self._call
        if self._left == 0:
            self._left = -1
            signal.raise_signal(signal.SIGINT)


def faked(base_dir: Path, iterations: int, fake: Interrupted) -> Experiment:
    """A runner that plays so many iterations with a fake."""
    runner = build(base_dir, f"Runner.num_iterations = {iterations}")
    runner.play.create_async_runner = lambda *parts, **terms: fake
    return runner


@pytest.fixture
def signals() -> Iterator[None]:
    """Let SIGINT interrupt, whatever runs the tests does with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("call", "n", "done", "frames"),
    [
        *(("run", 3, 0, 550), ("run", 4, 0, 600), ("run", 1, -1, 250)),
        *(("save", 2, 1, 600), ("take_states", 2, 1, 600), ("forget", 2, 1, 600)),
    ],
)
def test_a_signal_ends_the_phase_and_the_rest_of_it_is_played_later(
    tmp_path: Path, call: str, n: int, done: int, frames: int
) -> None:
    runner = faked(tmp_path, 3, Interrupted(call, n))
    with pytest.raises(KeyboardInterrupt):
        runner.run_experiment()
    bundle = newest(tmp_path)
    assert (bundle["current_iteration"], bundle["frames"]) == (done, frames)
    assert runner.saved.iterations_done == done + 1
    assert [line["iteration"] for line in bundle["logs"]] == list(range(done + 1))
    assert bundle["episodes"]["TRAIN"] == frames // 300 + frames % 300 // 200
    assert bundle["episodes"]["EVAL"] == done + 1
    rest = Counting()
    played(tmp_path, 3, rest)
    lines = newest(tmp_path)["logs"]
    assert [line["iteration"] for line in lines] == [0, 1, 2]
    assert rest.frames[0] == (50 if frames % 300 else 300) or n == 4
    cut = 50 * bool(frames % 300)
    assert lines[-1].get("cut_frames", 0) == cut and lines[-1]["frames"] == 900 + 250 * bool(cut)


@pytest.mark.usefixtures("signals")
def test_a_signal_in_an_episode_that_outlasts_its_phase_leaves_no_rest_of_it(tmp_path: Path) -> None:
    fake = Interrupted("run", 1)
    fake.cut_after = 150
    runner = faked(tmp_path, 1, fake)
    with pytest.raises(KeyboardInterrupt):
        runner.run_experiment()
    assert newest(tmp_path)["frames"] == 350 and newest(tmp_path)["episodes"]["TRAIN"] == 1
    played(tmp_path, 1, Interrupted("none", 1))
    (line,) = newest(tmp_path)["logs"]
    assert (line["frames"], line["cut_frames"], line["train_episode_lengths"]) == (350, 150, [200])
    assert newest(tmp_path)["episodes"]["EVAL"] == 1


class Counting(Interrupted):
    """A runner that notes how many frames of training it was asked for; whatever that is, it plays 300."""

    def __init__(self) -> None:
        super().__init__("never", 1)
        self.frames: list[Any] = []

    def run(self, **phase: Any) -> TimingReport:
        self.frames += [] if phase["eval_mode"] else [phase["frames"]]
        return super().run(**phase)


@pytest.mark.usefixtures("signals")
def test_the_replays_of_a_checkpoint_within_an_iteration_are_its_own_and_are_tied_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = faked(tmp_path, 3, Interrupted("run", 3))
    with pytest.raises(KeyboardInterrupt):
        runner.run_experiment()
    replays = tmp_path / "checkpoints" / "replay_0"
    assert (newest(tmp_path)["current_iteration"], runner.saved.number) == (0, 1)
    of_another = create_replay(Box(-np.inf, np.inf, (4,)), capacity=11)
    of_another.save(replays, 2)  # as the iteration's end does before its own checkpoint, where it is killed then
    again = build(tmp_path, "Runner.num_iterations = 3")
    assert again.resume() and again.start_iteration == 1
    assert caplog.text == ""
    of_another.save(replays, 1)
    assert build(tmp_path, "Runner.num_iterations = 3").resume()
    assert "index_1.json is not the index that the checkpoint was written with" in caplog.text
    assert "the run goes on from checkpoint 0, the newest one that loads" in caplog.text


def test_an_iteration_that_was_saved_whole_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = faked(tmp_path, 3, Interrupted("never", 1))

    def pressed(line: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner_module, "iteration_line", pressed)  # what is printed after the checkpoint
    with pytest.raises(KeyboardInterrupt):
        runner.run_experiment()
    assert runner.saved.number == newest(tmp_path)["current_iteration"] == 0
    assert [line["iteration"] for line in newest(tmp_path)["logs"]] == [0]


class Restoring(Interrupted):
    """A runner that notes which iterations it was asked to restore, and cannot restore some of them."""

    def __init__(self, *bad: int) -> None:
        super().__init__("never", 1)
        self._bad, self.asked = bad, list[object]()

    def restore(self, *where: object) -> None:
        self.asked.append(where[1])
        if where[1] in self._bad:
            raise ValueError("learner 0 cannot be restored: index_2.json is missing")


def played(base_dir: Path, iterations: int, fake: Interrupted) -> None:
    """Play up to so many iterations with a fake."""
    faked(base_dir, iterations, fake).run_experiment()


def files(base_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in base_dir.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_damaged_index_leads_to_an_earlier_checkpoint_that_is_named(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    played(tmp_path, 3, Interrupted("never", 1))
    path = tmp_path / "checkpoints" / "replay_0" / "index_2.json"
    path.unlink() if how == "missing" else path.write_bytes(path.read_bytes()[:-9])
    runner = build(tmp_path, "Runner.num_iterations = 3")
    assert runner.resume()
    assert runner.start_iteration == 2
    assert "checkpoint 2 is not used: " in caplog.text
    assert "index_2.json is missing in " in caplog.text or "index_2.json is not a whole index file" in caplog.text
    assert "the run goes on from checkpoint 1, the newest one that loads" in caplog.text


def test_checkpoints_whose_replays_are_all_damaged_end_the_run_in_one_sentence(tmp_path: Path) -> None:
    played(tmp_path, 3, Interrupted("never", 1))
    for path in (tmp_path / "checkpoints" / "replay_0").glob("index_*"):
        path.write_text("{}")
    before = files(tmp_path)
    runner = build(tmp_path, "Runner.num_iterations = 3")
    with pytest.raises(NoCheckpointLoads, match=r"^[^\n]*holds 3 checkpoints of which none loads [^\n]*$"):
        runner.resume()
    assert files(tmp_path) == before


def test_learners_that_cannot_be_restored_go_on_from_an_earlier_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    played(tmp_path, 3, Interrupted("never", 1))
    fake = Restoring(2)
    played(tmp_path, 3, fake)
    assert fake.asked == [2, 1]
    assert "checkpoint 2 is not used: learner 0 cannot be restored: index_2.json is missing" in caplog.text
    assert "the run goes on from checkpoint 1, the newest one that loads" in caplog.text
    with pytest.raises(NoCheckpointLoads, match=r"learner 0 cannot be restored"):
        played(tmp_path, 4, Restoring(0, 1, 2))


@pytest.mark.parametrize("call", ["start", "put_states"])
def test_what_says_nothing_against_a_checkpoint_does_not_lead_to_an_earlier_one(tmp_path: Path, call: str) -> None:
    """A disk that is full, processes that cannot be started."""
    played(tmp_path, 3, Interrupted("never", 1))
    before = files(tmp_path / "checkpoints")
    fake = Restoring()

    def fails(*where: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")

    setattr(fake, call, fails)
    with pytest.raises(OSError, match="No space left on device"):
        played(tmp_path, 4, fake)
    assert fake.asked == []
    assert files(tmp_path / "checkpoints") == before


def test_a_checkpoint_that_does_not_fit_onto_the_disk_leaves_no_learners_state(tmp_path: Path) -> None:
    class Full(Interrupted):
        dropped: list[tuple[object, ...]] = []

        def save(self, directory: Path, iteration: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "learner_1.0.npz")

        def drop_states(self, *where: object) -> None:
            self.dropped.append(where)

    fake = Full("never", 1)
    with pytest.raises(OSError, match="No space left on device"):
        played(tmp_path, 3, fake)
    assert fake.dropped == [(tmp_path / "checkpoints", 0)]


def test_another_number_of_learners_is_refused_with_both_numbers_and_the_key(tmp_path: Path) -> None:
    played(tmp_path, 1, Interrupted("never", 1))  # whose one learner is saved
    before = files(tmp_path)
    runner = build(tmp_path, "AsyncRunner.learners = 3")
    message = r"^AsyncRunner.learners must be 1, .* got 3: bind AsyncRunner.learners = 1, or choose another base_dir$"
    with pytest.raises(DifferentExperiment, match=message):
        runner.resume()
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("AsyncRunner.workers = -1", r"^workers must be a whole number between 0 and 1,000,000, got -1"),
        ("AsyncRunner.backend = 'thread'", r"^learners=1 need backend='process', got backend='thread'"),
        ("AsyncRunner.default_action = 5", r"^default_action must be one of .*, got 5"),
        ("AsyncRunner.pause_action = 'rest'", r"^pause_action must be one of"),
        ("AsyncRunner.pause_action = 7", r"^pause_action must be one of .*, got 7"),
        (
            "LiveRunner.create_async_runner_fn = 3",
            r"^LiveRunner.create_async_runner_fn must .*@AsyncRunner.* got 3\n",
        ),
    ],
)
def test_wrong_arguments_of_the_async_runner_are_refused_before_the_run(
    tmp_path: Path, binding: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(tmp_path, binding)
    assert not list(tmp_path.iterdir())


def test_realtime_scheduling_without_a_right_or_a_core_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("async_wrappers.live.world.realtime.may_schedule", lambda priority: False)
    for binding, message in (("Realtime.core = 9999", "core must be one"), ("Realtime.lock = False", "realtime needs")):
        runner = build(tmp_path, "AsyncRunner.realtime = @Realtime()", binding)  # to be looked at, elsewhere too
        with pytest.raises(ValueError, match=message):
            runner.resume()


@pytest.mark.usefixtures("children_of_a_server")
def test_evaluation_needs_the_weights_alone(tmp_path: Path) -> None:
    """Not the replays, which a run may be deleting meanwhile, nor as many learners, nor a place in base_dir."""
    quick = ("Runner.training_steps = 60", "Runner.evaluation_steps = 0", "Runner.num_iterations = 1")
    build(tmp_path, *quick, "AsyncRunner.learners = 2").run_experiment()
    for number in range(2):
        shutil.rmtree(tmp_path / "checkpoints" / f"replay_{number}")
    runner = build(tmp_path, "AsyncRunner.learners = 3")
    agent = runner.trained_agent()
    before = files(tmp_path)
    made = runner.play.create_async_runner
    directories: list[Path] = []

    def noting(*parts: object, **terms: object) -> AsyncRunner:
        live: AsyncRunner = made(*parts, **terms)
        put_states = live.put_states
        live.put_states = lambda where, *what: (directories.append(Path(where)), put_states(where, *what))  # type: ignore[method-assign]
        return live

    runner.play.create_async_runner = noting
    assert len(runner.evaluation(agent, 2)) == 2
    assert files(tmp_path) == before
    assert [tmp_path in (each, *each.parents) or each.exists() for each in directories] == [False]


@pytest.mark.usefixtures("children_of_a_server")
def test_a_segment_whose_content_is_damaged_leads_to_the_checkpoint_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Which only the learner's process finds, as it reads it."""
    quick = ("AsyncRunner.fps = 50", "Runner.training_steps = 60", "Runner.evaluation_steps = 0")
    build(tmp_path, *quick, "Runner.num_iterations = 2").run_experiment()
    replay = tmp_path / "checkpoints" / "replay_0"
    newest_one = replay / read_index(replay, 1)[0][-1].name
    content = bytearray(newest_one.read_bytes())
    content[content.index(b"\n", content.index(b"NUMPY")) + 1] ^= 255
    newest_one.write_bytes(content)
    build(tmp_path, *quick, "Runner.num_iterations = 3").run_experiment()
    assert f"checkpoint 1 is not used: learner 0 cannot be restored: {newest_one.name} in " in caplog.text
    assert "the run goes on from checkpoint 0, the newest one that loads" in caplog.text
    assert [line["iteration"] for line in newest(tmp_path)["logs"]] == [0, 1, 2]


class Winning(Interrupted):
    """A runner whose phases pass an encounter each, one of two lost; it keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__("never", 1)
        self.asked: list[dict] = []

    def run(self, **phase: object) -> TimingReport:
        self.asked.append(phase)
        encounter = phase["phase_state"]
        assert isinstance(encounter, int)
        episodes = [EpisodeTiming(1.0, 100, won=True), EpisodeTiming(-1.0, 200, won=False)]
        record = Measurements(50.0, 1, episodes=episodes, effects=[[(0, 2)] * 60, [(0, 2)] * 90], lateness=[0] * 300)
        on_frame, before = phase["on_frame"], phase["frames_before"]
        for frame in range(before, before + 300) if callable(on_frame) else ():
            status = SimpleNamespace(
                frame=frame, score=0.5, episodes=0, wins=0, losses=0, actions=40, updates=20, phase_state=encounter
            )
            record.notes += [(frame, note)] if (note := on_frame(status)) is not None else []
        record.phase_state, record.updates = encounter + 1, 75
        return record.report()


def test_encounters_go_on_in_each_phase_and_the_standing_counts_all_iterations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = Winning()
    for iterations in (1, 2):
        runner = build(tmp_path, f"Runner.num_iterations = {iterations}", "LiveRunner.standing_at = 350")
        runner.counts.encounters = dict.fromkeys(Phase, 1)  # as of an environment that has an order of them
        runner.resume()
        runner.play.create_async_runner = lambda *parts, **terms: played
        runner.run_experiment()
    assert [asked["phase_state"] for asked in played.asked] == [1, 1, 2, 2]  # of training, of evaluation
    assert [asked["on_frame"] is None for asked in played.asked] == [False, True, False, True]
    first, second = newest(tmp_path)["logs"]
    for line in (first, second):
        assert (line["train_wins"], line["train_losses"]) == (1, 1)
        assert (line["train_actions_per_frame"], line["train_updates_per_action"]) == (0.5, 0.5)
    assert (first["train_encounter"], second["train_encounter"]) == (2, 3)
    told = capsys.readouterr().out
    standing = "at 350 frames: 2 episodes, 1 wins, 1 losses, at encounter 2, return 0.5 in the running episode, "
    assert standing + "190 actions, 95 updates" in told
    assert closing_line(runner.history) == (
        "training: 4 episodes, 600 frames; 2 wins, 2 losses; at encounter 3; "
        "0.500 actions per frame, 0.500 updates per action"
    )


@pytest.mark.slow
def test_a_live_run_that_is_continued_goes_on_with_its_encounter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    duels = (
        "create_gym_environment.environment_id = 'tests.worlds.duels_env:Duels-v0'",
        "Runner.training_steps = 40",  # frames, ten duels
        "Runner.evaluation_steps = 0",
        "LiveRunner.standing_at = 42",
    )
    passed = 0
    for iteration in range(2):
        runner = build(tmp_path, *duels, f"Runner.num_iterations = {iteration + 1}")
        runner.resume()
        runner.run_experiment()
        won = [won_by(environment_seed(0, Phase.TRAIN, 10 * iteration + number)) for number in range(10)]
        passed += won.count(True)
        line = newest(tmp_path)["logs"][iteration]
        assert line["train_episode_lengths"] == [FRAMES] * 10
        assert (line["train_wins"], line["train_losses"]) == (won.count(True), won.count(False))
        assert line["train_encounter"] == 1 + passed
        assert newest(tmp_path)["encounters"] == {"TRAIN": 1 + passed, "EVAL": 1, "FINAL": 1}
    told = json.loads((tmp_path / "timing" / "train.1.json").read_text())
    ((frame, standing),) = told["notes"]
    assert (told["phase_state"], frame, standing["frame"], standing["episodes"]) == (1 + passed, 42, 42, 0)
    assert "at 42 frames: 10 episodes, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (
            ("create_gym_environment.wrappers = [@RealtimeDelay]", "RealtimeDelay.default_action = 'repeat'"),
            "RealtimeDelay",
        ),
        (("create_agent.agent_name = 'random'",), "an agent that learns"),
        (("create_agent.agent_name = 'jsrl_dqn'",), "agent 'jsrl_dqn' must learn from its teacher's labels alone"),
        (("Runner.report_episodes = 3",), "report_episodes must be 0"),
        (
            ("DQNAgent.num_updates_per_train_step = 2",),
            "num_updates_per_train_step must be 1 where create",
        ),
        (("DQNAgent.stack_size = 4", "AsyncRunner.stack_size = 4"), r"^AsyncRunner.stack_size must not be bound where"),
        (("AsyncRunner.seed = 3",), r"^AsyncRunner.seed must not be bound where .*, got 3: bind Runner.seed\n"),
        (
            ("AsyncRunner.make_learner = @create_agent",),
            r"^AsyncRunner.make_learner must not be bound where .*, got @create_agent: leave it out.* its own\n",
        ),
    ],
)
def test_what_cannot_be_played_live_is_refused(tmp_path: Path, bindings: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(tmp_path, *bindings)


def test_a_turn_based_experiment_is_not_continued_live(tmp_path: Path) -> None:
    runner = build(tmp_path)
    bundle = {
        "identity": runner.identity(),
        "current_iteration": 0,
        "agent": {},
        "episodes": {},
        "frames": 0,
        "logs": [],
    }
    Checkpointer(tmp_path).save(0, bundle)
    with pytest.raises(DifferentExperiment, match="turn-based"):
        runner.resume()
    with pytest.raises(DifferentExperiment, match="turn-based"):
        runner.trained_agent()


def test_a_live_evaluation_cannot_be_recorded(tmp_path: Path) -> None:
    runner = build(tmp_path)
    with pytest.raises(ValueError, match=r"^no video can be made where create_runner.schedule = 'realtime'"):
        runner.evaluation(runner.agent, 1, tmp_path / "videos")


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupt_while_the_parts_are_being_started_does_not_start_them_again(tmp_path: Path, after: int) -> None:
    """In the first iteration, and in a continued run's; there is nothing to save that the last checkpoint has not."""
    made: list[Starting] = []

    class Starting(Interrupted):
        is_open, pace = False, 50.0

        def start(self) -> None:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        def save(self, *where: object) -> None:
            raise AssertionError("it would start everything to save what nobody has learnt")

    def make(*parts: object, **terms: object) -> Starting:
        made.append(Starting("run", 1))
        return made[-1]

    if after:
        runner = faked(tmp_path, 1, Interrupted("never", 1))
        runner.run_experiment()
    runner = build(tmp_path, "Runner.num_iterations = 3")
    runner.play.create_async_runner = make
    with pytest.raises(KeyboardInterrupt):
        runner.run_experiment()
    assert len(made) == 1
    assert Checkpointer(tmp_path).numbers() == list(range(after))


def shared_memory() -> set[str]:
    """Name what lies in /dev/shm, but for the semaphores of tests that run beside this one: a run has none."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.mp-")}


def test_an_environment_killed_in_a_live_run_ends_it_with_a_sentence_and_its_last_checkpoint(tmp_path: Path) -> None:
    shared = shared_memory()
    bindings = [*QUICK_LIVE, "Runner.num_iterations = 100_000", "Runner.training_steps = 50"]
    command = [sys.executable, "train.py", "--base_dir", str(tmp_path), "--gin_files", "configs/live/cartpole.gin"]
    command += bound(*bindings)
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("iteration 0") for line in process.stdout)
        children = psutil.Process(process.pid).children(recursive=True)
        (environment,) = (child for child in children if "spawn_main" in " ".join(child.cmdline()))
        environment.kill()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1
        last = "train.py: the environment was ended by SIGKILL (exit code -9), as the system does where memory runs out"
        assert err.splitlines()[-1] == last
        assert "Traceback" not in err
        _, alive = psutil.wait_procs(children, 60)
        assert alive == []
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    numbers = Checkpointer(tmp_path).numbers()
    assert 0 in numbers
    assert [number for number, _ in Checkpointer(tmp_path).load_each()] == numbers
    assert shared_memory() - shared == set()


class Ageing(Interrupted):
    """A runner whose phases have ages and ratios, and, from the n-th on, an end of their own."""

    def __init__(self, stops_at: int = 100) -> None:
        super().__init__("never", 1)
        self._phases, self._stops_at = 0, stops_at

    def run(self, **phase: object) -> TimingReport:
        self._phases += 1
        record = Measurements(50.0, 1, episodes=[EpisodeTiming(9.0, 300)], effects=[[(0, 2), (1, 5)]], lags=[3, 4])
        record.note_learning([([1, 1], {"Rho": 2.0}, {"Rho": 1.5, "KL": 0.25}), ([1], {}, {"Rho": 3.0, "KL": 0.25})])
        record.lateness = [0] * 300
        record.too_old = 7
        if self._phases >= self._stops_at:
            record.reason = "no action for 9 frames in a row"
            record.episodes, record.effects = [*record.episodes, EpisodeTiming(1.0, 40)], [*record.effects, []]
        return record.report()


def test_both_ages_and_how_far_off_the_policy_was_are_in_a_runs_metrics_and_in_tensorboard(tmp_path: Path) -> None:
    played(tmp_path, 1, Ageing())
    (line,) = newest(tmp_path)["logs"]
    expected = {"delay_frames": 3.0, "lag_updates": 3.5, "rho": 2.0, "kl": 0.25}
    assert {name: line[f"train_{name}"] for name in expected} == expected
    assert {name: line[f"eval_{name}"] for name in expected} == expected
    events = EventAccumulator(str(tmp_path / "metrics" / "tensorboard"))
    events.Reload()
    shown = {
        name: events.Scalars(f"TrainTiming/{name}")[0].value for name in ("DelayFrames", "LagUpdates", "Rho", "KL")
    }
    assert shown == {"DelayFrames": 3.0, "LagUpdates": 3.5, "Rho": 2.0, "KL": 0.25}
    assert events.Scalars("TrainTiming/TooOld")[0].value == 7
    timing = json.loads((tmp_path / "timing" / "train.0.json").read_text())
    assert timing["off_policy"] == {"Rho": 2.0, "KL": 0.25}


def test_a_run_that_the_game_ends_leaves_a_checkpoint_and_the_reason_and_goes_on(tmp_path: Path) -> None:
    runner = faked(tmp_path, 3, Ageing(stops_at=3))
    with pytest.raises(RunStopped, match=r"^the train phase ended after 340 frames: no action for 9 frames"):
        runner.run_experiment()
    assert (newest(tmp_path)["current_iteration"], newest(tmp_path)["cut_frames"]) == (0, 40)
    assert json.loads((tmp_path / "timing" / "train.1.json").read_text())["stopped"].startswith("no action")
    played(tmp_path, 3, Ageing())
    assert [line["iteration"] for line in newest(tmp_path)["logs"]] == [0, 1, 2]


def test_the_rate_of_a_progress_line_is_that_of_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starting up and warm-up, here 22 seconds before a phase of 450 frames at 50 frames/s, are no time of play."""
    runner: Any = build(tmp_path)
    now = [0.0]
    progress = Progress(0, 1, clock=lambda: now[0], every=30.0)
    runner.shown = PhasesShown(progress)
    started: list[bool] = []
    runner.play.live = SimpleNamespace(pace=50.0, is_open=False, start=lambda: started.append(True))
    told: list[Any] = []
    monkeypatch.setattr(progress, "while_waiting", lambda after: told.append(after) or nullcontext())
    with runner.shown.iteration(0, {Phase.TRAIN: Length(450, None)}):
        shown_by_the_clock(runner, runner.play.live, Phase.TRAIN, Length(450, None), 0.0)
        assert started == [True]
        for seconds, frames in [(31.0, 450), (8.0, 400)]:
            now[0] += 31.0
            share, done, taken = told[0](seconds)
            progress.update(share, done, seconds=taken)
            assert f": {frames} of 450 frames, 50 frames/s" in capsys.readouterr().err
