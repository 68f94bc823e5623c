"""MinAtar's games are MinAtar's, frame by frame; and they keep what delays, checkpoints and live play need."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import HumanRendering

from async_wrappers import AsyncRunner, MinAtarEnv, RealtimeDelay, create_minatar_environment
from async_wrappers.envs.minatar import LONGEST_EPISODE, MINATAR_GAMES, find_minatar_game
from async_wrappers.testing.environments import EnvironmentContract
from async_wrappers.wrappers.default_action import find_noop


class _Game(EnvironmentContract):
    game: str
    frames = 60  # of random play; an episode must outlast the first half, after which it is copied

    def make_environment(self) -> gym.Env[Any, Any]:
        return create_minatar_environment(self.game)


class TestAsterix(_Game):
    game = "asterix"


class TestBreakout(_Game):
    game = "breakout"
    frames = 8


class TestFreeway(_Game):
    game = "freeway"


class TestSeaquest(_Game):
    game = "seaquest"


class TestSpaceInvaders(_Game):
    game = "space_invaders"


@pytest.fixture(scope="module")
def authors() -> Callable[[str], gym.Env[Any, Any]]:
    """Make the environment that MinAtar's authors ship."""
    from minatar.gym import BaseEnv

    return lambda game: BaseEnv(game, use_minimal_action_set=True)


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_a_game_is_that_of_its_authors_frame_for_frame(game: str, authors: Callable[[str], Any]) -> None:
    theirs, ours = authors(game), MinAtarEnv(game)
    assert ours.action_space == theirs.action_space
    assert ours.observation_space.shape == (theirs.observation_space.shape[2], 10, 10)
    draw = np.random.default_rng(0)
    # Their last action outlives a reset, so that only their first episode can be compared.
    for seed in range(5):
        theirs = authors(game)
        (seen, _), (expected, _) = ours.reset(seed=seed), theirs.reset(seed=seed)
        over = False
        for _ in range(300):
            np.testing.assert_array_equal(seen, expected.transpose(2, 0, 1))
            assert seen.flags.c_contiguous
            if over:
                break
            action = int(draw.integers(ours.action_space.n))
            seen, reward, over, _, _ = ours.step(action)
            expected, their_reward, their_over, _, _ = theirs.step(action)
            assert (reward, over) == (their_reward, their_over)


