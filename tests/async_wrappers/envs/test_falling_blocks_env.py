"""FallingBlocksEnv as a Gymnasium environment: registration, spaces, observations, seeds, states, errors."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import async_wrappers
from async_wrappers import RealtimeDelay
from async_wrappers.envs.falling_blocks import FallingBlocksEnv
from async_wrappers.envs.falling_blocks.game import NAMES
from async_wrappers.envs.falling_blocks.observation import (
    BLINKING_TILE,
    EMPTY,
    FALLING,
    FALLING_TILE,
    LOCKED,
    LOCKED_TILE,
)
from async_wrappers.wrappers.default_action import find_noop

NOOP, A, B, LEFT, RIGHT, DOWN = range(6)
T_SEED = 0  # of a game that begins with a T
OBSERVATIONS = ("image", "board", "dict", "vector", "landings")
ACTIONS = st.lists(st.sampled_from([NOOP, A, B, LEFT, RIGHT, DOWN, DOWN, DOWN]), max_size=400)


def played(actions: list[int], seed: int = 0, **kwargs: Any) -> FallingBlocksEnv:
    """Return an environment in which `actions` were played, as far as the game went."""
    env = FallingBlocksEnv(**kwargs)
    env.reset(seed=seed)
    for action in actions:
        if env.step(action)[2]:
            break
    return env


def plain(value: Any) -> Any:
    """Return an observation, or what holds one, as something that can be compared."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def random_actions(seed: int, length: int) -> list[int]:
    return [int(action) for action in np.random.default_rng(seed).integers(6, size=length)]


# Gymnasium


@pytest.mark.parametrize("generator", ["biased", "uniform"])
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_gymnasium_finds_nothing_wrong(observation: str, generator: str) -> None:
    made = gym.make(
        "async_wrappers/FallingBlocks-v0", observation=observation, generator=generator, render_mode="rgb_array"
    )
    check_env(made.unwrapped)


def test_importing_the_package_registers_the_game_and_making_it_imports_it() -> None:
    code = """
import sys, async_wrappers, gymnasium as gym
assert "async_wrappers.envs" not in sys.modules
env = gym.make("async_wrappers/FallingBlocks-v0", level=9, observation="board")
print(type(env.unwrapped).__name__, env.reset(seed=0)[1]["level"])
"""
    root = Path(async_wrappers.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["FallingBlocksEnv", "9"]


def test_the_frame_rate_is_the_game_boys() -> None:
    assert FallingBlocksEnv.metadata["render_fps"] == pytest.approx(4194304 / 70224, abs=1e-4)


def test_the_first_action_is_the_noop_and_realtime_delay_finds_it() -> None:
    env = FallingBlocksEnv(observation="board")
    assert env.get_action_meanings() == ["NOOP", "A", "B", "LEFT", "RIGHT", "DOWN"]
    assert find_noop(env) == NOOP
    delayed = RealtimeDelay(env, delay=3, noops=1, default_action="noop")
    delayed.reset(seed=0)
    info = delayed.step(LEFT)[-1]
    assert info["realtime"]["delay"] == 3


def test_the_actions_are_the_buttons() -> None:
    def falling(*actions: int) -> Any:
        """Return the cells of the piece after `actions`, from the seed's T on an empty field."""
        board = played([*actions], seed=T_SEED, observation="board").step(NOOP)[0]
        return np.argwhere(board == FALLING).tolist()

    bar = [[1, 3], [1, 4], [1, 5]]
    assert falling() == falling(NOOP) == [*bar, [2, 4]]
    assert falling(A) == [[0, 4], [1, 3], [1, 4], [2, 4]]
    assert falling(B) == [[0, 4], [1, 4], [1, 5], [2, 4]]
    assert falling(LEFT) == [[row, column - 1] for row, column in falling()]
    assert falling(RIGHT) == [[row, column + 1] for row, column in falling()]
    assert falling(DOWN) == [[row + 1, column] for row, column in falling()]


# rewards and ends


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), ACTIONS)
def test_rewards_add_up_to_the_score(seed: int, actions: list[int]) -> None:
    env = FallingBlocksEnv(observation="board", level=15)
    _, info = env.reset(seed=seed)
    assert info == {"score": 0, "lines": 0, "level": 15}
    total = 0.0
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        total += reward
        assert info["score"] == total
        assert not truncated
        if terminated:
            break


def test_an_episode_ends_when_the_stack_reaches_the_entry_and_then_needs_a_reset() -> None:
    env = FallingBlocksEnv(level=20, observation="board")
    env.reset(seed=0)
    terminated, frames = False, 0
    while not terminated:
        board, _, terminated, truncated, _ = env.step(NOOP)
        frames += 1
        assert not truncated
        assert frames < 3_000
    assert FALLING not in board
    assert (board[2:4] == LOCKED).any()
    with pytest.raises(ResetNeeded, match="the game is over: call reset"):
        env.step(NOOP)
    board, _ = env.reset()
    assert LOCKED not in board
    env.step(NOOP)


