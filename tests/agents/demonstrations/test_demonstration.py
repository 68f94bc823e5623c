"""Demonstrations become the transitions of an agent that lives under the delay: by the wrapper, and by the rules."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import CommittedActions, RealtimeDelay, VectorRealtimeDelay
from async_wrappers.agents.demonstrations.demonstration import (
    Demonstration,
    EpisodeRecorder,
    Playback,
    frames_of,
    transitions,
)
from async_wrappers.agents.play.play import delay_in_words
from async_wrappers.latency import LogNormal
from tests.worlds.drifting_env import DriftingEnv
from tests.worlds.recording_env import MEANINGS, NOOP, RecordingEnv


class World(NamedTuple):
    """All that an episode depends on."""

    delay: int
    noops: int
    length: int
    ends: tuple[bool, bool]
    rewards: list[float]
    actions: list[int]  # one for each frame that may come

    def make(self) -> RecordingEnv:
        return RecordingEnv(length=self.length, ends=self.ends, rewards=self.rewards)

    def effects(self) -> list[int]:
        """The frames on which decisions land: e_j = j (noops + 1) + delay."""
        return list(range(self.delay, self.length, self.noops + 1))

    def spaced(self) -> list[int]:
        """A player that acts on those frames, and gives the default action on all others."""
        return [self.actions[frame] if frame in self.effects() else NOOP for frame in range(self.length)]


FRAMES = 40  # the longest episode
WORLDS = st.builds(
    World,
    delay=st.integers(0, 12),
    noops=st.integers(0, 12),
    length=st.integers(1, FRAMES),
    ends=st.sampled_from([(True, False), (False, True), (True, True)]),
    rewards=st.binary(min_size=1, max_size=FRAMES + 1).map(lambda drawn: [byte - 128.0 for byte in drawn]),
    actions=st.binary(min_size=FRAMES, max_size=FRAMES).map(lambda drawn: [byte % len(MEANINGS) for byte in drawn]),
)


def play(env: gym.Env[Any, Any], actions: list[int]) -> Demonstration:
    """Play an episode frame by frame, and keep it."""
    kept: list[Demonstration] = []
    recorder = EpisodeRecorder(env, kept.append)
    recorder.reset()
    for action in actions:
        recorder.step(action)
    return kept[0]


def played_live(world: World) -> list[dict[str, Any]]:
    """The transitions of an agent under the delay, from what `RealtimeDelay` returns."""
    env = RealtimeDelay(world.make(), world.delay, world.noops, "noop")
    observation, _ = env.reset()
    result: list[dict[str, Any]] = []
    for effect in [*world.effects(), world.length]:
        action = world.actions[effect] if effect < world.length else NOOP
        following, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        if info["realtime"]["applied"]:
            result.append(
                {
                    "observation": observation.tolist(),
                    "action": action,
                    "reward": reward,
                    "interval": info["realtime"]["interval"],
                    "terminal": terminated,
                    "truncated": truncated and not terminated,
                    "next_observation": following.tolist(),
                }
            )
        if over:
            return result
        observation = following
    raise AssertionError("the episode did not end")


def by_the_rules(world: World, shown: Demonstration) -> list[dict[str, Any]]:
    """The same from the three rules alone: a loop over frames, for a player that does anything on any frame."""
    length, interval = len(shown), world.noops + 1
    result = []
    for number in range(length):
        start, effect = number * interval, number * interval + world.delay
        if effect >= length:
            break
        until = min(effect + interval, length)
        paid = shown.rewards[0 if number == 0 else effect : until]
        over = until == length
        result.append(
            {
                "observation": shown.observations[start].tolist(),
                "action": int(shown.actions[effect]),
                "reward": float(sum(paid)),
                "interval": until - effect,
                "terminal": over and shown.terminated,
                "truncated": over and not shown.terminated,
                "next_observation": shown.observations[min(start + interval, length)].tolist(),
            }
        )
    return result


def played_back(world: World, shown: Demonstration) -> tuple[list[dict[str, Any]], int]:
    environment, playback = Playback.under(RealtimeDelay(world.make(), world.delay, world.noops, "noop"))
    playback.load(shown)
    found = [plain(each) for each in transitions(environment, playback, seed=0)]
    return found, playback.off_schedule_frames


def plain(transition: dict[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in transition.items()}


@settings(max_examples=75, deadline=None, database=None)
@given(world=WORLDS)
def test_a_player_that_acts_on_effect_frames_alone_gives_the_very_transitions_of_an_agent_under_the_delay(
    world: World,
) -> None:
    found, off_schedule_frames = played_back(world, play(world.make(), world.spaced()))
    assert found == played_live(world)
    assert off_schedule_frames == 0


@settings(max_examples=75, deadline=None, database=None)
@given(world=WORLDS)
def test_whatever_a_player_does_the_transitions_are_those_of_the_three_rules(world: World) -> None:
    shown = play(world.make(), world.actions[: world.length])
    found, off_schedule_frames = played_back(world, shown)
    assert found == by_the_rules(world, shown)
    between = set(range(world.length)) - set(world.effects())
    # an episode that ends before its first effect has no transition, and nothing is counted of it
    assert off_schedule_frames == (sum(world.actions[frame] != NOOP for frame in between) if found else 0)


def test_a_hand_worked_episode() -> None:
    """Delay 2, noops 1: decisions read frames 0, 2, 4 and land on 2, 4, 6 of the seven; the last one lasts a frame."""
    shown = Demonstration(
        observations=np.arange(8)[:, None] * 10,
        actions=np.array([0, 2, 1, 2, 3, 4, 0]),
        rewards=np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
        terminated=True,
    )
    delayed = RealtimeDelay(Fixed(Box(0, 100, (1,), np.int64), Discrete(5)), 2, 1, default_action=2)
    environment, playback = Playback.under(delayed)
    playback.load(shown)
    found = [plain(each) for each in transitions(environment, playback, seed=0)]
    rows = [(each["observation"], each["action"], each["reward"], each["interval"], each["terminal"]) for each in found]
    assert rows == [([0], 1, 15.0, 2, False), ([20], 3, 48.0, 2, False), ([40], 0, 64.0, 1, True)]
    assert found[-1]["next_observation"] == [60]  # in flight at the end: it would have read frame 6
    assert playback.off_schedule_frames == 2  # frames 0 and 5


class Fixed(gym.Env[Any, Any]):
    """Nothing but spaces."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_latencies_and_layers_around_the_delay_are_gone_through_too(seed: int, committed: bool) -> None:
    def make() -> gym.Env[Any, Any]:
        latency = LogNormal(mean=0.1, cv=0.5)
        env: gym.Env[Any, Any] = RealtimeDelay(
            DriftingEnv(lengths=[60], noop=True), default_action="noop", latency=latency, workers=2, fps=30
        )
        return CommittedActions(env, length=2, flat=True) if committed else env

    kept: list[Demonstration] = []
    env, _ = EpisodeRecorder.inside(make(), kept.append)
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    expected, over = [], False
    while not over:
        action = int(rng.integers(3))
        following, reward, terminated, truncated, info = env.step(action)
        expected.append((observation.tolist(), action, reward, info["realtime"]["interval"]))
        observation, over = following, terminated or truncated

    environment, playback = Playback.under(make())
    playback.load(kept[0])
    found = [
        (each["observation"].tolist(), int(each["action"]), each["reward"], each["interval"])
        for each in transitions(environment, playback, seed)
    ]
    assert found == expected
    assert len(found) > 5
    assert playback.off_schedule_frames == 0