def received_by(game: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by each action, in MinAtar's numbers, that the game's rules receive."""
    MinAtarEnv(game)  # imports the rules
    rules, received = sys.modules[f"minatar.environments.{game}"].Env, list[int]()
    act = rules.act

    def noted(self: Any, action: int) -> Any:
        received.append(action)
        return act(self, action)

    monkeypatch.setattr(rules, "act", noted)
    return received


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_a_branch_goes_on_as_the_game_does_and_leaves_it_alone(game: str) -> None:
    real, alone = MinAtarEnv(game), MinAtarEnv(game)
    actions = np.random.default_rng(3).integers(real.action_space.n, size=200).tolist()
    real.reset(seed=7)
    alone.reset(seed=7)
    real_frames, foreseen = [], []
    for number, action in enumerate(actions):
        random = np.random.RandomState()
        random.set_state(real._game.random.get_state())  # the very numbers of the real game's future
        branch, other = real.branch(random), real.branch(np.random.RandomState(number))
        foreseen.append([branch.step(each) for each in actions[number : number + 6]])
        for each in actions[number : number + 6]:
            other.step(each)
        real_frames.append(real.step(action))
        observation, reward, over, *_ = alone.step(action)  # nobody branches from this one
        assert np.array_equal(observation, real_frames[-1][0]) and (reward, over) == real_frames[-1][1:3]
        if over:
            break
    assert len(real_frames) >= 6  # Breakout's least
    for number, frames in enumerate(foreseen):
        for foretold, came in zip(frames, real_frames[number:], strict=False):
            assert np.array_equal(foretold[0], came[0]) and foretold[1:3] == came[1:3]


def test_branches_differ_by_their_numbers_alone() -> None:
    env = MinAtarEnv("asterix")
    env.reset(seed=0)
    actions = [2, 1] * 12

    def shown(seed: int) -> bytes:
        branch = env.branch(np.random.RandomState(seed))
        return b"".join(branch.step(action)[0].tobytes() for action in actions)

    assert shown(1) == shown(1)
    assert len({shown(seed) for seed in range(8)}) == 8


def test_an_action_sticks_on_one_frame_in_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    received = received_by("seaquest", monkeypatch)
    env = MinAtarEnv("seaquest")
    env.reset(seed=0)
    for frame in range(4000):
        if env.step(frame % 2)[2]:
            env.reset()
    # The wanted actions alternate, so that a repetition is one that sticks. Seaquest has all of MinAtar's actions.
    stuck = np.mean([action != frame % 2 for frame, action in enumerate(received)])
    assert len(received) == 4000
    assert 0.07 < stuck < 0.13


@pytest.mark.parametrize(("probability", "received"), [(0.0, [1, 3, 1, 3]), (1.0, [0, 0, 0, 0])])
def test_the_probability_of_sticky_actions_can_be_chosen(
    probability: float, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = received_by("breakout", monkeypatch)
    env = MinAtarEnv("breakout", sticky_probability=probability)
    env.reset(seed=0)
    for action in (1, 2, 1, 2):
        env.step(action)
    assert found == received


def test_an_episode_does_not_begin_with_the_last_action_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    received = received_by("breakout", monkeypatch)
    env = MinAtarEnv("breakout", sticky_probability=0.5)
    env.reset(seed=0)
    firsts = []
    for _ in range(20):
        while not env.step(2)[2]:
            pass
        assert received[-1] == 3  # that action, in MinAtar's numbers
        env.reset()
        env.step(2)
        firsts.append(received[-1])
    assert set(firsts) == {0, 3}  # no-op where the first frame sticks


@pytest.mark.parametrize("game", MINATAR_GAMES)
def test_the_no_op_is_found_and_does_nothing(game: str) -> None:
    env = create_minatar_environment(game, sticky_probability=0.0)
    assert env.unwrapped.get_action_meanings()[0] == "NOOP"  # type: ignore[attr-defined]
    assert find_noop(env) == 0
    assert RealtimeDelay(env, delay=2, noops=2, default_action="noop").reset(seed=0)


def test_an_episode_is_truncated_at_its_limit() -> None:
    env = create_minatar_environment("freeway", max_episode_steps=30)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(30)]
    assert ends == [(False, False)] * 29 + [(False, True)]
    assert create_minatar_environment("freeway").spec.max_episode_steps == LONGEST_EPISODE  # type: ignore[union-attr]


def test_without_a_limit_freeway_ends_by_itself() -> None:
    env = create_minatar_environment("freeway", max_episode_steps=None)
    env.reset(seed=0)
    frames = 1
    while not env.step(0)[2]:
        frames += 1
    assert frames == 2501


def test_a_frame_is_a_sixtieth_of_a_second() -> None:
    assert create_minatar_environment("breakout").metadata["render_fps"] == 60


def test_a_picture_shows_the_ball_and_the_paddle() -> None:
    env = create_minatar_environment("breakout", render_mode="rgb_array")
    env.reset(seed=0)
    env.step(0)
    cells = env.step(0)[0]  # the ball has left the bricks, and its trail too
    pixels: Any = env.render()
    assert (pixels.shape, pixels.dtype) == ((160, 160, 3), np.uint8)
    lit = pixels[8::16, 8::16].any(axis=2)
    np.testing.assert_array_equal(lit, cells.any(axis=0))
    colours = {tuple(pixels[16 * row + 8, 16 * column + 8]) for row, column in np.argwhere(lit)}
    assert len(colours) == 4


def test_a_window_is_opened_by_gymnasiums_wrapper_without_a_word() -> None:
    pytest.importorskip("pygame")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = create_minatar_environment("breakout", render_mode="human")
    layer, kinds = env, []
    while isinstance(layer, gym.Wrapper):
        kinds.append(type(layer))
        layer = layer.env
    assert HumanRendering in kinds
    assert env.unwrapped.render_mode == "rgb_array"


def test_it_plays_live_on_the_virtual_clock() -> None:
    class Left:
        def act(self, observation: Any, decision: Any) -> int:
            assert observation.shape == (4, 10, 10)
            return 1

    runner = AsyncRunner(
        lambda: create_minatar_environment("breakout"), Left, workers=2, fps=60, backend="virtual", latency=0.05
    )
    assert runner.run(episodes=2).delay_frames["mean"] >= 3


def test_vectors_and_processes_get_copies() -> None:
    vector = gym.vector.SyncVectorEnv([lambda: create_minatar_environment("asterix")] * 3)
    observations, _ = vector.reset(seed=0)
    assert (observations.shape, observations.dtype) == ((3, 4, 10, 10), np.bool_)
    assert not (observations[0] == observations[1]).all() or vector.step(np.array([0, 1, 2]))
    vector.close()


@pytest.mark.parametrize("spelling", ["SpaceInvaders", "space_invaders", "MinAtar/SpaceInvaders-v1"])
def test_a_game_has_several_spellings(spelling: str) -> None:
    assert find_minatar_game(spelling) == "space_invaders"
    assert find_minatar_game("async_wrappers/MinAtar-SpaceInvaders-v1") == "space_invaders"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"game": "braekout"},
            r"^game must be one of MinAtar's 'asterix', .*, got 'braekout'; did you mean 'breakout'\?$",
        ),
        ({"game": 3}, r"^game must be one of MinAtar's .*, got 3$"),
        ({"game": "breakout", "sticky_probability": 1.5}, r"^sticky_probability must be a share from 0 to 1, got 1.5$"),
        ({"game": "breakout", "max_episode_steps": 0}, r"^max_episode_steps must be .* >= 1.*got 0"),
        ({"game": "breakout", "render_mode": "humna"}, r"^render_mode must be one of .*'human', None, got 'humna'$"),
        ({"game": "breakout", "difficulty_ramping": "False"}, r"^difficulty_ramping must be True or False, got 'Fal"),
        ({"game": "breakout", "clip_rewards": "False"}, r"^clip_rewards must be True or False, got 'False'$"),
    ],
)
def test_a_wrong_argument_is_refused_in_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with warnings.catch_warnings(), pytest.raises(ValueError, match=sentence):
        warnings.simplefilter("error")
        create_minatar_environment(**arguments)


@pytest.mark.parametrize("action", [3, -1, 1.5, 1.0, float("nan"), None, "1", np.array([1]), np.float32(1)])
def test_no_such_action_is_refused(action: Any) -> None:
    env = MinAtarEnv("breakout")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=rf"^action must be in 0..2, got {re.escape(repr(action))}$"):
        env.step(action)


def test_a_seed_may_be_as_long_as_gymnasiums() -> None:
    env = MinAtarEnv("asterix")
    env.reset(seed=2**40 + 1)
    first = [env.step(0)[0] for _ in range(50)]
    env.reset(seed=2**40 + 1)
    np.testing.assert_array_equal([env.step(0)[0] for _ in range(50)], first)
    env.reset(seed=1)
    assert not np.array_equal([env.step(0)[0] for _ in range(50)], first)


def test_the_games_are_imported_without_what_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """MinAtar's own import takes seconds, for seaborn; the rules need NumPy alone."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "minatar"]:
        monkeypatch.delitem(sys.modules, name)
    create_minatar_environment("breakout").reset(seed=0)
    assert "minatar.environments.breakout" in sys.modules
    assert "minatar" not in sys.modules
