"""How far a run says that it is."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from async_wrappers import RealtimeDelay
from async_wrappers.agents.experiment import experiment as runner_module
from async_wrappers.agents.experiment import progress as progress_module
from async_wrappers.agents.experiment.metrics import ProgressFile
from async_wrappers.agents.experiment.progress import PhasesShown, Progress, nothing_landed
from async_wrappers.agents.play.play import Length, Phase
from async_wrappers.agents.sweep.running import progress_of
from async_wrappers.agents.timing import duration
from tests.worlds.agents import make_dqn
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.experiments import experiment


class Clock:
    """Time that passes when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_log_has_a_line_every_30_seconds_and_no_more(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(0, 2, clock=clock)
    with progress.iteration(0, 2000):
        for second in range(1, 61):
            clock.now += 1
            progress.update(second / 80, 25 * second, f"last return {second}")
    assert capsys.readouterr().err.splitlines() == [
        # 30 of 80 seconds of the first iteration; the second takes 80 as well
        "iteration 0 (1 of 2): 750 of 2,000 frames, last return 30, 25 frames/s, about 2 min left",
        "iteration 0 (1 of 2): 1,500 of 2,000 frames, last return 60, 25 frames/s, about 100 s left",
    ]


def test_what_is_left_counts_this_runs_iterations_alone(clock: Clock) -> None:
    progress = Progress(7, 10, clock=clock)
    assert progress.left() == ""
    with progress.iteration(7, 100):
        clock.now += 60
    assert progress.done() == "8 of 10 done, about 2 min left"
    with progress.iteration(8, 100):
        clock.now += 20
    assert progress.done() == "9 of 10 done, about 40 s left"
    with progress.iteration(9, 100):
        pass
    assert progress.done() == "10 of 10 done"


def test_what_an_earlier_process_has_played_is_no_pace_of_this_one(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(3, 5, clock=clock)
    shown = PhasesShown(progress)
    with shown.iteration(3, {Phase.TRAIN: Length(800, None), Phase.EVAL: Length(200, None)}):
        shown.note(Phase.TRAIN, 4, 600)
        clock.now += 10
        shown.tell(Phase.TRAIN, 1, 200)  # 20 frames a second
        shown.note(Phase.EVAL, 0, 0)
        clock.now += 20
        shown.tell(Phase.EVAL, 1, 40)  # 2 frames a second
    assert capsys.readouterr().err == ("iteration 3 (4 of 5): 840 of 1,000 frames, 8 frames/s, about 2 min left\n")


def test_the_file_of_a_sweep_does_not_call_an_iteration_slow_that_has_just_begun(clock: Clock, tmp_path: Path) -> None:
    progress = Progress(0, 2, file=ProgressFile(tmp_path, clock), clock=clock)
    with progress.iteration(0, 2000):
        clock.now += 40
        progress.update(1.0, 2000)
    with progress.iteration(1, 2000):
        clock.now += 8
        progress.update(0.01, 16)
    assert progress_of(tmp_path)["rate"] == 2016 / 48


def test_a_rate_of_less_than_a_frame_a_second_is_no_zero(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(0, 2, clock=clock)
    with progress.iteration(0, 0):
        clock.now += 120
        progress.update(0.0, 10)
    assert capsys.readouterr().err == "iteration 0 (1 of 2): 10 frames, 0.083 frames/s\n"


@pytest.mark.parametrize("first", [0, 4])
def test_a_run_says_after_three_seconds_what_it_expects(
    clock: Clock, capsys: pytest.CaptureFixture[str], first: int
) -> None:
    progress = Progress(first, first + 2, clock=clock)
    with progress.iteration(first, 2000):
        clock.now += 9  # until the first frame; starting takes no part in the rate
        for second in range(60):
            progress.update(second / 80, 25 * second, f"last return {second}")
            assert capsys.readouterr().out == ("expected: about 3 min, at 25 frames/s so far\n" if second == 3 else "")
            clock.now += 1


def test_what_is_expected_is_said_again_when_learning_makes_it_slower(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt, told = False, []
    progress = Progress(0, 2, learnt=lambda: learnt, clock=clock)
    frames = 0
    for number in range(2):
        with progress.iteration(number, 1000):
            for frames in range(100, 1100, 100):
                learnt = learnt or (number == 0 and frames > 500)
                clock.now += 10 if learnt else 1
                progress.update(frames / 1000, frames)
                told.append(capsys.readouterr().out)
    assert {frame: line for frame, line in enumerate(told, 1) if line} == {
        4: "expected: about 16 s, at 100 frames/s so far, before the first update; updates take longer\n",
        7: "expected: about 2 min, at 10 frames/s so far\n",
    }


def test_a_game_that_does_not_wait_is_not_said_to_become_slower(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(0, 10, learnt=lambda: False, clock=clock)
    with progress.iteration(0, 6000):
        for second in range(4):
            progress.update(second / 100, 60 * second, seconds=float(second))
            clock.now += 1
    assert capsys.readouterr().out == "expected: about 17 min, at 60 frames/s so far\n"


def test_work_that_is_counted_in_episodes_is_expected_when_the_first_has_ended(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(0, 1, clock=clock)
    with progress.iteration(0, 0):
        for second in range(60):
            progress.update(0.5 if second >= 30 else 0.0, 20 * second)
            said = {
                3: "not known before an episode ends, at 20 frames/s so far",
                30: "about 30 s, at 20 frames/s so far",
            }
            assert capsys.readouterr().out == (f"expected: {said[second]}\n" if second in said else "")
            clock.now += 1


def test_a_terminal_has_a_bar_and_no_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    progress = Progress(2, 10, clock=clock)
    with progress.iteration(2, 2000):
        clock.now += 60
        progress.update(0.5, 1000, "last return 12")
    assert "iteration 2 (3 of 10)" in shown.getvalue() and "about 15 min left" in shown.getvalue()
    assert "1,000 of 2,000" not in shown.getvalue()


def test_a_block_that_says_nothing_is_spoken_for(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()

    def told(seconds: float) -> tuple[float, int, float]:
        clock.now += 5
        asked.set()
        return 0.25, 500, 8.0

    progress = Progress(0, 1, clock=clock, every=0.01)
    with progress.iteration(0, 2000), progress.while_waiting(told):
        assert asked.wait(timeout=60)
    assert "iteration 0 (1 of 1): 500 of 2,000 frames, 62 frames/s" in capsys.readouterr().err
    assert "progress" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("phase", ["training", "evaluation"])
def test_a_run_has_lines_during_a_long_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    monkeypatch.setattr(runner_module, "Progress", partial(Progress, every=0.01))
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    frames = 5 if phase == "training" else 15

    class Slow(DriftingEnv):
        def step(self, action: Any) -> Any:
            if sum(len(life.actions) for life in self.lives) == frames:
                deadline = time.monotonic() + 60
                while f"{frames} of 20 frames" not in shown.getvalue() and time.monotonic() < deadline:
                    time.sleep(0.01)
            return super().step(action)

    each = {"num_iterations": 1, "training_steps": 10, "evaluation_steps": 10}
    experiment(tmp_path, partial(Slow, lengths=[10]), make_dqn, **each).run_experiment()
    assert f"iteration 0 (1 of 1): {frames} of 20 frames" in shown.getvalue()
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_a_run_says_what_it_expects_before_its_first_episode_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "AFTER", 0.01)
    monkeypatch.setattr(runner_module, "Progress", partial(Progress, every=0.01))
    told = list[str]()

    class Slow(DriftingEnv):
        def step(self, action: Any) -> Any:
            if not told:
                time.sleep(0.01)
                told.extend(line for line in capsys.readouterr().out.splitlines() if line.startswith("expected: "))
                assert len(self.lives) == 1, "the first episode is over"
            return super().step(action)

    each = {"num_iterations": 2, "training_steps": 400, "evaluation_steps": 0, "max_steps_per_episode": 400}
    experiment(tmp_path, partial(Slow, lengths=[400]), make_dqn, **each, report_episodes=1).run_experiment()
    assert re.match(r"expected: about [^,]+, without the closing table, at .+ frames/s so far", told[0])


def test_a_run_that_is_counted_in_episodes_says_what_it_expects_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "AFTER", 0.0)
    each = {"num_iterations": 2, "training_episodes": 9, "evaluation_steps": 0, "report_episodes": 0}
    experiment(tmp_path, partial(DriftingEnv, lengths=[40]), make_dqn, **each).run_experiment()
    assert re.search(r"^expected: about \d+ s, at .+ frames/s so far", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("lengths", "shares"),
    [
        ({"training_steps": 20, "evaluation_steps": 20}, [0.25, 0.5, 0.75, 1.0]),
        ({"training_steps": 25, "evaluation_steps": 10}, [10 / 35, 20 / 35, 25 / 35, 1.0]),
        ({"training_episodes": 2, "evaluation_steps": 0}, [0.5, 1.0]),
        # a phase by episodes and one by frames: half of the work each
        ({"training_episodes": 4, "evaluation_steps": 20}, [0.125, 0.25, 0.375, 0.5, 0.75, 1.0]),
    ],
    ids=str,
)
def test_a_run_says_what_share_of_an_iteration_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: dict[str, Any], shares: list[float]
) -> None:
    told = list[float]()
    monkeypatch.setattr(Progress, "update", lambda self, share, *_: told.append(share))
    make_environment = partial(DriftingEnv, lengths=[10])
    experiment(tmp_path, make_environment, make_dqn, num_iterations=1, **lengths).run_experiment()
    assert told == pytest.approx(shares)


def test_each_iteration_has_a_line_with_their_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = {"num_iterations": 3, "training_steps": 20, "evaluation_steps": 0}
    experiment(tmp_path, DriftingEnv, make_dqn, **short).run_experiment()
    # Where the machine is busy a run of 60 frames may last long enough to say what it expects.
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("expected: ")]
    assert [line.rpartition("; ")[2].split(",")[0] for line in lines] == [f"{n} of 3 done" for n in (1, 2, 3)]
    assert re.search(r"frames/s; 2 of 3 done, about \d+ s left$", lines[1])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(119, "119 s"), (7100, "118 min"), (7300, "2 h"), (55_000_000, "637 days")],
)
def test_a_time_has_a_unit_that_can_be_read(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_delay_longer_than_the_episodes_is_a_warning_in_the_first_summary() -> None:
    line: dict[str, Any] = {"train_episode_lengths": [10, 9, 11], "train_actions": 0}
    line |= {"eval_episode_lengths": [1_000], "eval_actions": 0}
    offline = {"phase": "offline", "train_updates": 9}
    warning = nothing_landed([offline, line], "600 frames")
    assert warning.startswith("WARNING: no action of the agent's has landed in 1,030 frames: each of 4 episodes ended ")
    assert "the longest after 1,000 frames (delay: 600 frames)" in warning
    assert not nothing_landed([line, line], "600 frames")
    assert not nothing_landed([line | {"eval_actions": 1}], "600 frames")
    assert not nothing_landed([line | {"train_episode_lengths": [], "eval_episode_lengths": []}], "600 frames")
    assert not nothing_landed([offline], "600 frames")


def test_a_run_under_a_delay_longer_than_its_episodes_warns_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make_environment() -> Any:
        return RealtimeDelay(DriftingEnv(lengths=[9]), 12, default_action="repeat")

    each = {"num_iterations": 2, "training_steps": 20, "evaluation_steps": 0, "report_episodes": 0}
    experiment(tmp_path, make_environment, make_dqn, **each).run_experiment()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WARNING")]
    assert len(lines) == 1 and "each of 3 episodes ended before its first one" in lines[0]
    assert "(delay: 12 frames)" in lines[0]