def test_without_a_delay_each_frame_is_a_transition() -> None:
    world = World(0, 0, 5, (True, False), [1.0, 2.0], [0, 1, 2, 3, 4])
    shown = play(world.make(), world.actions)
    environment, playback = Playback.under(world.make())
    playback.load(shown)
    assert [plain(each) for each in transitions(environment, playback, seed=0)] == by_the_rules(world, shown)
    assert frames_of(environment) is environment


IMAGES = Box(0, 255, (4, 4), np.uint8)


def one_frame(observations: Any, action: int = 0) -> Demonstration:
    return Demonstration(np.stack([observations] * 2), np.array([action]), np.zeros(1), True)


def test_axes_of_length_one_and_whole_numbers_of_another_type_fit() -> None:
    """As in the published pickles: [1, 1, 84, 84], perhaps of floats."""
    playback = Playback(Fixed(IMAGES, Discrete(2)))
    image = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    playback.load(one_frame(image))
    assert playback.loaded.observations.dtype == np.uint8
    np.testing.assert_array_equal(playback.loaded.observations[0], image[0])


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        (
            one_frame(np.zeros((4, 5), np.uint8)),
            "its observations are uint8 [4, 5], and the environment's uint8 [4, 4]",
        ),
        (one_frame(np.full((4, 4), 0.5)), "its observations are float64 [4, 4], and the environment's uint8 [4, 4]"),
        (one_frame(np.full((4, 4), 256)), "its observations are int64 [4, 4], and the environment's uint8 [4, 4]"),
        (
            one_frame(np.zeros((4, 4), np.uint8), 2),
            "it holds the action 2, and the environment's actions are Discrete(2)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(shown: Demonstration, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        Playback(Fixed(IMAGES, Discrete(2))).load(shown)
    assert str(caught.value) == sentence


class OneMore(gym.ActionWrapper[Any, Any, Any]):
    """Shows one action more than there is."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = Discrete(4)

    def action(self, action: Any) -> Any:
        return min(int(action), 2)


def test_actions_that_are_changed_around_the_delay_are_refused() -> None:
    with pytest.raises(ValueError, match=r"turns the actions Discrete\(4\) into Discrete\(3\)"):
        Playback.under(OneMore(RealtimeDelay(DriftingEnv(noop=True), 1)))


class TestRealNumbers:
    """Actions of a Box."""

    SPACE = Box(-2, 2, (2,))

    def playback(self, space: Box = SPACE) -> Playback:
        return Playback(RecordingEnv(action_space=space))

    def shown(self, actions: list[list[float]], dtype: str = "float64") -> Demonstration:
        observations = np.zeros((len(actions) + 1, 3), np.int64)
        return Demonstration(observations, np.array(actions, dtype), np.zeros(len(actions)), True)

    def test_what_is_recorded_is_played_back_under_a_delay(self) -> None:
        played = [[0.1 * frame, -0.2] for frame in range(6)]
        kept: list[Demonstration] = []
        recorder = EpisodeRecorder(RecordingEnv(length=6, action_space=self.SPACE), kept.append)
        recorder.reset()
        for action in played:
            recorder.step(np.array(action, np.float32))
        env, playback = Playback.under(RealtimeDelay(RecordingEnv(action_space=self.SPACE), 2, 1, "repeat"))
        playback.load(kept[0])
        actions = [each["action"] for each in transitions(env, playback, 0)]
        np.testing.assert_array_equal(actions, np.float32(played)[[2, 4]])  # type: ignore[arg-type]

    def test_float64_becomes_the_spaces_type(self) -> None:
        playback = self.playback()
        playback.load(self.shown([[0.1, -2], [2, 0.3]]))
        assert playback.loaded.actions.dtype == np.float32
        np.testing.assert_array_equal(playback.loaded.actions, np.array([[0.1, -2], [2, 0.3]], np.float32))

    @pytest.mark.parametrize(
        ("space", "action"),
        [(SPACE, [2.1, 0]), (SPACE, [0, np.nan]), (Box(-np.inf, np.inf, (2,)), [np.inf, 0]), (SPACE, [0])],
        ids=str,
    )
    def test_an_action_that_is_none_of_the_environments_is_refused(self, space: Box, action: list[float]) -> None:
        with pytest.raises(ValueError, match=r"^it holds the action \[.*\], and the environment's actions are Box"):
            self.playback(space).load(self.shown([action, action]))

    def test_fractions_for_whole_numbers_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^it holds the action \[0.5 1. \]"):
            self.playback(Box(0, 3, (2,), np.int64)).load(self.shown([[0.5, 1]]))

    @pytest.mark.parametrize("number", [np.nan, -np.inf])
    def test_a_player_whose_action_is_not_finite_is_stopped(self, number: float) -> None:
        recorder = EpisodeRecorder(RecordingEnv(action_space=self.SPACE), lambda episode: None)
        recorder.reset()
        with pytest.raises(
            ValueError, match=r"^a recorded action must be finite numbers, got \[ *0. .*from the player$"
        ):
            recorder.step(np.array([0, number], np.float32))


@pytest.mark.parametrize("delayed", [RealtimeDelay, lambda env, **given: VectorRealtimeDelay(vector_of(env), **given)])
def test_where_chunks_fill_the_frames_the_delay_in_words_names_no_no_ops(delayed: Any) -> None:
    assert delay_in_words(delayed(DriftingEnv(), delay=8, noops=7, default_action="chunk")) == "8 frames, chunks of 16"
    assert delay_in_words(delayed(DriftingEnv(), delay=8, noops=8, default_action="repeat")) == "8 frames, 8 no-ops"


def test_features_that_a_fast_path_may_hold_are_named_with_the_delay() -> None:
    terms: dict[str, Any] = {"default_action": "repeat", "max_features_age": 12}
    assert (
        delay_in_words(RealtimeDelay(DriftingEnv(), 8, 2, **terms))
        == "8 frames, 2 no-ops, features up to 12 frames old"
    )
    assert delay_in_words(RealtimeDelay(DriftingEnv(), 8, **terms)) == "8 frames, features up to 12 frames old"
    words = delay_in_words(RealtimeDelay(DriftingEnv(), latency=0.1, fps=60, **terms))
    assert words == "latency 0.1, 1 worker at 60 frames/s, features up to 12 frames old"


def vector_of(env: Any) -> gym.vector.VectorEnv:
    return gym.vector.SyncVectorEnv([lambda: env], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
