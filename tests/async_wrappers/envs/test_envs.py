"""Tests of async_wrappers/envs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_wrappers import AppliedActions, RealtimeDelay
from async_wrappers.checks import BrokenEnvironment
from async_wrappers.envs import ClipReward, create_atari_environment, create_atari_vector, create_gym_environment
from async_wrappers.envs.atari import find_atari_game
from async_wrappers.envs.factories import wrap, wrapped
from tests.worlds.recording_env import NOOP, RecordingEnv

RECORDING = "AsyncWrappersEnvs/Recording-v0"


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gym.register(RECORDING, entry_point=RecordingEnv, disable_env_checker=True)
    yield
    del gym.registry[RECORDING]


def chain(env: gym.Env[Any, Any]) -> list[str]:
    """Return the names of the wrappers, outermost first."""
    names = []
    while isinstance(env, gym.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return names


# any environment of Gymnasium


def test_a_gym_environment_is_made_by_its_id_with_its_arguments() -> None:
    env = create_gym_environment(RECORDING, {"length": 3, "rewards": (5.0,)}, render_mode="rgb_array")
    env.reset()
    assert [env.step(0)[1:3] for _ in range(3)] == [(5.0, False), (5.0, False), (5.0, True)]
    assert env.render_mode == "rgb_array"


class WithoutModes(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, **arguments: str) -> None:
        if arguments.get("render_mode") == "ansi":
            raise TypeError("__init__() got an unexpected keyword argument 'render_mode'")


@pytest.mark.parametrize(
    ("environment", "mode", "message"),
    [
        (RECORDING, "ansi", "render_mode of '{}' must be one of 'rgb_array', got 'ansi'"),
        ("WithoutModes-v0", "rgb_array", "render_mode of '{}' must be None, got 'rgb_array'"),
        ("WithoutModes-v0", "ansi", "render_mode of '{}' must be None, got 'ansi'"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_render_mode_that_an_environment_lacks_is_refused_in_one_sentence(
    environment: str, mode: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = gym.envs.registration.EnvSpec("WithoutModes-v0", entry_point=WithoutModes)
    monkeypatch.setitem(gym.registry, "WithoutModes-v0", spec)
    with pytest.raises(ValueError) as caught:
        create_gym_environment(environment, render_mode=mode)
    assert str(caught.value) == message.format(environment)


def test_wrappers_are_applied_in_order_the_first_one_innermost() -> None:
    env = create_gym_environment(
        RECORDING, wrappers=[AppliedActions, partial(RealtimeDelay, delay=3), RecordEpisodeStatistics]
    )
    assert chain(env)[:3] == ["RecordEpisodeStatistics", "RealtimeDelay", "AppliedActions"]
    assert "ClipReward" not in chain(env)
    observation, _ = env.reset()
    assert set(observation) == {"observation", "applied_actions"}
    assert env.step(1)[-1]["realtime"]["delay"] == 3


def test_without_wrappers_and_clipping_it_is_what_gymnasium_makes() -> None:
    assert chain(create_gym_environment("CartPole-v1")) == chain(gym.make("CartPole-v1"))


def test_an_id_may_name_the_module_that_registers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "async_wrappers_users_module", ModuleType("async_wrappers_users_module"))
    env = create_gym_environment(f"async_wrappers_users_module:{RECORDING}")
    assert isinstance(env.unwrapped, RecordingEnv)


@pytest.mark.parametrize(
    ("wrong", "close"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("no_such_module_of_mine:CartPole-v1", "CartPole-v1"),
        ("AsyncWrappersEnvs/Recordin-v0", RECORDING),
        ("AsyncWrapperEnvs/Recording-v0", RECORDING),
        ("Cart Pole v1", "CartPole-v1"),
    ],
)
def test_an_unknown_id_is_refused_by_argument_and_value_with_close_names(wrong: str, close: str) -> None:
    with pytest.raises(ValueError, match="environment_id") as error:
        create_gym_environment(wrong)
    message = str(error.value)
    assert message.startswith(f"environment_id must be registered with Gymnasium, got {wrong!r}")
    assert close in message.split("(")[0]


def test_an_id_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(ValueError, match="environment_id must be registered") as error:
        create_gym_environment("Qqqqqqqqqqqqqqqqqqqqqqqqq-v0")
    assert "close names" not in str(error.value)


def test_an_environment_that_knows_no_render_mode_is_made_all_the_same() -> None:
    class Plain(gym.Env[Any, Any]):
        observation_space = action_space = gym.spaces.Discrete(2)

    gym.register("AsyncWrappersPlain-v0", entry_point=Plain)
    try:
        assert isinstance(create_gym_environment("AsyncWrappersPlain-v0").unwrapped, Plain)
    finally:
        del gym.registry["AsyncWrappersPlain-v0"]


@pytest.mark.parametrize("wrappers", [RealtimeDelay, "RealtimeDelay", [RealtimeDelay, 3], [None]])
def test_wrappers_that_are_no_list_of_callables_are_refused_with_an_example(wrappers: Any) -> None:
    with pytest.raises(TypeError, match=r"wrappers must be a list of wrapper .*\[@RealtimeDelay\]"):
        create_gym_environment(RECORDING, wrappers=wrappers)


# clipped rewards


def test_rewards_are_clipped_per_frame_inside_the_delay_and_the_return_in_info_is_not() -> None:
    rewards = (5.0, -3.0, 0.25, 7.0, 2.0, -0.5)
    env = create_gym_environment(
        RECORDING,
        {"length": 6, "rewards": rewards},
        wrappers=[partial(RealtimeDelay, delay=1, noops=1)],
        clip_rewards=True,
    )
    assert chain(env)[:2] == ["RealtimeDelay", "ClipReward"]
    _, info = env.reset()
    assert info["episode_return"] == 0
    _, reward, _, _, info = env.step(0)  # frames 0 - 2
    assert reward == 1 - 1 + 0.25
    assert info["episode_return"] == 5 - 3 + 0.25
    _, reward, _, _, info = env.step(0)  # frames 3 - 4
    assert reward == 1 + 1
    assert info["episode_return"] == 5 - 3 + 0.25 + 7 + 2
    assert info["realtime"]["observation_info"]["episode_return"] == 5 - 3 + 0.25 + 7  # the observation is o_4
    _, reward, terminated, _, info = env.step(0)  # frame 5
    assert terminated
    assert reward == -0.5
    assert info["episode_return"] == sum(rewards)
    _, info = env.reset()
    assert info["episode_return"] == 0
    assert env.step(0)[-1]["episode_return"] == 5 - 3 + 0.25


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    delay=st.integers(0, 5),
    noops=st.integers(0, 5),
    rewards=st.lists(st.integers(-40, 40).map(lambda quarter: quarter / 4), min_size=1, max_size=20),
)
def test_an_episode_pays_the_sum_of_its_clipped_rewards(delay: int, noops: int, rewards: list[float]) -> None:
    env = RealtimeDelay(ClipReward(RecordingEnv(len(rewards), rewards=rewards)), delay, noops)
    env.reset()
    paid, over = 0.0, False
    while not over:
        _, reward, over, _, info = env.step(0)
        paid += reward
    assert paid == sum(max(-1.0, min(1.0, reward)) for reward in rewards)
    assert info["episode_return"] == sum(rewards)


def test_the_bounds_of_clipping_can_be_chosen() -> None:
    env = ClipReward(RecordingEnv(rewards=(-9.0, 0.5, 9.0)), low=-2, high=3)
    env.reset()
    assert [env.step(0)[1] for _ in range(3)] == [-2, 0.5, 3]


def clipped_by_gymnasium(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return wrap(env, False, [partial(gym.wrappers.ClipReward, min_reward=-1, max_reward=1)])


def clipped_in_a_vector(env: gym.Env[Any, Any]) -> Any:
    return wrapped(SyncVectorEnv([lambda: env]), [partial(gym.wrappers.vector.ClipReward, min_reward=-1, max_reward=1)])


@pytest.mark.parametrize("clipped", [ClipReward, clipped_by_gymnasium, clipped_in_a_vector])
@pytest.mark.parametrize("reward", [float("inf"), float("-inf")])
def test_an_infinite_reward_is_refused_before_it_is_clipped(clipped: Any, reward: float) -> None:
    env = clipped(RecordingEnv(rewards=(2.0, reward)))
    env.reset()
    action = env.action_space.sample()
    assert env.step(action)[1] == 1.0
    with pytest.raises(BrokenEnvironment, match=f"^the environment's reward must be finite, got {reward}: mend it"):
        env.step(action)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1)])
def test_bounds_of_clipping_in_the_wrong_order_are_refused_by_value(low: float, high: float) -> None:
    with pytest.raises(ValueError, match=rf"^low must be < high, got low={low} and high={high}$"):
        ClipReward(RecordingEnv(), low, high)


# Atari


@pytest.mark.parametrize(
    ("name", "game"),
    [
        ("Boxing", "ALE/Boxing-v5"),
        ("boxing", "ALE/Boxing-v5"),
        ("BoxingNoFrameskip-v4", "ALE/Boxing-v5"),
        ("BoxingNoFrameSkip-v4", "ALE/Boxing-v5"),
        ("BoxingDeterministic-v4", "ALE/Boxing-v5"),
        ("Boxing-v0", "ALE/Boxing-v5"),
        ("ALE/Boxing-v5", "ALE/Boxing-v5"),
        ("Boxing-ramNoFrameskip-v4", "ALE/Boxing-v5"),
        ("Boxing-ram-v4", "ALE/Boxing-v5"),
        ("ALE/Boxing-ram-v5", "ALE/Boxing-v5"),
        ("NameThisGame", "ALE/NameThisGame-v5"),
        ("name_this_game", "ALE/NameThisGame-v5"),
        ("NameThisGameNoFrameskip-v4", "ALE/NameThisGame-v5"),
        ("BattleZoneNoFrameskip-v4", "ALE/BattleZone-v5"),
        ("Pong", "ALE/Pong-v5"),
        ("Pitfall2", "ALE/Pitfall2-v5"),
    ],
)
def test_a_game_is_found_by_its_many_spellings(name: str, game: str) -> None:
    assert find_atari_game(name) == game


def test_every_game_of_ale_is_found_by_its_name_its_ids_and_in_small_letters() -> None:
    find_atari_game("Pong")  # registers them
    games = sorted(name[4:-3] for name in gym.registry if name.startswith("ALE/") and name.endswith("-v5"))
    assert len(games) > 60
    for game in games:
        for spelling in (game, game.lower(), f"{game}NoFrameskip-v4", f"ALE/{game}-v5", f"{game}-ramNoFrameskip-v4"):
            assert find_atari_game(spelling) == f"ALE/{game}-v5"


MAKERS = [create_atari_environment, partial(create_atari_vector, num_envs=1, num_threads=1)]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("name", "arguments", "meant"),
    [
        ("BoxingNoFrameskip-v4", {}, "frame_skip = 1, got 4"),
        ("BoxingNoFrameskip-v4", {"frame_skip": 1}, "sticky_actions = False, got True"),
        ("Boxing-ramNoFrameskip-v4", {"frame_skip": 1, "sticky_actions": False}, "obs_type = ram, got grayscale"),
        ("ALE/Boxing-ram-v5", {}, "obs_type = ram, got grayscale"),
        ("BoxingDeterministic-v4", {}, "sticky_actions = False, got True"),
        ("Boxing-v4", {"sticky_actions": False}, "frame_skip = 2, 3 or 4, drawn at each step, got 4"),
        ("ALE/Boxing-v5", {"frame_skip": 1}, "frame_skip = 4, got 1"),
    ],
)
def test_an_id_that_means_other_arguments_is_refused(make: Any, name: str, arguments: Any, meant: str) -> None:
    with pytest.raises(ValueError) as error:
        make(name, **arguments)
    remedy = "name the game alone, 'Boxing', and give what differs from the defaults as arguments"
    assert str(error.value) == f"game_name '{name}' means {meant}: {remedy}"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ALE/Boxing-v5", {}),
        ("BoxingDeterministic-v0", {}),
        ("SpaceInvadersDeterministic-v0", {"frame_skip": 3}),
        ("BoxingNoFrameskip-v4", {"frame_skip": 1, "sticky_actions": False}),
        ("Boxing-ramNoFrameskip-v4", {"frame_skip": 1, "sticky_actions": False, "obs_type": "ram"}),
    ],
)
def test_an_id_that_means_its_arguments_is_made(name: str, arguments: Any) -> None:
    assert create_atari_environment(name, **arguments).observation_space.shape in ((84, 84), (128,))


@pytest.mark.parametrize("name", ["Pong-v9", "PongNoFrameskip-v5", "PongDeterministic-v1", "ALE/Pong-v1"])
def test_a_version_that_there_never_was_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^game_name must be an id that Gymnasium has had, got '{name}': name the"):
        create_atari_environment(name)


@pytest.mark.parametrize(
    ("wrong", "close"), [("Boxin", "Boxing"), ("BreakoutNoFrameskp-v4", "Breakout"), ("pnog", "Pong")]
)
def test_an_unknown_game_is_refused_by_argument_and_value_with_close_names(wrong: str, close: str) -> None:
    with pytest.raises(ValueError, match=r"^game_name must be one of ale-py's") as error:
        create_atari_environment(wrong)
    message = str(error.value)
    assert repr(wrong) in message
    assert close in message.split("close names are")[1]


def test_pixels_are_84_by_84_grey_bytes_unless_another_size_is_asked() -> None:
    for size, env in (
        (84, create_atari_environment("Boxing")),
        (42, create_atari_environment("Boxing", screen_size=42)),
    ):
        observation, _ = env.reset(seed=0)
        assert env.observation_space == gym.spaces.Box(0, 255, (size, size), np.uint8)
        assert env.observation_space.contains(observation)
        assert observation.std() > 0


@pytest.mark.parametrize("obs_type", ["grayscale", "ram"])
@pytest.mark.parametrize("frame_skip", [1, 4])
def test_a_step_is_frame_skip_emulated_frames(frame_skip: int, obs_type: str) -> None:
    env = create_atari_environment("Boxing", frame_skip=frame_skip, obs_type=obs_type)
    _, info = env.reset(seed=0)
    before = info["episode_frame_number"]
    for step in range(1, 4):
        *_, info = env.step(0)
        assert info["episode_frame_number"] - before == step * frame_skip


def test_with_a_frame_skip_of_4_a_step_pays_the_clipped_sum_of_4_frames() -> None:
    def pays(frame_skip: int, clip_rewards: bool) -> list[float]:
        env = create_atari_environment(
            "Pong", frame_skip, sticky_actions=False, clip_rewards=clip_rewards, obs_type="ram"
        )
        env.reset(seed=0)
        return [env.step(0)[1] for _ in range(400 // frame_skip)]

    by_frame = np.array(pays(1, clip_rewards=False))
    assert by_frame.any()
    assert pays(4, clip_rewards=False) == by_frame.reshape(-1, 4).sum(1).tolist()
    assert pays(4, clip_rewards=True) == np.clip(by_frame.reshape(-1, 4).sum(1), -1, 1).tolist()


@pytest.mark.parametrize("obs_type", ["grayscale", "ram"])
def test_a_game_renders_where_asked(obs_type: str) -> None:
    env = create_atari_environment("Boxing", obs_type=obs_type, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (210, 160, 3)
    assert create_atari_environment("Boxing", obs_type=obs_type).render_mode is None


def test_ram_is_128_bytes() -> None:
    env = create_atari_environment("Boxing", obs_type="ram")
    observation, _ = env.reset(seed=0)
    assert observation.shape == (128,)
    assert observation.dtype == np.uint8
    assert env.observation_space.contains(observation)


def rams(env: gym.Env[Any, Any], seed: int, frames: int = 60) -> list[bytes]:
    """Return the RAM after the reset and after each frame of a fixed sequence of actions."""
    shown = [env.reset(seed=seed)[0].tobytes()]
    actions = np.random.default_rng(1).integers(env.action_space.n, size=frames)
    return shown + [env.step(int(action))[0].tobytes() for action in actions]


def test_sticky_actions_differ_by_seed_and_a_seed_decides_them() -> None:
    env = create_atari_environment("Boxing", obs_type="ram", frame_skip=1)
    first = rams(env, seed=1)
    assert rams(env, seed=1) == first
    assert rams(create_atari_environment("Boxing", obs_type="ram", frame_skip=1), seed=1) == first
    assert rams(env, seed=2) != first


def test_without_sticky_actions_the_game_is_the_same_for_each_seed() -> None:
    env = create_atari_environment("Boxing", obs_type="ram", frame_skip=1, sticky_actions=False)
    first = rams(env, seed=1)
    assert rams(env, seed=2) == first
    assert rams(create_atari_environment("Boxing", obs_type="ram", frame_skip=1), seed=1) != first


@pytest.mark.parametrize("obs_type", ["grayscale", "ram"])
def test_the_full_action_space_has_18_actions_also_where_the_game_knows_fewer(obs_type: str) -> None:
    assert create_atari_environment("Pong", obs_type=obs_type).action_space.n == 6
    env = create_atari_environment("Pong", obs_type=obs_type, full_action_space=True)
    assert env.action_space.n == 18
    delayed = RealtimeDelay(env, delay=2)  # finds the no-op
    delayed.reset(seed=0)
    delayed.step(17)


def frames_to_the_first_lost_life(env: gym.Env[Any, Any]) -> tuple[bool, int]:
    """Fire and wait until the number of lives falls; return terminated and the number of lives left."""
    _, info = env.reset(seed=0)
    lives = info["lives"]
    for step in range(500):
        *_, terminated, truncated, info = env.step(1 if step % 10 == 0 else 0)
        assert not truncated
        if info["lives"] < lives:
            return terminated, info["lives"]
    raise AssertionError("no life was lost")


def test_a_lost_life_ends_the_episode_only_where_asked() -> None:
    assert frames_to_the_first_lost_life(create_atari_environment("Breakout")) == (False, 4)
    assert frames_to_the_first_lost_life(create_atari_environment("Breakout", terminal_on_life_loss=True)) == (True, 4)


@pytest.mark.parametrize(("obs_type", "clip_rewards"), [("grayscale", True), ("ram", False)])
def test_with_episodic_life_a_life_ends_the_episode_and_the_game_goes_on(obs_type: str, clip_rewards: bool) -> None:
    env = create_atari_environment("Breakout", obs_type=obs_type, episodic_life=True, clip_rewards=clip_rewards)
    _, info = env.reset(seed=0)
    actions = np.random.default_rng(0)
    paid, frames, ends = 0.0, 0, []
    while len(ends) < 5:
        observation, reward, terminated, truncated, info = env.step(int(actions.integers(4)))
        paid, frames = paid + float(reward), frames + 4
        assert not truncated
        assert ("game_over" in info) == terminated
        if terminated:
            ends.append(info["game_over"])
            assert info["episode_return"] == paid  # Breakout's first rows pay 1
            if not info["game_over"]:
                again, info = env.reset()
                np.testing.assert_array_equal(again, observation)
                assert (info["lives"], info["episode_return"]) == (5 - len(ends), paid)
                assert info["episode_frame_number"] == frames  # no frame has passed
    assert ends == [False] * 4 + [True]
    _, info = env.reset()
    assert (info["lives"], info["episode_return"], info["episode_frame_number"]) == (5, 0.0, 0)


def test_between_two_lives_a_seed_begins_a_new_game_and_so_does_a_reset_in_the_middle_of_a_life() -> None:
    env = create_atari_environment("Breakout", obs_type="ram", episodic_life=True)
    assert frames_to_the_first_lost_life(env) == (True, 4)
    assert env.reset(seed=1)[1]["lives"] == 5
    assert frames_to_the_first_lost_life(env) == (True, 4)
    assert env.reset()[1]["lives"] == 4
    env.step(0)
    assert env.reset()[1]["lives"] == 5


def test_two_meanings_of_a_lost_life_exclude_each_other() -> None:
    with pytest.raises(ValueError, match=r"^episodic_life must be False where terminal_on_life_loss=True"):
        create_atari_environment("Breakout", episodic_life=True, terminal_on_life_loss=True)


def test_fire_is_pressed_in_the_place_of_the_first_action_of_a_game_and_of_a_life_only_where_asked() -> None:
    def lives_after(frames: int, fire_on_reset: bool, game: str = "Breakout") -> int:
        env = create_atari_environment(game, 1, sticky_actions=False, obs_type="ram", fire_on_reset=fire_on_reset)
        env.reset(seed=0)
        for _ in range(frames):
            *_, info = env.step(0)
        return int(info["lives"])

    assert lives_after(420, fire_on_reset=True) <= 1
    assert lives_after(420, fire_on_reset=False) == 5
    assert "FireOnReset" not in chain(create_atari_environment("MsPacman", fire_on_reset=True))  # has no such button


@pytest.mark.parametrize(
    ("obs_type", "screen_size", "shape"), [("rgb", 84, (84, 84, 3)), ("grayscale", (100, 60), (100, 60))]
)
def test_colour_and_other_shapes(obs_type: str, screen_size: Any, shape: tuple[int, ...]) -> None:
    env = create_atari_environment("Boxing", obs_type=obs_type, screen_size=screen_size)
    observation, _ = env.reset(seed=0)
    assert env.observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("obs_type", ["grayscale", "ram"])
def test_a_game_is_truncated_after_max_frames(obs_type: str) -> None:
    env = create_atari_environment("Boxing", obs_type=obs_type, max_frames=40)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(10)] == [False] * 9 + [True]


@pytest.mark.parametrize("obs_type", ["grayscale", "ram"])
def test_noop_max_begins_an_episode_with_1_to_so_many_noop_frames_drawn_by_the_seed(obs_type: str) -> None:
    env = create_atari_environment("Boxing", obs_type=obs_type, frame_skip=1, noop_max=3)
    plain = create_atari_environment("Boxing", obs_type=obs_type, frame_skip=1)
    begin = plain.reset(seed=0)[1]["episode_frame_number"]

    def noops() -> list[int]:
        env.reset(seed=0)
        return [env.reset()[1]["episode_frame_number"] - begin for _ in range(20)]

    counts = noops()
    assert set(counts) == {1, 2, 3}
    assert noops() == counts


def test_noop_max_of_0_begins_at_once() -> None:
    observations = [
        create_atari_environment("Boxing", obs_type="ram", noop_max=0).reset(seed=0)[0],
        gym.make("ALE/Boxing-v5", obs_type="ram").reset(seed=0)[0],
    ]
    assert observations[0].tobytes() == observations[1].tobytes()


def test_a_negative_noop_max_is_refused_when_the_environment_is_made() -> None:
    with pytest.raises(ValueError, match=r"noop_max.*-1"):
        create_atari_environment("Boxing", noop_max=-1)


def test_noops_that_end_the_episode_begin_another() -> None:
    from async_wrappers.envs.atari import NoopReset

    recorder = RecordingEnv(2, action_space=gym.spaces.Discrete(5))
    env = NoopReset(recorder, noop_max=30)
    for seed in range(20):
        env.reset(seed=seed)
        env.step(NOOP)  # an episode runs


@pytest.mark.parametrize("obs_type", ["RGB", "pixels", None, "RAM"])
def test_an_unknown_observation_type_is_refused_by_argument_and_value(obs_type: Any) -> None:
    with pytest.raises(ValueError, match=rf"^obs_type must be 'grayscale', 'rgb' or 'ram', got {obs_type!r}$"):
        create_atari_environment("Boxing", obs_type=obs_type)


@pytest.mark.parametrize("frame_skip", [0, -4, 2.5, "4", None, (2, 5)])
def test_a_frame_skip_that_is_no_positive_whole_number_is_refused_by_argument_and_value(frame_skip: Any) -> None:
    with pytest.raises(ValueError, match=r"^frame_skip must be a whole number of emulated frames >= 1, got ") as error:
        create_atari_environment("Boxing", frame_skip=frame_skip)
    assert str(error.value).endswith(repr(frame_skip))


def test_lost_lives_do_not_go_with_ram() -> None:
    with pytest.raises(ValueError, match=r"terminal_on_life_loss.*obs_type='grayscale' or 'rgb', got obs_type='ram'"):
        create_atari_environment("Boxing", obs_type="ram", terminal_on_life_loss=True)


def test_atari_rewards_are_clipped_inside_all_wrappers_unless_asked_not_to() -> None:
    limit = partial(TimeLimit, max_episode_steps=3)
    env = create_atari_environment("Boxing", wrappers=[RealtimeDelay, limit])
    assert chain(env)[:4] == ["TimeLimit", "RealtimeDelay", "ClipReward", "AtariPreprocessing"]
    env = create_atari_environment("Boxing", wrappers=[RealtimeDelay, limit], clip_rewards=False)
    assert chain(env)[:3] == ["TimeLimit", "RealtimeDelay", "AtariPreprocessing"]


def test_atari_with_shown_actions_and_a_delay_plays_to_a_frame_limit() -> None:
    env = create_atari_environment(
        "Boxing",
        frame_skip=1,
        sticky_actions=False,
        obs_type="ram",
        wrappers=[
            partial(TimeLimit, max_episode_steps=50),
            partial(AppliedActions, length=2, flat=True),
            partial(RealtimeDelay, delay=8, noops=8),
        ],
    )
    observation, _ = env.reset(seed=0)
    over, steps = False, 0
    while not over:
        assert env.observation_space.contains(observation)
        observation, _, _, over, info = env.step(env.action_space.n - 1)
        steps += 1
    assert info["realtime"]["frame"] == 50
    assert steps == 5  # effects on frames 8, 17, 26, 35, 44
    # the next decision would start on frame 45; the action of frame 44 is the last that it sees
    assert observation[-18:].tolist() == [0] * 17 + [255]