def test_max_frames_truncates_and_a_reset_begins_the_count_anew() -> None:
    env = FallingBlocksEnv(max_frames=5, observation="board")
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(NOOP)[2:4] for _ in range(5)] == [(False, False)] * 4 + [(False, True)]


# seeds and states


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32 - 1), ACTIONS, st.sampled_from(OBSERVATIONS), st.sampled_from(["biased", "uniform"]))
def test_the_same_seed_and_actions_give_the_same_game(
    seed: int, actions: list[int], observation: str, generator: str
) -> None:
    def game() -> list[Any]:
        env = FallingBlocksEnv(level=18, observation=observation, generator=generator)
        outcome: list[Any] = [env.reset(seed=seed)]
        for action in actions:
            outcome.append(env.step(action))
            if outcome[-1][2]:
                break
        return plain(outcome) + plain([env.reset()])  # the next game too

    assert game() == game()


def test_other_seeds_and_later_games_deal_other_pieces() -> None:
    def dealt(env: FallingBlocksEnv, seed: int | None) -> list[int]:
        env.reset(seed=seed)
        pieces = []
        for action in [NOOP, LEFT, NOOP, RIGHT] * 300:
            if env.step(action)[2]:
                break
            pieces.append(env.get_state()["game"]["preview"])
        return pieces

    env = FallingBlocksEnv(level=20, observation="board")
    games = [dealt(env, seed) for seed in (0, 1, 2, None)]
    assert all(first != second for index, first in enumerate(games) for second in games[:index])


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32 - 1), ACTIONS, ACTIONS, st.sampled_from(OBSERVATIONS), st.booleans())
def test_a_state_taken_as_json_restores_the_coming_frames_exactly(
    seed: int, before: list[int], after: list[int], observation: str, fresh: bool
) -> None:
    kwargs: dict[str, Any] = {"level": 18, "observation": observation, "max_frames": 700}
    env = played(before, seed, **kwargs)
    state = json.loads(json.dumps(env.get_state()))
    other = FallingBlocksEnv(**kwargs) if fresh else played([DOWN] * 30, seed + 1, **kwargs)
    other.set_state(state)
    assert other.get_state() == env.get_state() == state
    if env.get_state()["game"]["over"]:
        return
    for action in after:
        outcome = env.step(action)
        assert plain(other.step(action)) == plain(outcome)
        if outcome[2]:
            break
    assert plain(other.reset()) == plain(env.reset())


def test_taking_a_state_changes_nothing_and_later_frames_do_not_change_it() -> None:
    env = played(random_actions(0, 200))
    state = env.get_state()
    kept = copy.deepcopy(state)
    env.step(DOWN)
    for _ in range(300):
        env.step(NOOP)
    assert state == kept
    env.set_state(state)
    assert env.get_state() == kept


def test_a_wrong_state_is_refused_and_changes_nothing() -> None:
    env = played(random_actions(0, 100))
    state = env.get_state()
    with pytest.raises(ValueError, match=r"^state must have the names that get_state returns, .*'frame'"):
        env.set_state({"game": state["game"], "np_random": state["np_random"]})
    with pytest.raises(ValueError, match=r"^rows must be 18 numbers"):
        env.set_state({**state, "game": {**state["game"], "rows": []}})
    assert env.get_state() == state


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_a_copy_or_a_pickle_plays_on_alike(observation: str) -> None:
    env = played(random_actions(1, 150), observation=observation, level=15)
    others = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for action in random_actions(2, 200):
        expected = plain(env.step(action))
        assert all(plain(other.step(action)) == expected for other in others)


# observations


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), ACTIONS, st.integers(0, 20))
def test_board_dict_and_image_show_the_same_game(seed: int, actions: list[int], level: int) -> None:
    env = played(actions, seed, observation="dict", level=level, render_mode="rgb_array")
    state = env.get_state()
    views = {}
    for observation in OBSERVATIONS:
        view = FallingBlocksEnv(observation=observation, level=level)
        view.set_state(state)
        views[observation] = view.observe()
        assert view.observation_space.contains(views[observation])
    board, image = views["board"], views["image"]
    np.testing.assert_array_equal(views["dict"]["board"], board)
    np.testing.assert_array_equal(env.render(), image[:, :, None].repeat(3, axis=2))
    rows = np.array([[row >> column & 1 for column in range(10)] for row in state["game"]["rows"]], bool)
    np.testing.assert_array_equal(board == LOCKED, rows)
    assert set(np.unique(board)) <= {EMPTY, FALLING, LOCKED}
    assert (board == FALLING).sum() == (0 if state["game"]["piece"] == len(NAMES) else 4)
    for row in range(18):
        for column in range(10):
            tile = image[8 * row : 8 * row + 8, 16 + 8 * column : 24 + 8 * column]
            if board[row, column] == EMPTY:
                assert (tile == 250).all()
            elif board[row, column] == FALLING:
                assert (tile == FALLING_TILE).all()
            else:
                assert (tile == LOCKED_TILE).all() or (tile == BLINKING_TILE).all()


