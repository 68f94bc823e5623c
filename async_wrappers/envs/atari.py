"""Atari games by name, one or many as a vector, and their wrappers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from difflib import get_close_matches
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import AtariPreprocessing, RepeatAction

from async_wrappers.checks import flag, whole, whole_frames
from async_wrappers.envs.factories import ClipReward, VectorEnv, Wrapper, wrap, wrapped
from async_wrappers.extras import extra
from async_wrappers.needs import refuse
from async_wrappers.posix import cores
from async_wrappers.wrappers.copies import VectorWrapper

STICKY_PROBABILITY = 0.25  # Machado et al. 2018, section 5.2
EMULATED_FRAMES_PER_SECOND = 60
LONGEST_EPISODE = 108_000  # emulated frames, half an hour, as of a single game


def create_atari_environment(
    game_name: str,
    frame_skip: int = 4,
    sticky_actions: bool = True,
    full_action_space: bool = False,
    terminal_on_life_loss: bool = False,
    obs_type: str = "grayscale",
    screen_size: int | tuple[int, int] = 84,
    noop_max: int = 0,
    clip_rewards: bool = True,
    wrappers: Sequence[Wrapper] = (),
    render_mode: str | None = None,
    episodic_life: bool = False,
    fire_on_reset: bool = False,
    max_frames: int = LONGEST_EPISODE,
) -> gym.Env[Any, Any]:
    """Make an Atari game and wrap it.

    The defaults are Dopamine's (Machado et al., "Revisiting the Arcade Learning Environment", 2018): four emulated
    frames per step, maximum over the last two, 84 x 84 grey by area interpolation, sticky actions. For realtime play
    frame by frame (arXiv 2412.14355) use ``frame_skip = 1, sticky_actions = False``.

    Whatever `frame_skip` is, one ``step`` of the game is one *frame* of the schedule.

    Args:
        game_name: ``"Boxing"``; or an id, such as ``"BoxingNoFrameskip-v4"`` or ``"ALE/Boxing-v5"``, whose frame skip,
            sticky actions and observations must be those of the arguments.
        frame_skip: Emulated frames of 1/60 s per step.
        sticky_actions: Repeat the last action with probability 0.25 on each emulated frame.
        full_action_space: All 18 actions, also where the game knows fewer.
        terminal_on_life_loss: Begin a new game when a life is lost (images only): an episode is a life, and its return
            is that life's.
        obs_type: ``"grayscale"`` (uint8 [height, width]), ``"rgb"`` (uint8 [height, width, 3]) or ``"ram"`` (uint8
            [128]).
        screen_size: Of the image in pixels: a number, which is height and width, or (height, width).
        noop_max: Begin each game with 1 to `noop_max` emulated frames of no-op, drawn by the game's generator.
        clip_rewards: Clip each step's reward to [-1, 1], inside all `wrappers`.
        wrappers: Applied in this order, the first one innermost, such as ``[@AppliedActions, @RealtimeDelay]``.
        render_mode: Gymnasium's, such as ``"human"`` or ``"rgb_array"``.
        episodic_life: End the episode when a life is lost, while the game goes on: see `EpisodicLife`.
        fire_on_reset: Press FIRE on the first step of each game and of each further life, in the place of the action,
            where the game has that button: see `FireOnReset`.
        max_frames: Emulated frames after which a game is truncated, its no-ops included.

    Raises:
        ValueError: An unknown game (the sentence names the closest ones), observation type or frame skip, an id that
            means other arguments, or `terminal_on_life_loss` together with `episodic_life`.
    """
    if obs_type not in ("grayscale", "rgb", "ram"):
        raise ValueError(f"obs_type must be 'grayscale', 'rgb' or 'ram', got {obs_type!r}")
    frame_skip = whole("frame_skip", frame_skip, 1, unit="emulated frames")
    noop_max = whole_frames("noop_max", noop_max)
    max_frames = whole("max_frames", max_frames, 1, unit="emulated frames")
    height, width = _image_size(screen_size)
    _check_lives(terminal_on_life_loss, episodic_life, fire_on_reset)
    if obs_type == "ram" and terminal_on_life_loss:
        raise ValueError("terminal_on_life_loss=True needs obs_type='grayscale' or 'rgb', got obs_type='ram'")
    if obs_type != "ram":
        with extra(f"obs_type={obs_type!r}", "atari"):
            import cv2  # noqa: F401
    env: gym.Env[Any, Any] = gym.make(
        find_atari_game(game_name, frame_skip=frame_skip, sticky_actions=bool(sticky_actions), obs_type=obs_type),
        obs_type=obs_type,
        frameskip=1,  # skipped below: no-op frames are emulated frames, and images are made of the last two
        repeat_action_probability=STICKY_PROBABILITY if sticky_actions else 0.0,
        full_action_space=full_action_space,
        max_num_frames_per_episode=max_frames,
        render_mode=render_mode,
    )
    # One step of the innermost environment is one emulated frame; ale-py states 30 for any skip.
    env.unwrapped.metadata = {**env.unwrapped.metadata, "render_fps": EMULATED_FRAMES_PER_SECOND}
    if obs_type != "ram":
        size = (width, height)  # the order of OpenCV
        env = AtariPreprocessing(env, noop_max, frame_skip, size, terminal_on_life_loss, obs_type == "grayscale")
    else:
        env = NoopReset(env, noop_max) if noop_max else env
        env = RepeatAction(env, frame_skip) if frame_skip > 1 else env
    if frame_skip > 1:  # of what a step of the environment is from here on
        env.metadata = {**env.metadata, "render_fps": EMULATED_FRAMES_PER_SECOND / frame_skip}
    if fire_on_reset and _fire(env.unwrapped.get_action_meanings()) is not None:  # type: ignore[attr-defined]
        env = FireOnReset(env)
    env = ClipReward(env) if clip_rewards else env
    return wrap(EpisodicLife(env) if episodic_life else env, False, wrappers)


def _image_size(screen_size: Any) -> tuple[int, int]:
    """Return height and width in pixels."""
    size = screen_size if isinstance(screen_size, tuple | list) else (screen_size, screen_size)
    if len(size) != 2 or not all(type(pixels) is int and pixels > 0 for pixels in size):
        raise ValueError(
            f"screen_size must be a whole number of pixels > 0, or (height, width) of such, got {screen_size!r}"
        )
    height, width = size
    return height, width


def _check_lives(terminal_on_life_loss: bool, episodic_life: bool, fire_on_reset: bool) -> None:
    """Refuse arguments that do not go together."""
    flag("terminal_on_life_loss", terminal_on_life_loss)
    flag("fire_on_reset", fire_on_reset)
    refuse({"games of one life": terminal_on_life_loss}, {"episodic_life": flag("episodic_life", episodic_life)})


def _fire(meanings: Sequence[str]) -> int | None:
    """Return the number of the action FIRE; None where the game's actions have none."""
    return meanings.index("FIRE") if "FIRE" in meanings else None


