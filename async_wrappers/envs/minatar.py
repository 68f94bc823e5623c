"""MinAtar: five Atari games on 10 x 10 cells, for studies that take hours in the place of weeks.

Young and Tian, "MinAtar: An Atari-inspired testbed for thorough and reproducible reinforcement learning experiments",
2019, arXiv 1903.03176. The games are those of the package ``MinAtar`` (the extra `minatar`), frame for frame those of
its Gymnasium environments ``MinAtar/<Game>-v1``. What is added here is what realtime play, seeding and checkpoints
need; `MinAtarEnv` lists it.
"""

from __future__ import annotations

import colorsys
import copy
import operator
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete

from async_wrappers.checks import choice, flag, number, whole
from async_wrappers.envs.factories import Wrapper, wrap
from async_wrappers.extras import extra, ignored_warnings

MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
STICKY_PROBABILITY = 0.1  # the authors', of MinAtar's own
FRAMES_PER_SECOND = 60  # a convention of ours: MinAtar has no time
LONGEST_EPISODE = 10_000  # frames, 167 s; MinAtar has no limit but Freeway's 2,500
_MEANINGS = {"n": "NOOP", "l": "LEFT", "u": "UP", "r": "RIGHT", "d": "DOWN", "f": "FIRE"}
_CELL = 16  # pixels of a picture


