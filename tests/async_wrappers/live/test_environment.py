"""The runner refuses environments that tell of a delay which is not its own."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.wrappers import TimeLimit

from async_wrappers import AppliedActions, AsyncRunner, CommittedActions, DecisionDelay, RealtimeDelay
from tests.worlds.recording_env import RecordingEnv


def runner(wrapper: Any, **arguments: Any) -> AsyncRunner:
    """Return a runner of an environment that has `wrapper` between others."""

    def make_env() -> Any:
        return TimeLimit(wrapper(TimeLimit(RealtimeDelay(RecordingEnv(20), delay=2), 50), **arguments), 40)

    return AsyncRunner(make_env, lambda: lambda observation: 0, workers=2, fps=50, backend="virtual", latency=0.05)


def test_actions_in_flight_that_no_worker_can_know_are_refused_with_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"^make_env .* CommittedActions\(known=False\) .*cannot know .*: leave it out"
    ):
        runner(CommittedActions, known=False)


@pytest.mark.parametrize("wrapper", [CommittedActions, DecisionDelay])
def test_what_a_wrapper_tells_of_another_delay_is_refused_with_the_remedy(wrapper: Any) -> None:
    name = wrapper.__name__
    with pytest.raises(ValueError, match=rf"^make_env must not use {name} in AsyncRunner, .*: leave {name} and "):
        runner(wrapper)


def test_the_actions_that_the_environment_received_are_shown_in_the_runner() -> None:
    seen = []

    def policy(observation: Any) -> int:
        seen.append(observation["applied_actions"].copy())
        return 3

    make_env = lambda: AppliedActions(RecordingEnv(20), length=2)  # noqa: E731
    AsyncRunner(make_env, lambda: policy, workers=2, fps=50, backend="virtual", latency=0.05).run(episodes=1)
    assert seen[0].tolist() == [[0] * 5] * 2
    assert seen[-1].any()