def create_atari_vector(
    game_name: str,
    num_envs: int,
    frame_skip: int = 4,
    sticky_actions: bool = True,
    full_action_space: bool = False,
    terminal_on_life_loss: bool = False,
    obs_type: str = "grayscale",
    screen_size: int | tuple[int, int] = 84,
    noop_max: int = 0,
    clip_rewards: bool = True,
    wrappers: Sequence[Callable[[VectorEnv], VectorEnv]] = (),
    render_mode: str | None = None,
    num_threads: int = 0,
    episodic_life: bool = False,
    fire_on_reset: bool = False,
    max_frames: int = LONGEST_EPISODE,
) -> VectorEnv:
    """Make many copies of an Atari game as one vector, which steps them in threads of its own.

    It is ``ale_py.AtariVectorEnv`` behind the parameters of `create_atari_environment`, and without sticky actions each
    game gives that function's frames and rewards, bit for bit; more than 32 games are several of them. Sticky actions
    and the number of no-ops are drawn by other generators, with the same probabilities. It resets in the same step
    (``AutoresetMode.SAME_STEP``). ``info["episode_return"]`` is the sum of the unclipped rewards of each game so far,
    and ``info["final_info"]["episode_return"]`` that of games that have ended, or with `episodic_life` of those whose
    life has.

    Args:
        game_name: As in `create_atari_environment`.
        num_envs: How many games.
        frame_skip: Emulated frames of 1/60 s per step.
        sticky_actions: Repeat the last action with probability 0.25 on each emulated frame.
        full_action_space: All 18 actions, also where the game knows fewer.
        terminal_on_life_loss: Begin a new game when a life is lost: an episode is a life, and its return is that
            life's.
        obs_type: ``"grayscale"``, observations are uint8 [num_envs, height, width]; or ``"rgb"``, [num_envs, height,
            width, 3].
        screen_size: Of the image in pixels: a number, which is height and width, or (height, width).
        noop_max: Begin each game with 1 to `noop_max` emulated frames of no-op. A seed of ``reset`` decides how many
            they are, in the game that it begins and in those that follow.
        clip_rewards: Clip each step's reward to [-1, 1], inside all `wrappers`.
        wrappers: Of the vector, the first one innermost, such as ``[@VectorRealtimeDelay]``.
        render_mode: None; the vector cannot render.
        num_threads: Of the emulator; 0 for as many as it finds right.
        episodic_life: End the episode when a life is lost, while the game goes on, as `EpisodicLife` does:
            ``info["final_info"]["game_over"]`` says whose game is over.
        fire_on_reset: Press FIRE on the first step of each game and of each further life, in the place of the action,
            where the game has that button, as `FireOnReset` does.
        max_frames: Emulated frames after which a game is truncated, its no-ops not counted.

    Raises:
        ValueError: An unknown game, an id that means other arguments, `terminal_on_life_loss` together with
            `episodic_life`, or an argument that `AtariVectorEnv` does not have.
    """
    num_envs = whole("num_envs", num_envs, 1)
    frame_skip = whole("frame_skip", frame_skip, 1, unit="emulated frames")
    noop_max = whole_frames("noop_max", noop_max)
    max_frames = whole("max_frames", max_frames, 1, unit="emulated frames")
    height, width = _image_size(screen_size)
    _check_lives(terminal_on_life_loss, episodic_life, fire_on_reset)
    possible = {"obs_type": ("grayscale", "rgb"), "render_mode": (None,)}
    for name, value in {"obs_type": obs_type, "render_mode": render_mode}.items():
        if value not in possible[name]:
            raise ValueError(
                f"{name} must be {' or '.join(map(repr, possible[name]))} in create_atari_vector, as "
                f"ale_py.AtariVectorEnv does nothing else, got {value!r}: use create_atari_environment, with "
                "VectorRunner.create_vector_fn = None"
            )
    meant = {"frame_skip": frame_skip, "sticky_actions": bool(sticky_actions), "obs_type": obs_type}
    game = gym.spec(find_atari_game(game_name, **meant)).kwargs["game"]
    env: VectorEnv = atari_games(
        game,
        num_envs,
        num_threads=whole("num_threads", num_threads, 0),
        max_num_frames_per_episode=max_frames,
        repeat_action_probability=STICKY_PROBABILITY if sticky_actions else 0.0,
        full_action_space=full_action_space,
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
        img_height=height,
        img_width=width,
        grayscale=obs_type == "grayscale",
        stack_num=1,
        frameskip=frame_skip,
        maxpool=frame_skip > 1,
        noop_max=noop_max + 1 if noop_max else 0,  # it draws 0 to one less: `AtariFrames` does without the 0
        episodic_life=terminal_on_life_loss,
        life_loss_info=episodic_life,
        reward_clipping=False,
        use_fire_reset=False,  # it would press FIRE before the no-ops, and after no life
    )
    frames = AtariFrames(env, clip_rewards, noop_max > 0, episodic_life, fire_on_reset)
    vector: VectorEnv = wrapped(frames, wrappers)
    return vector