def test_a_screen_is_160_by_144_in_four_greys_and_shows_score_level_lines_and_preview() -> None:
    env = played([], observation="image", render_mode="rgb_array")
    state = env.get_state()

    def screen(**changed: Any) -> Any:
        env.set_state({**state, "game": {**state["game"], **changed}})
        return env.render()[:, :, 0]

    image = screen()
    assert image.shape == (144, 160)
    assert set(np.unique(image)) == {0, 82, 168, 250}
    preview = state["game"]["preview"]
    changes = [{"score": 999_999}, {"level": 20}, {"lines": 199}, {"preview": (preview + 1) % 7}]
    for change in changes:
        np.testing.assert_array_equal(screen(), image)
        rows, columns = np.nonzero(screen(**change) != image)
        assert rows.size
        assert columns.min() > 104  # right of the field and its wall
    assert len({screen(**change).tobytes() for change in changes}) == 4


def test_full_rows_blink_three_times_before_they_are_cleared() -> None:
    env = played([], observation="image")
    state = env.get_state()
    cleared = {"rows": [0] * 17 + [1023], "piece": 7, "clearing": 91, "entering": 2}
    env.set_state({**state, "game": {**state["game"], **cleared}})
    shown = [env.observe()] + [env.step(NOOP)[0] for _ in range(91)]
    blinking = [bool((image[-8:, 16:24] == BLINKING_TILE).all()) for image in shown]
    changes = [index for index in range(1, 92) if blinking[index] != blinking[index - 1]]
    assert len(changes) == 6
    assert not blinking[0]
    assert not blinking[-2]
    assert (shown[-1][-8:, 16:96] == 250).all()


@pytest.mark.parametrize("observation", ["board", "image"])
def test_each_observation_is_the_callers_own(observation: str) -> None:
    env, other = (played([DOWN] * 60, observation=observation) for _ in range(2))
    first = env.step(NOOP)[0]
    first[:] = 77
    other.step(NOOP)
    np.testing.assert_array_equal(env.step(NOOP)[0], other.step(NOOP)[0])
    assert (first == 77).all()


def test_the_dict_tells_piece_preview_level_and_timers() -> None:
    env = FallingBlocksEnv(observation="dict", level=9)
    observation, _ = env.reset(seed=0)
    game = env.get_state()["game"]
    assert observation["piece"] == game["piece"]
    assert observation["preview"] == game["preview"]
    assert (observation["level"], observation["fall_timer"], observation["delay"]) == (9, 11, 0)
    for frame in range(1, 16 * 11 + 1):
        observation = env.step(NOOP)[0]
        assert observation["fall_timer"] == 11 - frame % 11 or observation["piece"] == 7
    assert (observation["piece"], observation["delay"]) == (7, 2)
    assert [env.step(NOOP)[0]["delay"] for _ in range(3)] == [1, 0, 0]


# errors


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"level": 21}, r"^level must be a whole number between 0 and 20, got 21$"),
        ({"level": -1}, r"^level must be a whole number between 0 and 20, got -1$"),
        ({"level": 2.5}, r"^level must be a whole number between 0 and 20, got 2\.5$"),
        ({"generator": "bag"}, r"^generator must be one of 'biased', 'uniform', got 'bag'$"),
        (
            {"observation": "ram"},
            r"^observation must be one of .* 'vector', 'landings', got 'ram'$",
        ),
        (
            {"observation": ["board"]},
            r"^observation must be one of .* 'vector', 'landings', got \['board'\]$",
        ),
        ({"max_frames": 0}, r"^max_frames must be a whole number of frames >= 1, or None, got 0$"),
        ({"render_mode": "human"}, r"^render_mode must be one of 'rgb_array', None, got 'human'$"),
    ],
)
def test_a_wrong_argument_is_refused_by_name_value_and_remedy(kwargs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FallingBlocksEnv(**kwargs)


@pytest.mark.parametrize("action", [6, -1])
def test_an_unknown_action_is_refused_and_changes_nothing(action: int) -> None:
    env = played([])
    state = env.get_state()
    with pytest.raises(ValueError, match=rf"^action must be in 0\.\.5, got {action}$"):
        env.step(action)
    assert env.get_state() == state


def test_before_the_first_reset_there_is_nothing_to_step_or_to_save() -> None:
    env = FallingBlocksEnv(render_mode="rgb_array")
    for call in (lambda: env.step(NOOP), env.get_state, env.render):
        with pytest.raises(ResetNeeded, match="no game has begun: call reset"):
            call()


def test_rendering_without_a_mode_warns_and_returns_none() -> None:
    with pytest.warns(UserWarning, match="render_mode"):
        assert played([]).render() is None
