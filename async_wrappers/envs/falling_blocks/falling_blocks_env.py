"""The Gymnasium environment: one `step` is one frame of 1/59.7275 s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete

from async_wrappers.checks import whole
from async_wrappers.envs.falling_blocks.game import ACTIONS, GENERATORS, MAX_LEVEL, Game
from async_wrappers.envs.falling_blocks.observation import OBSERVATIONS as SEEN
from async_wrappers.envs.falling_blocks.observation import Observation, Screen
from async_wrappers.envs.falling_blocks.player import Landings

FRAMES_PER_SECOND = 59.7275  # 4194304 / 70224
OBSERVATIONS: dict[str, Callable[[], Observation | Landings]] = {**SEEN, "landings": Landings}
_BUTTONS = tuple(ACTIONS.values())


class FallingBlocksEnv(gym.Env[Any, Any]):
    """Falling blocks on a field of 10 x 18 cells, at the speed and with the rules of the Game Boy's game.

    An action is the one button that is held for the frame: ``NOOP``, ``A`` (turn right), ``B`` (turn left), ``LEFT``,
    ``RIGHT``, ``DOWN`` (soft drop). A button that was held in the last frame too is *held*, not pressed anew: it turns
    a piece once, and shifts it again after 23 frames and then every 9. The reward is the gain in score. An episode
    ends when the next piece finds no room.

    Args:
        level: Level at the start, 0 to 20: from 53 to 3 frames per row.
        generator: ``"biased"``, the original's, or ``"uniform"``.
        observation: ``"image"`` (uint8 `[144, 160]`), ``"board"`` (uint8 `[18, 10]`), ``"dict"``, ``"vector"`` (uint8
            `[261]`; see `observation`) or ``"landings"`` (uint8 `[681]`; see `Landings`).
        max_frames: Frames after which an episode is truncated; None for never.
        render_mode: ``"rgb_array"`` or None.

    Raises:
        ValueError: An argument is none of these.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}

    def __init__(
        self,
        level: int = 0,
        generator: str = "biased",
        observation: str = "image",
        max_frames: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        level = whole("level", level, 0, MAX_LEVEL)
        if max_frames is not None:
            max_frames = whole("max_frames", max_frames, 1, unit="frames", or_none=True)
        _check("generator", generator, tuple(GENERATORS))
        _check("observation", observation, tuple(OBSERVATIONS))
        _check("render_mode", render_mode, (*self.metadata["render_modes"], None))
        self.render_mode = render_mode
        self.action_space = Discrete(len(ACTIONS))
        self._view = OBSERVATIONS[observation]()
        self.observation_space = self._view.space
        self._level, self._max_frames = level, max_frames
        self._generator = GENERATORS[generator]
        self._screen = Screen()
        self._game: Game | None = None
        self._frame = 0

    def get_action_meanings(self) -> list[str]:
        """Return the button of each action; the first one is ``"NOOP"``."""
        return list(ACTIONS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a game; its first piece has entered. `options` are not used."""
        super().reset(seed=seed)
        self._game = Game(self._level, self._generator(self.np_random))
        self._frame = 0
        return self.observe(), _info(self._game)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one frame with the button of `action` held.

        Raises:
            ValueError: No such action.
            gymnasium.error.ResetNeeded: The game is over, or has not begun.
        """
        game = self._begun()
        if game.over:
            raise ResetNeeded("the game is over: call reset() before step()")
        if not 0 <= action < len(_BUTTONS):
            raise ValueError(f"action must be in 0..{len(_BUTTONS) - 1}, got {action!r}")
        points = game.step(_BUTTONS[action])
        self._frame += 1
        truncated = self._frame == self._max_frames
        return self.observe(), float(points), game.over, truncated, _info(game)

    def observe(self) -> Any:
        """Return the newest observation, also after `set_state`.

        Raises:
            gymnasium.error.ResetNeeded: No game has begun.
        """
        return self._view(self._begun())

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return the screen, uint8 `[144, 160, 3]`, with ``render_mode="rgb_array"``; else None."""
        if self.render_mode is None:
            gym.logger.warn("render() needs a render_mode: make the environment with render_mode='rgb_array'")
            return None
        return np.stack([self._screen(self._begun())] * 3, axis=-1)

    def get_state(self) -> dict[str, Any]:
        """Return everything that the coming frames depend on but the constructor's arguments, as plain data.

        Raises:
            gymnasium.error.ResetNeeded: No game has begun.
        """
        return {
            "game": self._begun().get_state(),
            "frame": self._frame,
            "np_random": self.np_random.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `get_state`, perhaps of another environment with the same arguments.

        Raises:
            ValueError: `state` is not of that form.
        """
        if wrong := set(state) ^ {"game", "frame", "np_random"}:
            raise ValueError(f"state must have the names that get_state returns, got these too many or few: {wrong}")
        if self._game is None:
            self.reset()
        self._begun().set_state(state["game"])
        self._frame = state["frame"]
        self.np_random.bit_generator.state = state["np_random"]

    def _begun(self) -> Game:
        if self._game is None:
            raise ResetNeeded("no game has begun: call reset() first")
        return self._game


def _info(game: Game) -> dict[str, Any]:
    return {"score": game.score, "lines": game.lines, "level": game.level}


def _check(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
