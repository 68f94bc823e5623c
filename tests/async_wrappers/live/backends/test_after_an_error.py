"""The virtual clock after an error, at the end of an episode, and what a run keeps of phase states and notes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import AsyncRunner, RealtimeDelay
from async_wrappers.latency import LogNormal
from async_wrappers.live import Decision, RunFailed
from async_wrappers.live.loop.loop import episode_seed
from tests.worlds.learners import Writing


class Raising:
    """Raises once, in the middle of an episode."""

    def __init__(self, raises: bool) -> None:
        self._raises = [raises]

    def act(self, observation: Any, decision: Decision) -> int:
        if self._raises[0] and decision.start == 12:
            self._raises[0] = False
            raise RuntimeError("once")
        return int(observation[2] > 0)


@pytest.mark.parametrize("stagger", ["tickets", "none", "sequential", "max_time"])
def test_a_run_after_one_that_raised_plays_as_a_fresh_one(stagger: str) -> None:
    runs = []
    for raises in (True, False):
        policy = Raising(raises)
        runner = AsyncRunner(
            lambda: gym.make("CartPole-v1"),
            lambda policy=policy: policy,
            3,
            50,
            stagger,
            backend="virtual",
            latency=0.05,
            default_action="repeat",
        )
        if raises:
            with pytest.raises(RuntimeError, match="once"):
                runner.run(episodes=3)
        report = runner.run(episodes=3)
        runs.append((report.frames, report.delay_frames, [episode.score for episode in report.episodes]))
    assert runs[0] == runs[1]


class Numbers(gym.Env[Any, Any]):
    """Observes its frame, and is truncated after a number of frames."""

    observation_space = gym.spaces.Box(0, 1e6, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self._length, self._frame = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._frame = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._frame += 1
        return self._observation(), 1.0, False, self._frame == self._length, {}

    def _observation(self) -> Any:
        return np.array([self._frame], np.float32)


class One:
    def act(self, observation: Any, decision: Decision) -> int:
        return 1

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        pass


@pytest.mark.parametrize("stagger", ["tickets", "none", "max_time", "expected_time"])
@pytest.mark.parametrize("length", range(20, 32))
def test_learners_bootstrap_on_the_final_observation_of_the_simulated_delay(stagger: str, length: int) -> None:
    terms: dict[str, Any] = {"latency": LogNormal(mean=0.06, cv=0.8), "workers": 4, "fps": 50, "stagger": stagger}
    learner = Writing()
    given: dict[str, Any] = {"backend": "virtual", "make_learner": lambda: learner, "learner_latency": 0.01}
    given |= {"default_action": 0}
    runner = AsyncRunner(lambda: Numbers(length), One, **given, **terms)
    with runner:
        runner.run(episodes=1)
        runner.run(frames=5)  # a transition is observed when its successor is complete
    ends = [transition for transition in learner.seen if transition["truncated"]]
    env = RealtimeDelay(Numbers(length), default_action=0, **terms)
    env.reset(seed=episode_seed(0, 0, 0))
    truncated = False
    while not truncated:
        observation, _, _, truncated, info = env.step(1)
    assert info["realtime"]["applied"] and len(ends) == 1
    assert ends[0]["next_observation"].tolist() == observation.tolist()


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    """Counts its frames in a state that it changes in place."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.phase_state: Any = {"frames": 0}

    def step(self, action: Any) -> Any:
        self.phase_state["frames"] += 1
        return super().step(action)


def virtual(**terms: Any) -> AsyncRunner:
    return AsyncRunner(
        lambda: Counted(gym.make("CartPole-v1")), One, 2, 50, backend="virtual", latency=0.05, default_action=0, **terms
    )


def test_a_report_keeps_the_phase_state_of_its_end() -> None:
    runner = virtual()
    given = {"frames": 100}
    first = runner.run(frames=5, phase_state=given)
    second = runner.run(frames=5, eval_mode=True)
    assert (first.phase_state, second.phase_state, given) == ({"frames": 105}, {"frames": 110}, {"frames": 100})


def test_notes_are_plain_data(tmp_path: Path) -> None:
    report = virtual().run(frames=3, on_frame=lambda status: (np.int64(status.frame), "x"))
    assert [note for _, note in report.notes] == [(0, "x"), (1, "x"), (2, "x")]
    report.to_json(tmp_path / "report.json")
    with pytest.raises(ValueError, match=r"^the note of on_frame must be plain data .*, got \{1\}"):
        virtual().run(frames=3, on_frame=lambda status: {1})
    with pytest.raises(ValueError, match=r"^phase_state must be plain data "):
        virtual().run(frames=3, phase_state=object())


def learning(make_learner: Any) -> AsyncRunner:
    terms: dict[str, Any] = {"latency": 0.05, "learner_latency": 0.01, "default_action": 0}
    return AsyncRunner(
        lambda: gym.make("CartPole-v1"), One, 2, 50, backend="virtual", make_learner=make_learner, **terms
    )


def test_a_wrong_argument_leaves_the_learners_as_they_are(tmp_path: Path) -> None:
    learner = Writing()
    runner = learning(lambda: learner)
    runner.run(frames=30)
    observed = len(learner.seen)
    with pytest.raises(ValueError, match=r"^phase_state must be None for an environment that has no attribute"):
        runner.run(frames=5, phase_state=3)
    assert runner.is_open
    runner.save(tmp_path)
    assert len(learner.seen) >= observed > 0


def test_after_an_error_nobody_goes_on_with_new_learners_unasked(tmp_path: Path) -> None:
    runner = learning(Writing)
    runner.save(tmp_path)

    def fail(status: Any) -> None:
        if status.frame == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runner.run(frames=30, on_frame=fail)
    for going_on in (lambda: runner.run(frames=5), lambda: runner.save(tmp_path)):
        with pytest.raises(RunFailed, match=r"^the learners ended with the error before: call restore\(directory\) or"):
            going_on()
    runner.restore(tmp_path)
    runner.run(frames=5)