class AtariFrames(VectorWrapper, gym.utils.RecordConstructorArgs):
    """Shows the single frames of an `AtariVectorEnv` as `create_atari_environment` does, and clips rewards.

    Args:
        env: An `AtariVectorEnv` that stacks one frame and resets in the same step.
        clip_rewards: Clip each reward to [-1, 1], and report the unclipped return in ``info["episode_return"]``.
        draws_noops: Games begin with at least one no-op; `env` draws a number from 0 on, and draws again where it is 0.
        episodic_life: `env` reports a lost life as an end and lets the game go on (its ``life_loss_info``).
        fire_on_reset: See `FireOnReset`.
    """

    def __init__(
        self,
        env: VectorEnv,
        clip_rewards: bool,
        draws_noops: bool = False,
        episodic_life: bool = False,
        fire_on_reset: bool = False,
    ) -> None:
        arguments = {"draws_noops": draws_noops, "episodic_life": episodic_life, "fire_on_reset": fire_on_reset}
        gym.utils.RecordConstructorArgs.__init__(self, clip_rewards=clip_rewards, **arguments)
        gym.vector.VectorWrapper.__init__(self, env)
        self._clip, self._draws_noops, self._episodic_life = clip_rewards, draws_noops, episodic_life
        self._fire = _fire([action.name for action in self._vector.ale.get_action_set()]) if fire_on_reset else None
        single = env.single_observation_space
        assert isinstance(single, gym.spaces.Box)
        self.single_observation_space = gym.spaces.Box(0, 255, single.shape[1:], np.uint8)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._returns = np.zeros(env.num_envs)
        self._begins = np.ones(env.num_envs, bool)  # a game, or another life: FIRE is pressed
        self._lives = self._frames = np.zeros(env.num_envs, np.int64)  # of the running games

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the games, or those of ``options["reset_mask"]``."""
        chosen = None if options is None else options.get("reset_mask")
        everyone = np.ones(self.num_envs, bool)
        begun = everyone if chosen is None else np.array(chosen)
        observations, info = self._with_noops(begun, *self.env.reset(seed=seed, options=options))
        self._returns = np.where(begun, 0.0, self._returns)
        self._begins = self._begins | begun
        self._lives, self._frames = info["lives"], info["episode_frame_number"]
        return observations[:, 0], {**info, "episode_return": self._returns}

    def _with_noops(self, begun: Any, observations: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Begin those of the games that have just begun once more which have drawn no no-op."""
        if self._draws_noops:
            # A game counts its frames from the reset on, so that these are its no-ops.
            while (without := begun & (info["episode_frame_number"] == 0)).any():
                observations, again = self.env.reset(options={"reset_mask": without})
                info = {**info, **again}
        return observations, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all games."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Any) -> None:
        """Begin a step, which goes on in the vector's threads."""
        if self._fire is not None and self._begins.any():
            actions = np.where(self._begins, self._fire, actions).astype(np.asarray(actions).dtype)
        self._vector.send(actions)

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the end of the step that was begun."""
        observations, rewards, terminated, truncated, info = self._vector.recv()
        rewards = rewards.astype(np.float64)
        returns = self._returns + rewards
        over = game_over = terminated | truncated
        if over.any():
            # The frames of a game are counted from its beginning: only a game that goes on has more of them now.
            game_over = over & (info["episode_frame_number"] <= self._frames) if self._episodic_life else over
            last = info["final_obs"][:, 0]
            if self._episodic_life:  # the emulator leaves the rows of games that go on as they were
                last[~game_over] = observations[~game_over, 0]
            observations, info = self._with_noops(game_over, observations, info)
            info = {**info, "final_obs": last, "_final_obs": over, "_final_info": over}
            info["final_info"] = {"episode_return": returns, "_episode_return": over}
            if self._episodic_life:
                info["final_info"] |= {"game_over": game_over, "_game_over": over}
        self._begins = game_over | (info["lives"] < self._lives)
        self._lives, self._frames = info["lives"], info["episode_frame_number"]
        self._returns = np.where(game_over, 0.0, returns)
        clipped = np.clip(rewards, -1.0, 1.0) if self._clip else rewards
        return observations[:, 0], clipped, terminated, truncated, {**info, "episode_return": self._returns}

    @property
    def _vector(self) -> Any:
        return self.env


_ATARI_ID = re.compile(r"(?i)(?:ALE/)?(.*?)(-ram)?(NoFrameskip|Deterministic)?(?:-v(\d+))?")


def find_atari_game(game_name: str, **arguments: Any) -> str:
    """Return the registered id of a game, such as ``"ALE/Boxing-v5"``, from one of its many spellings.

    Args:
        game_name: A name or an id.
        arguments: Of `create_atari_environment`, which an id must not contradict.

    Raises:
        ValueError: No game has that name (the sentence names the closest ones), there was no such version, or the id
            means other arguments.
    """
    with extra("an Atari game", "atari"):
        import ale_py  # registers the games with Gymnasium

    gym.register_envs(ale_py)
    games = {name[len("ALE/") : -len("-v5")] for name in gym.registry if re.fullmatch(r"ALE/\w+-v5", name)}
    parts = _ATARI_ID.fullmatch(game_name)
    game = parts[1] if parts else game_name
    spellings = {known.lower(): known for known in games}
    known = spellings.get(game.lower().replace("_", ""))
    if parts is None or known is None:
        close = [spellings[name] for name in get_close_matches(game.lower(), list(spellings), n=3, cutoff=0.5)]
        hint = f"close names are {', '.join(close)}" if close else "train.py --list shows all games"
        raise ValueError(f"game_name must be one of ale-py's {len(games)} games, got {game_name!r}: {hint}")
    remedy = f"name the game alone, {known!r}, and give what differs from the defaults as arguments"
    _, ram, kind, version = parts.groups()
    if version not in (None, "0", "4", *(() if kind else ("5",))):
        raise ValueError(f"game_name must be an id that Gymnasium has had, got {game_name!r}: {remedy}")
    for name, value in _meant_by(known, ram, kind, version).items():
        if arguments.get(name, value) != value:
            raise ValueError(f"game_name {game_name!r} means {name} = {value}, got {arguments[name]}: {remedy}")
    return f"ALE/{known}-v5"


def _meant_by(game: str, ram: str | None, kind: str | None, version: str | None) -> dict[str, Any]:
    """Return the arguments that the parts of an id mean: they are those of Gymnasium's and ale-py's environments."""
    meant: dict[str, Any] = {"obs_type": "ram"} if ram else {}
    if kind:
        deterministic = 3 if game == "SpaceInvaders" else 4
        meant["frame_skip"] = 1 if kind.lower() == "noframeskip" else deterministic
    elif version:
        meant["frame_skip"] = 4 if version == "5" else "2, 3 or 4, drawn at each step"
    if version:
        meant["sticky_actions"] = version != "4"
    return meant


class EpisodicLife(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Ends an episode when a life is lost, while the game goes on: DeepMind's, and Baselines' ``EpisodicLifeEnv``.

    So a learner sees that a life is worth something. The step that loses a life returns ``terminated``, with
    ``info["game_over"]`` False. A ``reset()`` without a seed then returns the observation of that step once more, and
    the game goes on from there: no frame passes (Baselines play a no-op). Where the game is over, is cut before its
    end, or a seed is given, a reset begins a new game. ``info["episode_return"]`` is the whole game's, and where
    ``info["game_over"]`` is False, runners and evaluations count no episode.

    The loss of the last life is reported only as the end of the game.

    Args:
        env: An environment with ``info["lives"]``, such as an Atari game.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._lives, self._return = 0, 0.0
        self._between: tuple[Any, dict[str, Any]] | None = None  # two lives of a game

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next life, or the next game."""
        between, self._between = self._between, None
        if between is not None and seed is None:
            return between
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives, self._return = info["lives"], 0.0
        return observation, {"episode_return": 0.0, **info}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the game."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        info = {"episode_return": self._return, **info}
        # Some games stand at 0 lives for a few frames before they are over.
        lost, self._lives = 0 < info["lives"] < self._lives, info["lives"]
        if not (lost or terminated or truncated):
            return observation, reward, terminated, truncated, info
        game_over = terminated or truncated
        if not game_over:
            self._between = np.array(observation), info
        # A life that is lost on the last frame that a game may have is an end, not a cut.
        return observation, reward, terminated or lost, truncated and not lost, {**info, "game_over": game_over}


