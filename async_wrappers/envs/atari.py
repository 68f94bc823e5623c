"""Atari 2600 games, with the ROMs that come inside ale-py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing, RepeatAction

from async_wrappers.checks import whole, whole_frames
from async_wrappers.envs.wrapping import Wrapper, wrap

__all__ = ["create_atari_environment", "find_atari_game"]

STICKY_PROBABILITY = 0.25  # Machado et al. 2018, section 5.2
EMULATED_FRAMES_PER_SECOND = 60


def create_atari_environment(
    game_name: str,
    frame_skip: int = 4,
    sticky_actions: bool = True,
    full_action_space: bool = False,
    terminal_on_life_loss: bool = False,
    obs_type: str = "grayscale",
    screen_size: int = 84,
    noop_max: int = 0,
    clip_rewards: bool = True,
    wrappers: Sequence[Wrapper] = (),
    render_mode: str | None = None,
) -> gym.Env[Any, Any]:
    """Make an Atari game and wrap it.

    The defaults are Dopamine's (Machado et al., "Revisiting the Arcade Learning Environment", 2018): four emulated
    frames per step, maximum over the last two, 84 x 84 grey by area interpolation, sticky actions. For realtime play
    frame by frame (arXiv 2412.14355) use ``frame_skip = 1, sticky_actions = False``.

    Whatever `frame_skip` is, one ``step`` of the game is one *frame* of the schedule.

    Args:
        game_name: ``"Boxing"``, or an id such as ``"BoxingNoFrameskip-v4"`` or ``"ALE/Boxing-v5"``, of which only the
            game counts.
        frame_skip: Emulated frames of 1/60 s per step.
        sticky_actions: Repeat the last action with probability 0.25 on each emulated frame.
        full_action_space: All 18 actions, also where the game knows fewer.
        terminal_on_life_loss: End the episode when a life is lost (``"grayscale"`` only).
        obs_type: ``"grayscale"`` (uint8 [screen_size, screen_size]) or ``"ram"`` (uint8 [128]).
        screen_size: Height and width of the image in pixels.
        noop_max: Begin each episode with 1 to `noop_max` emulated frames of no-op, drawn by the game's generator.
        clip_rewards: Clip each step's reward to [-1, 1], inside all `wrappers`.
        wrappers: Applied in this order, the first one innermost, such as ``[@AppliedActions, @RealtimeDelay]``.
        render_mode: Gymnasium's, such as ``"human"`` or ``"rgb_array"``.

    Raises:
        ValueError: An unknown game (the sentence names the closest ones), observation type or frame skip.
    """
    if obs_type not in ("grayscale", "ram"):
        raise ValueError(f"obs_type must be 'grayscale' or 'ram', got {obs_type!r}")
    frame_skip = whole("frame_skip", frame_skip, 1, unit="emulated frames")
    noop_max = whole_frames("noop_max", noop_max)
    if obs_type == "ram" and terminal_on_life_loss:
        raise ValueError("terminal_on_life_loss=True needs obs_type='grayscale', got obs_type='ram'")
    pixels = obs_type == "grayscale"
    env: gym.Env[Any, Any] = gym.make(
        find_atari_game(game_name),
        obs_type=obs_type,
        frameskip=1,  # skipped below: no-op frames are emulated frames, and images are made of the last two
        repeat_action_probability=STICKY_PROBABILITY if sticky_actions else 0.0,
        full_action_space=full_action_space,
        render_mode=render_mode,
    )
    # One step of the innermost environment is one emulated frame; ale-py says 30, whatever it skips.
    env.unwrapped.metadata = {**env.unwrapped.metadata, "render_fps": EMULATED_FRAMES_PER_SECOND}
    if pixels:
        env = AtariPreprocessing(
            env,
            noop_max=noop_max,
            frame_skip=int(frame_skip),
            screen_size=screen_size,
            terminal_on_life_loss=terminal_on_life_loss,
        )
    else:
        env = NoopReset(env, noop_max) if noop_max else env
        env = RepeatAction(env, int(frame_skip)) if frame_skip > 1 else env
    return wrap(env, clip_rewards, wrappers)


def find_atari_game(game_name: str) -> str:
    """Return the registered id of a game, such as ``"ALE/Boxing-v5"``, from one of its many spellings.

    Raises:
        ValueError: No game has that name; the sentence names the closest ones.
    """
    import ale_py  # registers the games with Gymnasium

    gym.register_envs(ale_py)
    games = {name[len("ALE/") : -len("-v5")] for name in gym.registry if re.fullmatch(r"ALE/\w+-v5", name)}
    game = re.sub(r"(?i)^ALE/|(-ram)?(NoFrameskip|Deterministic)?(-v\d+)?$", "", game_name)
    spellings = {known.lower(): known for known in games}
    if (known := spellings.get(game.lower().replace("_", ""))) is not None:
        return f"ALE/{known}-v5"
    close = [spellings[name] for name in get_close_matches(game.lower(), list(spellings), n=3, cutoff=0.5)]
    hint = f"close names are {', '.join(close)}" if close else "train.py --list shows all games"
    raise ValueError(f"game_name must be one of ale-py's {len(games)} games, got {game_name!r}: {hint}")


class NoopReset(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Begins each episode with 1 to `noop_max` no-op frames, so that a deterministic game does not always start alike.

    `AtariPreprocessing` does this for images; this is the same for RAM observations.
    """

    def __init__(self, env: gym.Env[Any, Any], noop_max: int) -> None:
        """See the class."""
        gym.utils.RecordConstructorArgs.__init__(self, noop_max=noop_max)
        gym.Wrapper.__init__(self, env)
        self._noop_max = noop_max

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and let some frames pass."""
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(1, self._noop_max + 1))):
            observation, _, terminated, truncated, newest = self.env.step(0)
            info = {**info, **newest}
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info
