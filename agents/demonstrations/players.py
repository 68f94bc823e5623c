"""Players of an episode that is recorded: a person at the keyboard, chance, or a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym

from async_wrappers.agents.demonstrations.demonstration import EpisodeRecorder
from async_wrappers.extras import extra
from async_wrappers.frame_rate import frame_rate

Player = Callable[[Any], Any]
"""A function from the newest observation to the action of this frame."""

# A Game Boy's screen is 160 x 144.
ZOOM = 3
# pygame's key of each word in an action's meaning, such as "UP" and "FIRE" in "UP+FIRE".
_KEYS = {word: f"K_{word}" for word in ("UP", "DOWN", "LEFT", "RIGHT")}
_KEYS |= {"FIRE": "K_SPACE", "A": "K_x", "B": "K_z", "START": "K_RETURN", "SELECT": "K_BACKSPACE"}


def make_player(name: str, environment: gym.Env[Any, Any], seed: int) -> Player:
    """Return the player ``"random"``, or the result of the function ``"module:function"`` of the environment.

    Raises:
        ValueError: There is no such module or function, it raises an error, or it does not return a function.
    """
    if name == "random":
        environment.action_space.seed(seed)
        return lambda observation: environment.action_space.sample()
    module, colon, function = name.partition(":")
    if not colon:
        close = get_close_matches(name, ("human", "random"), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"player must be 'human', 'random' or 'MODULE:FUNCTION', got {name!r}{hint}")
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"player {name!r} cannot be imported ({error})") from None
    try:
        player: Player = make(environment)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"player {name!r} could not be made for the environment ({what})") from error
    if not callable(player):
        raise ValueError(f"player {name!r} must return a function from an observation to an action, got {player!r}")
    return player


class Script:
    """Lets a function play.

    Args:
        player: Chooses each frame's action.
        max_frames: Frames after which an episode is truncated; None for no limit.
    """

    def __init__(self, player: Player, max_frames: int | None = None) -> None:
        self._player, self._max_frames = player, max_frames

    def play(self, recorder: EpisodeRecorder, seeds: Sequence[int]) -> None:
        """Play an episode for each seed."""
        for seed in seeds:
            observation, _ = recorder.reset(seed=seed)
            frames, over = 0, False
            while not over and frames != self._max_frames:
                observation, _, terminated, truncated, _ = recorder.step(self._player(observation))
                frames, over = frames + 1, terminated or truncated
            recorder.truncate_episode()


class Keyboard:
    """Lets a person play in a window, at the environment's frame rate.

    The keys: arrows; space is FIRE; x and z are A and B; return and backspace are START and SELECT. An environment
    with keys of its own (``get_keys_to_action``) keeps them. ESC ends the recording.

    Args:
        environment: An environment with ``render_mode="rgb_array"``.
        fps: Frames per second; None for the environment's (`async_wrappers.frame_rate.frame_rate`).

    Raises:
        ValueError: The environment does not render, does not name its actions, or does not say its frame rate.
        gymnasium.error.DependencyNotInstalled: pygame is missing.
    """

    def __init__(self, environment: gym.Env[Any, Any], fps: float | None = None) -> None:
        if environment.render_mode != "rgb_array":
            raise ValueError(
                f"a person needs an environment with render_mode='rgb_array', got {environment.render_mode!r}: use "
                "create_gym_environment or create_atari_environment, or another player"
            )
        with extra("a person's play", "play"):
            import pygame  # noqa: F401
        from gymnasium.utils.play import play

        has_keys = environment.has_wrapper_attr("get_keys_to_action")
        keys, noop = (None, 0) if has_keys else _keys(environment)
        rate: Any = frame_rate(environment) if fps is None else fps
        self._play = partial(play, fps=rate, zoom=ZOOM, keys_to_action=keys, noop=noop)

    def play(self, environment: gym.Env[Any, Any], seeds: Sequence[int]) -> None:
        """Play an episode for each seed, or until ESC."""
        try:
            self._play(_EpisodeLimit(environment, seeds))
        except _LimitReached:
            import pygame

            pygame.quit()


def _keys(environment: gym.Env[Any, Any]) -> tuple[dict[tuple[int, ...], int], int]:
    """Return the action of each combination of keys, and the action without a key, by the actions' meanings."""
    import pygame

    named = environment.has_wrapper_attr("get_action_meanings")
    meanings = [str(meaning) for meaning in environment.get_wrapper_attr("get_action_meanings")()] if named else []
    keys = {
        tuple(getattr(pygame, _KEYS[word]) for word in meaning.split("+")): action
        for action, meaning in enumerate(meanings)
        if all(word in _KEYS for word in meaning.split("+"))
    }
    if not keys:
        raise ValueError(
            f"a person needs an environment that names its actions, got {meanings or 'no names'}: give it "
            "get_keys_to_action(), or take another player"
        )
    return keys, meanings.index("NOOP") if "NOOP" in meanings else 0


class _LimitReached(Exception):
    """The limit of episodes is reached."""


class _EpisodeLimit(gym.Wrapper[Any, Any, Any, Any]):
    """Gives each episode its seed, and raises `_LimitReached` at the reset after the last.

    Gymnasium's `play` has one seed and goes on until ESC.
    """

    def __init__(self, env: gym.Env[Any, Any], seeds: Sequence[int]) -> None:
        super().__init__(env)
        self._seeds, self._begun, self._over = seeds, 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._over and self._begun == len(self._seeds):
            raise _LimitReached
        self._begun += self._over
        self._over = False
        return self.env.reset(seed=self._seeds[self._begun - 1], options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._over = result[2] or result[3]
        return result