class FireOnReset(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Presses FIRE in the place of the action on the first step of a game and of each further life.

    Some games, such as Breakout, wait for it. It takes the place of the action because a vector, whose games go in
    step, has no frame for it beside that of the others; Baselines' ``FireResetEnv`` plays a step of its own, and
    another one of the action after FIRE. Wrappers around this one see the action that they passed on.

    Args:
        env: An Atari game that has the button.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._fire = _fire(env.unwrapped.get_action_meanings())  # type: ignore[attr-defined]
        self._begins, self._lives = True, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a game."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._begins, self._lives = True, info["lives"]
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the game."""
        step = self.env.step(self._fire if self._begins else action)
        lives = step[4]["lives"]
        self._begins, self._lives = lives < self._lives, lives
        return step


class NoopReset(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Begins each episode with 1 to `noop_max` no-op frames, so that a deterministic game does not always start alike.

    `AtariPreprocessing` does this for images; this is the same for RAM observations.
    """

    def __init__(self, env: gym.Env[Any, Any], noop_max: int) -> None:
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


# Many games of Atari as one vector, made a few at a time.
#
# ``ale_py.AtariVectorEnv`` loads a ROM for each game where it is made, one after another with the interpreter's lock
# held, and once more where a game is seeded. A ROM takes 0.15 s of processor time, four fifths of which is a table of
# blended colours that the emulator makes with it (`makeAveragePalette`), whether it is used or not. So a vector of
# 2,400 games would hear no signal for minutes. Here games are made in groups, each a vector with threads of its own:
# between two of them signals are heard, and while one group is made another is seeded.


AT_ONCE = 8  # games of a group, which take 1.2 s to make on one core
_ALONE = 32  # most games of a single vector


def atari_games(game: str, num_envs: int, num_threads: int = 0, **settings: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Make games as one vector: an ``ale_py.AtariVectorEnv``, or, if they are many, groups of these.

    Args:
        game: As `AtariVectorEnv` has it, and so are `settings`.
        num_envs: How many.
        num_threads: Of all games together; 0 for one on each core.
        settings: Of each game.
    """
    from ale_py.vector_env import AtariVectorEnv

    if num_envs <= _ALONE:
        return AtariVectorEnv(game, num_envs, num_threads=num_threads, **settings)
    groups = -(-num_envs // AT_ONCE)
    of_each = -(-(num_threads or cores()) // groups)
    return AtariGroups(partial(AtariVectorEnv, game, num_threads=of_each, **settings), num_envs)


class AtariGroups(gym.vector.VectorEnv[Any, Any, Any]):
    """Groups of games as one vector. All but the first group are made when the games begin for the first time.

    Args:
        make: From ``num_envs=`` to the vector of a group, an `AtariVectorEnv` of all its games.
        num_envs: Games of all groups together.
        at_once: Games of a group; the last one may have fewer.
    """

    def __init__(self, make: Callable[..., Any], num_envs: int, at_once: int = AT_ONCE) -> None:
        self.num_envs = self.batch_size = num_envs
        self._make, self._at = make, [slice(i, min(i + at_once, num_envs)) for i in range(0, num_envs, at_once)]
        self._groups: list[Any] = []
        self._pool = ThreadPoolExecutor(min(len(self._at), cores()), "games")
        first = self._group(0)
        self.ale, self.autoreset_mode = first.ale, first.autoreset_mode
        self.metadata = {**first.metadata}
        self.single_observation_space, self.single_action_space = (
            first.single_observation_space,
            first.single_action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _group(self, number: int) -> Any:
        if number == len(self._groups):
            at = self._at[number]
            self._groups.append(self._make(num_envs=at.stop - at.start))
        return self._groups[number]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all games, or those of ``options["reset_mask"]``; see `AtariVectorEnv`."""
        mask = (options or {}).get("reset_mask")
        chosen = np.ones(self.num_envs, bool) if mask is None else mask
        seeds = None
        if seed is not None:
            seeds = np.full(self.num_envs, -1)
            seeds[chosen] = seed + np.arange(chosen.sum()) if np.ndim(seed) == 0 else seed
        resets: list[Future[Any]] = []
        try:
            for number, at in enumerate(self._at):
                group = self._group(number)
                of_group = {} if seeds is None else {"seed": seeds[at][chosen[at]]}
                if mask is not None:
                    of_group["options"] = {"reset_mask": chosen[at]}
                resets.append(self._pool.submit(group.reset, **of_group))
            parts = [each.result() for each in resets]
        finally:
            for each in resets:
                each.cancel()  # of an interrupted reset; those that run take a moment
        infos = [info for _, info in parts]
        return np.concatenate([observations for observations, _ in parts]), self._joined(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all games."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Any) -> None:
        """Begin a step, which goes on in the groups' threads."""
        for group, at in zip(self._groups, self._at, strict=True):
            group.send(actions[at])

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the end of the step that was begun."""
        parts = [group.recv() for group in self._groups]
        *arrays, _ = (list(of_all) for of_all in zip(*parts, strict=True))
        infos = [part[-1] for part in parts]
        if any("final_obs" in info for info in infos):  # of a game that goes on it is the observation, as in one vector
            infos = [{"final_obs": part[0], **info} for part, info in zip(parts, infos, strict=True)]
        observations, rewards, terminated, truncated = (np.concatenate(each) for each in arrays)
        return observations, rewards, terminated, truncated, self._joined(infos)

    def _joined(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        info = {name: np.concatenate([each[name] for each in infos]) for name in infos[0]}
        if "env_id" in info:
            info["env_id"] = np.concatenate(
                [each["env_id"] + at.start for each, at in zip(infos, self._at, strict=True)]
            )
        return info

    def close_extras(self, **kwargs: Any) -> None:
        """Let resets that run come to their end, and close the groups."""
        self._pool.shutdown(cancel_futures=True)
        for group in self._groups:
            group.close()
        self._groups.clear()
