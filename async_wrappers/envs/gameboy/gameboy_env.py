"""A Game Boy game as a Gymnasium environment, one emulated frame per step."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from async_wrappers.checks import whole
from async_wrappers.envs.gameboy.emulator import Console
from async_wrappers.envs.gameboy.game_spec import Memory, Spec
from async_wrappers.envs.gameboy.rom_files import StateSource, read_rom, write_file
from async_wrappers.schedule.frames import FrameClock

_MOST_STARTS = 20  # times that a state is loaded until its beginning succeeds
_SCREEN = (144, 160, 3)


class GameBoyEnv(gym.Env[Any, Any], gym.utils.EzPickle):
    """Plays a game on PyBoy with the user's own ROM.

    One ``step`` is one frame of 1/59.7275 s: the action's buttons are held for it, then released. Observations are
    new arrays. The picture lags the memory by a frame, see docs/reference/game_boy.md.

    ``info`` holds the numbers of the memory that the game's rule watches, after ``reset`` also ``"state"``, the name of
    the save state. Where the states are encounters, it holds after the last frame ``"won"``: True or False if the
    episode's last reward that is not 0 was 1 or -1, else None; and `encounter` is the number of the next one. It is the
    newest memory, so a policy that reads it sees more than a player.

    Nothing is read or written beside the ROM. An environment can be pickled: the copy is a new one, not reset. Several
    run in parallel in threads (the emulator gives up Python's lock while it works) or processes; one environment
    belongs to one thread at a time.

    Args:
        rom: Path of the ROM.
        spec: The game.
        states: The directory with the save states that `spec` names, as ``NAME.state``: gym-retro's, or PyBoy's as the
            converter writes them. The published repository's ``custom_integrations`` or one of its folders will do.
        state: First state of an episode: the name or the number of one of the spec's states, or a path of a file
            with another; by default the spec's first state, and where the spec says so the next one after a win.
        obs_type: ``"grayscale"`` (uint8 [screen_size, screen_size]), ``"rgb"`` (uint8 [144, 160, 3]) or ``"ram"``
            (uint8 [n], the bytes of the spec's numbers in their order; no frame is drawn).
        screen_size: Height and width of the grey picture in pixels.
        look_every: Draw only each so-many-th frame after a reset; on the others (one may be the episode's last) the
            observation is the last picture. Under ``RealtimeDelay(delay, noops)`` decisions read only each
            ``noops + 1``-th frame. With `render_mode` all frames are drawn.
        fps: Frames per second; the spec's by default. ``"human"`` keeps to it.
        sound: Emulate sound, which takes longer. The game is the same, unless it reads its sound registers.
        render_mode: ``"rgb_array"`` or ``"human"`` (a window).

    Raises:
        ValueError: The ROM, a state or another argument is wrong; one sentence names the right values.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 59.7275}

    def __init__(
        self,
        rom: str | os.PathLike[str] | None,
        spec: Spec,
        states: str | os.PathLike[str] | None = None,
        state: str | int | os.PathLike[str] | None = None,
        obs_type: str = "grayscale",
        screen_size: int = 84,
        look_every: int = 1,
        fps: float | None = None,
        sound: bool = False,
        render_mode: str | None = None,
    ) -> None:
        gym.utils.EzPickle.__init__(
            self, rom, spec, states, state, obs_type, screen_size, look_every, fps, sound, render_mode
        )
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None, 'human' or 'rgb_array', got {render_mode!r}")
        self._spec, self._size = spec, whole("screen_size", screen_size, 1)
        self.render_mode = render_mode
        self._clock = FrameClock(spec.fps if fps is None else fps)
        self.metadata = {**self.metadata, "render_fps": float(self._clock.fps)}
        look_every = whole("look_every", look_every, 1)
        self._draw_every = 1 if render_mode is not None else 0 if obs_type == "ram" else look_every
        self.observation_space = self._space(obs_type)
        self._obs_type = obs_type
        self._buttons = tuple(frozenset(buttons) for buttons in spec.actions.values())
        self.action_space = gym.spaces.Discrete(len(self._buttons))
        self._rule = spec.rule()
        content = read_rom(rom, spec.roms)
        self._source = StateSource(spec, states, state)
        self._console = Console(content, sound, window=render_mode == "human")
        memory, color = self._console.memory, self._console.color
        self._readers = {name: field.reader(memory, color) for name, field in spec.ram.items()}
        self._watched = tuple((name, self._readers[name]) for name in self._rule.watched)
        self._bytes = [key for field in spec.ram.values() for key in field.keys(color)]
        self._running, self._won = False, False
        self._seen: Any = None  # the last observation

    def get_action_meanings(self) -> list[str]:
        """Return the meaning of each action."""
        return list(self._spec.actions)

    @property
    def encounter(self) -> int | None:
        """Number of the encounter that the next episode in the spec's order plays; None where no order is followed.

        Set it to go on from there, to None to begin with the first.

        Raises:
            ValueError: No order is followed, or there is no such encounter.
        """
        return self._source.upcoming(self._won)

    @encounter.setter
    def encounter(self, number: int | None) -> None:
        self._source.go_to(number)

    phase_state = encounter  # `AsyncRunner` keeps it from one phase to the next of its kind

    def read(self, name: str) -> int:
        """Return a number of the memory, by its name in the spec, such as ``"money"``.

        Raises:
            ValueError: The spec has no such number.
        """
        if name not in self._readers:
            raise ValueError(f"name must be one of {', '.join(self._readers)}, got {name!r}")
        return self._readers[name]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode from a save state: load it, let one frame pass without buttons, run the spec's start.

        Args:
            seed: Of the environment's generator.
            options: ``"state"``: as the argument `state`, or the bytes of a state, for this episode alone.

        Raises:
            ValueError: The state cannot be read, or is not of this game.
        """
        super().reset(seed=seed)
        won, self._running, self._won = self._won, False, False
        name, content, start = self._source.next(won, (options or {}).get("state"))
        for _ in range(_MOST_STARTS):
            self._load(name, content)
            self._console.frame(draw=self._draw_every > 0)
            if start is None or start(self._console, self._ram, self.np_random):
                break
        else:
            raise ValueError(f"state {name}: the game did not begin in {_MOST_STARTS} tries: give a state of its menu")
        return self._begin(name)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Hold the action's buttons for one frame.

        Raises:
            ResetNeeded: The episode is over, or none has begun.
            ValueError: There is no such action.
        """
        if not self._running:
            raise ResetNeeded("GameBoyEnv: call reset() before step(): no episode is running")
        if not 0 <= action < len(self._buttons):
            raise ValueError(f"action must be a whole number from 0 to {len(self._buttons) - 1}, got {action!r}")
        self._frame += 1
        draw = self._draw_every > 0 and self._frame % self._draw_every == 0
        self._console.frame(self._buttons[action], draw)
        ram = {name: read() for name, read in self._watched}
        reward, over = self._rule.step(ram)
        info: dict[str, Any] = ram.copy()  # the rule keeps its own
        if reward:
            self._decided = reward
        if over:
            self._running, self._won = False, self._decided == 1
            if self._spec.goes_on:
                info["won"] = self._won if abs(self._decided) == 1 else None
        self._seen = self._observe() if draw or not self._draw_every else self._seen.copy()
        if self.render_mode == "human":
            self._wait()
        return self._seen, reward, over, False, info

    def render(self) -> Any:
        """Return the newest frame, uint8 [144, 160, 3] (``"rgb_array"``); a window shows it by itself."""
        return self._console.rgb() if self.render_mode == "rgb_array" else None

    def save_state(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """Return the game's state, and write it to a file if one is given. It can be given to `reset`.

        The file is one that PyBoy loads, too; it says of which ROM it is, and other ROMs refuse it.
        """
        content = self._console.save()
        if path is not None:
            write_file("path", path, content)
        return content

    def load_state(self, content: bytes) -> tuple[Any, dict[str, Any]]:
        """Begin an episode exactly where `save_state` was called, without a frame in between.

        The same frames follow as then. The rule begins anew: it compares later frames with this one. The
        observation is the picture that was drawn last before the state was saved.

        Raises:
            ValueError: The state is not of this game.
        """
        self._running = False
        self._load("given", content)
        return self._begin("given")

    def close(self) -> None:
        """Switch the console off. Nothing is saved."""
        self._running = False
        self._console.stop()

    def _space(self, obs_type: str) -> gym.Space[Any]:
        ram_bytes = sum(field.size for field in self._spec.ram.values())
        shapes = {"grayscale": (self._size, self._size), "rgb": _SCREEN, "ram": (ram_bytes,)}
        if obs_type not in shapes:
            raise ValueError(f"obs_type must be 'grayscale', 'rgb' or 'ram', got {obs_type!r}")
        return gym.spaces.Box(0, 255, shapes[obs_type], np.uint8)

    def _load(self, name: str, content: bytes | None) -> None:
        """Put the console into a state and see that it is one of this game."""
        try:
            self._console.load(content) if content is not None else self._console.boot()
        except ValueError as error:
            raise ValueError(f"state {name}: {error}") from None
        if content is None:
            return
        for number, values in self._spec.plausible.items():
            if (found := self._readers[number]()) not in values:
                raise ValueError(
                    f"state {name}: it is not of {self._spec.title}: {number} must be in {values}, got {found}; give "
                    "the states of this very game"
                )

    def _begin(self, name: str) -> tuple[Any, dict[str, Any]]:
        self._frame, self._decided, self._won = 0, 0.0, False
        ram = self._ram()
        self._rule.begin(ram)
        self._seen = self._observe()
        self._running, self._begun = True, time.monotonic_ns()
        return self._seen, {**ram, "state": name}

    def _ram(self) -> Memory:
        return {name: read() for name, read in self._watched}

    def _observe(self) -> Any:
        if self._obs_type == "rgb":
            return self._console.rgb()
        if self._obs_type == "grayscale":
            return self._console.grayscale(self._size)
        memory = self._console.memory
        return np.frombuffer(bytearray([memory[key] for key in self._bytes]), np.uint8)

    def _wait(self) -> None:
        """Sleep until the next frame is due; a late one does not shift the others."""
        ahead = self._begun + self._clock.begin(self._frame) - time.monotonic_ns()
        if ahead > 0:
            time.sleep(ahead / 1e9)