class MinAtarEnv(gym.Env[Any, Any]):
    """A game of MinAtar with its minimal actions, registered as ``async_wrappers/MinAtar-Breakout-v1`` and so on.

    Frames and rewards are those of ``MinAtar/Breakout-v1`` for the same seed and actions. What differs:

    * Observations are bool `[n, 10, 10]`, channels first, as networks of PyTorch read them, and contiguous in memory.
    * A reset forgets the last action. In MinAtar the first frame of an episode may repeat that of the one before, so
      that an episode would not follow from its seed.
    * `get_action_meanings` names the actions; the first is the no-op, a default action under delay.
    * One frame lasts 1/60 s, a convention (``metadata["render_fps"]``), so that delays can be read as milliseconds.
    * ``render_mode="rgb_array"`` needs neither seaborn nor matplotlib, and importing the games does not load them.

    Args:
        game: One of `MINATAR_GAMES`; ``"Breakout"`` and ``"MinAtar/Breakout-v1"`` are ``"breakout"``.
        sticky_probability: Probability that a frame repeats the last action in the place of the one that was given.
        difficulty_ramping: Whether Asterix, Seaquest and Space Invaders become faster, as the authors' do.
        render_mode: ``"rgb_array"`` or None.

    Raises:
        ValueError: An unknown game (the sentence names the closest ones), no probability, or no such render mode.
        DependencyNotInstalled: The extra `minatar` is missing.

    Example:
        >>> env = RealtimeDelay(MinAtarEnv("breakout"), delay=8, noops=0)  # 133 ms
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}

    def __init__(
        self,
        game: str,
        sticky_probability: float = STICKY_PROBABILITY,
        difficulty_ramping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        name = find_minatar_game(game)
        if render_mode not in (*self.metadata["render_modes"], None):
            raise ValueError(f"render_mode must be 'rgb_array' or None, got {render_mode!r}")
        self._sticky = number("sticky_probability", sticky_probability, "a share from 0 to 1", lambda p: 0 <= p <= 1)
        self.render_mode = render_mode
        self._game: Any = _game_module(name).Env(ramping=flag("difficulty_ramping", difficulty_ramping))
        self._actions: list[int] = self._game.minimal_action_set()
        height, width, channels = self._game.state_shape()
        self.action_space = Discrete(len(self._actions))
        self.observation_space = Box(0, 1, (channels, height, width), np.bool_)
        self._last_action = 0

    def get_action_meanings(self) -> list[str]:
        """Return the meaning of each action; the first one is ``"NOOP"``."""
        return [_MEANINGS[self._game.action_map[action]] for action in self._actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. `options` are not used."""
        super().reset(seed=seed)
        if seed is not None:
            # MinAtar's generator, seeded as MinAtar's environments seed it; it takes no more than 32 bits at once.
            self._game.random = np.random.RandomState(seed if seed < 2**32 else _words(seed))
        self._game.reset()
        self._last_action = 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one frame.

        Raises:
            ValueError: No such action.
        """
        try:
            place = operator.index(action)
        except TypeError:  # 1.5 is no action, nor is an array of one
            place = -1
        if not 0 <= place < len(self._actions):
            raise ValueError(f"action must be in 0..{len(self._actions) - 1}, got {action!r}")
        if self._game.random.rand() >= self._sticky:
            self._last_action = self._actions[place]
        reward, terminated = self._game.act(self._last_action)
        return self._observed(), float(reward), bool(terminated), False, {}

    def branch(self, random: np.random.RandomState) -> MinAtarEnv:
        """Return a copy that goes on from this frame by the numbers of another generator: one future of several.

        It has this frame's objects, timers and difficulty, and the last action, which a sticky frame repeats. What it
        plays changes nothing here. Unlike `copy.deepcopy` it does not copy the generator, and takes some microseconds.

        Args:
            random: Of the copy. Several copies may share one, if they are played one after the other.
        """
        future, game = copy.copy(self), copy.copy(self._game)
        for name, value in vars(game).items():
            if isinstance(value, list):  # of numbers, or of objects that are lists of numbers
                setattr(game, name, [each.copy() if isinstance(each, list) else each for each in value])
            elif isinstance(value, np.ndarray):
                setattr(game, name, value.copy())
        game.random = random
        future._game = game
        return future

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return the cells, uint8 `[160, 160, 3]`, with ``render_mode="rgb_array"``; else None."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: make the environment with render_mode='rgb_array'")
            return None
        cells = self._game.state()
        # Where several channels are set, the last one is seen, as in MinAtar's own pictures.
        seen = (cells * np.arange(1, cells.shape[2] + 1)).max(axis=2)
        pixels: npt.NDArray[np.uint8] = _palette(cells.shape[2])[seen]
        return pixels.repeat(_CELL, axis=0).repeat(_CELL, axis=1)

    def _observed(self) -> npt.NDArray[np.bool_]:
        return np.ascontiguousarray(self._game.state().transpose(2, 0, 1))


def create_minatar_environment(
    game: str,
    sticky_probability: float = STICKY_PROBABILITY,
    difficulty_ramping: bool = True,
    max_episode_steps: int | None = LONGEST_EPISODE,
    clip_rewards: bool = False,
    wrappers: Sequence[Wrapper] = (),
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """Make a game of MinAtar and wrap it.

    Args:
        game: ``"asterix"``, ``"breakout"``, ``"freeway"``, ``"seaquest"`` or ``"space_invaders"``.
        sticky_probability: Probability that a frame repeats the last action, the authors' 0.1.
        difficulty_ramping: Whether the games become faster, as the authors' do.
        max_episode_steps: Frames after which an episode is truncated, 10,000 by default (167 s; the authors have
            none); None for none.
        clip_rewards: Clip each frame's reward to [-1, 1], inside all `wrappers`; the authors do not.
        wrappers: Applied in this order, the first one innermost, such as ``[@AppliedActions, @RealtimeDelay]``.
        render_mode: ``"rgb_array"``, or ``"human"`` for a window.

    Raises:
        ValueError: An unknown game (the sentence names the closest ones), or an argument out of range.
        DependencyNotInstalled: The extra `minatar` is missing.
    """
    name = find_minatar_game(game)
    if max_episode_steps is not None:
        whole("max_episode_steps", max_episode_steps, 1, unit="frames", or_none=True)
    choice("render_mode", render_mode, ("rgb_array", "human", None))
    # Gymnasium warns that its wrapper shows the window, which is what is asked for here.
    with ignored_warnings(".*'human' rendering"):
        env: gym.Env[Any, Any] = gym.make(
            _id(name),
            max_episode_steps=-1 if max_episode_steps is None else max_episode_steps,
            disable_env_checker=True,
            sticky_probability=sticky_probability,
            difficulty_ramping=difficulty_ramping,
            render_mode=render_mode,
        )
    return wrap(env, clip_rewards, wrappers)


def find_minatar_game(game: str) -> str:
    """Return the name of a game, one of `MINATAR_GAMES`, from one of its spellings.

    Raises:
        ValueError: No game has that name; the sentence names the closest ones.
    """
    plain = str(game).rpartition("/")[2].removesuffix("-v1").removeprefix("MinAtar-").lower().replace("_", "")
    spellings = {name.replace("_", ""): name for name in MINATAR_GAMES}
    if isinstance(game, str) and plain in spellings:
        return spellings[plain]
    close = get_close_matches(plain, spellings, n=1)
    hint = f"; did you mean {spellings[close[0]]!r}?" if close else ""
    raise ValueError(f"game must be one of MinAtar's {', '.join(map(repr, MINATAR_GAMES))}, got {game!r}{hint}")


def _id(name: str) -> str:
    return f"async_wrappers/MinAtar-{name.title().replace('_', '')}-v1"


def _game_module(name: str) -> Any:
    """Import the rules of a game, and nothing else of MinAtar: the package itself would import seaborn for seconds.

    Raises:
        DependencyNotInstalled: The extra `minatar` is missing.
    """
    full = f"minatar.environments.{name}"
    if sys.modules.get(full) is not None:
        return sys.modules[full]
    with extra("a game of MinAtar", "minatar"):
        package = find_spec("minatar")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("No module named 'minatar'")
        spec = spec_from_file_location(full, Path(package.origin).parent / "environments" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    # By its own name, so that copies of a game can be pickled.
    sys.modules[full] = module
    return module


def _words(seed: int) -> npt.NDArray[Any]:
    return np.random.SeedSequence(seed).generate_state(8)


@cache
def _palette(channels: int) -> npt.NDArray[np.uint8]:
    """Return a colour for no channel, black, and one for each channel: hues around the circle, ever brighter."""
    colours = [(0.0, 0.0, 0.0)]
    for channel in range(channels):
        share = channel / channels
        colours.append(colorsys.hls_to_rgb((0.6 + share) % 1.0, 0.45 + 0.35 * share, 0.75))
    return np.round(np.array(colours) * 255).astype(np.uint8)
