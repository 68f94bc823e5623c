"""What the virtual clock predicts, a real one does: constant latency, a frame of slack in the playout."""

from __future__ import annotations

import time
from typing import Any

import pytest

from async_wrappers import AsyncRunner
from async_wrappers.live.report.report import TimingReport
from tests.worlds.recording_env import RecordingEnv

LATENCY, FPS, FRAMES = 0.070, 20, 60  # an inference takes 1.4 frames of 50 ms


class Sleeper:
    """Sleeps to the absolute end of its inference."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def act(self, observation: Any, decision: Any) -> int:
        end = time.monotonic() + self._seconds
        while (rest := end - time.monotonic()) > 0:
            time.sleep(rest)
        return 1


def play(backend: str, seconds: float, workers: int, slot: int) -> TimingReport:
    terms: dict[str, Any] = {"playout": 3, "slot": slot, "backend": backend, "latency": LATENCY}
    runner = AsyncRunner(lambda: RecordingEnv(FRAMES), lambda: Sleeper(seconds), workers, FPS, **terms)
    return runner.run(episodes=1)


@pytest.mark.filterwarnings("ignore:workers=")
@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.parametrize(("workers", "slot"), [(4, 1), (2, 2)])
def test_the_decision_stream_is_the_predicted_one_but_for_late_actions(backend: str, workers: int, slot: int) -> None:
    predicted = [
        (span.start, span.effect) for span in play("virtual", 0.0, workers, slot).spans if span.applied is not None
    ]
    report = play(backend, LATENCY, workers, slot)
    real = [(span.start, span.effect) for span in report.spans if span.applied is not None]
    late = report.frames["late_actions"] + report.frames["dropped_actions"] + report.frames["missed_deadlines"]
    assert len(predicted) == len(range(0, FRAMES - 3, slot))
    assert len(set(real) ^ set(predicted)) <= 2 * workers * late
    assert late <= FRAMES // 4  # else the machine was too busy to tell
