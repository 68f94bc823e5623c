"""The runner refuses environments that tell of a delay which is not its own."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TimeLimit

from async_wrappers import AppliedActions, AsyncRunner, ClipReward, CommittedActions, DecisionDelay, RealtimeDelay
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.play.turns.turns import play_episode
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


class Rich(gym.Env[Any, Any]):
    """Ten frames, each of which pays 100."""

    observation_space, action_space = Discrete(11), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.frame = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.frame += 1
        return self.frame, 100.0, self.frame == 10, False, {}


@pytest.mark.parametrize("backend", ["virtual", "thread"])
def test_report_and_running_score_are_unclipped_where_rewards_are_clipped(backend: str) -> None:
    running = []
    terms: dict[str, Any] = {"workers": 1, "fps": 200, "backend": backend, "default_action": lambda *seen: 0}
    terms |= {"latency": 0.02}
    runner = AsyncRunner(lambda: ClipReward(Rich()), lambda: lambda observation: 0, **terms)
    report = runner.run(episodes=2, on_frame=lambda status: running.append(status.score))
    assert [episode.score for episode in report.episodes] == [1000.0, 1000.0]
    assert report.to_dict()["episodes"][0] == {"return": 1000.0, "frames": 10}
    assert running == [100.0 * frame for frame in range(10)] * 2
    in_turn = play_episode(RandomAgent(ClipReward(Rich()), 0), ClipReward(Rich()), seed=0)
    assert in_turn.score == report.episodes[0].score
