"""`probe_delay`: how late an environment shows the effect of an action, and whether it takes each action at all.

Many environments hide a delay of their own: a queue of actions, a filter, a simulator that reads its controls every
fourth step. It adds to any delay that is put around them. The probe finds it from outside, by comparing *twins*: two
runs with the same seed and the same random actions but for one. Any difference afterwards is the effect of that action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import flatten

from async_wrappers.analysis.sensing import Sensed, sense
from async_wrappers.checks import whole
from async_wrappers.frame_rate import frame_rate
from async_wrappers.gymnasium_api import begun, stepped
from async_wrappers.live.report.sensor_readings import in_words

CHANGED_FRAMES = 16  # frames per episode whose action is changed, in one stretch: a period needs neighbours
DRAWS = 16  # actions drawn to find others than the one that was played
CHANCE = 1e-3  # a period that would come about by chance more often than this is not reported


@dataclass(frozen=True)
class ProbeResult:
    """The findings of `probe_delay`. None stands for a value that could not be found; `verdict` says why.

    A frame is one ``step`` of the probed environment, as it was given.

    Attributes:
        lag: Frames from the step that receives an action to the first observation that shows it; 0 is an ordinary
            environment, where the observation that this very step returns shows it. The least over all trials.
        reward_lag: The same for the reward.
        period: One action in `period` has an effect; 1 means that every frame takes its action.
        phase: The first frame of an episode whose action has an effect, below `period`.
        trials: Pairs of runs that were compared.
        differing: Trials whose observations differed.
        confidence: Share of `differing` that showed the change after exactly `lag` frames.
        deterministic: Whether the same seed and actions gave the same observations, rewards and ends each time.
        verdict: All of this as sentences.
        sensors: Of an environment that reports ``info["sensor_ages"]``, as `SensorDelay` does, by name: ``age_ms``
            (mean, std, p50, p95, p99, max), ``rate`` in readings seen a second, and ``lost``; else empty.
    """

    lag: int | None
    reward_lag: int | None
    period: int | None
    phase: int | None
    trials: int
    differing: int
    confidence: float | None
    deterministic: bool
    verdict: str
    sensors: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a small table and the verdict."""
        rows = {
            "lag": _frames(self.lag),
            "reward lag": _frames(self.reward_lag),
            "period": _frames(self.period),
            "phase": "unknown" if self.phase is None else f"frame {self.phase}",
            "trials": f"{self.trials}, of which {self.differing} differed",
            "confidence": "unknown" if self.confidence is None else f"{self.confidence:.2f}",
            "deterministic": "yes" if self.deterministic else "no",
        }
        sensors = (f"{'sensor':<14}{name}: {in_words(seen)}" for name, seen in self.sensors.items())
        return "\n".join([*(f"{name:<14}{value}" for name, value in rows.items()), *sensors, self.verdict])


def probe_delay(
    env_or_make_env: gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]],
    *,
    episodes: int = 8,
    max_frames: int = 60,
    seed: int = 0,
    alternatives: int = 2,
) -> ProbeResult:
    """Find the delay that an environment hides between an action and the observation that shows it.

    Each episode is played once with random actions, once more to see that it repeats exactly, and then once for each of
    up to 16 frames in its first half with that frame's action replaced. The first observation that differs gives that
    trial's lag.

    Example:
        >>> import gymnasium as gym
        >>> from gymnasium.wrappers import DelayObservation
        >>> from async_wrappers.analysis.probing import probe_delay
        >>> result = probe_delay(lambda: DelayObservation(gym.make("CartPole-v1"), delay=3))
        >>> result.lag, result.period, result.confidence
        (3, 1, 1.0)

    Args:
        env_or_make_env: An environment, which is reset for each run and left in the middle of an episode, or, better, a
            function that makes one: then each run has a fresh one, and nothing can leak from one run into the next.
        episodes: Episodes, each with a seed of its own.
        max_frames: Frames of an episode that are looked at; a longer lag cannot be seen.
        seed: Seed of the first episode (the others follow it) and of the actions.
        alternatives: Other actions that are tried on a frame, until one has an effect.

    Returns:
        The lag, the period, and how sure they are.

    Raises:
        ValueError: A number is too small or not whole, `env_or_make_env` makes no environment, or its action space
            holds a single action.
    """
    episodes = whole("episodes", episodes, 1)
    max_frames = whole("max_frames", max_frames, 2)
    seed = whole("seed", seed, 0)
    alternatives = whole("alternatives", alternatives, 1)
    fresh = _opener(env_or_make_env)
    actions = _actions_of(fresh, seed)
    sensors = _sensed(fresh, seed, actions, max_frames)
    found: list[list[_Trial]] = []
    for episode in range(episodes):
        found.append([])
        try:
            for trial in _probe_episode(fresh, seed + episode, actions, max_frames, alternatives, episode / episodes):
                found[-1].append(trial)
        except _NotRepeatableError:
            verdict = "cannot tell: the environment is not deterministic by seed"
            if isinstance(env_or_make_env, gym.Env):
                verdict += "; if only its reset forgets too little, give a function that makes it"
            return replace(_result(found, max_frames, verdict), sensors=sensors)
    return replace(_result(found, max_frames, None), sensors=sensors)


class _FrameResult(NamedTuple):
    """The result of ``reset`` or of a frame's step; after ``reset`` there is no reward."""

    observation: Any
    reward: Any = None
    ended: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class _Trial:
    """Effects of one changed action: frames from its own step to the first difference, None if there was none."""

    frame: int
    observation: int | None
    reward: int | None
    end: int | None
    compared: int  # frames on which the twins were compared, from the changed one on

    @property
    def effect(self) -> int | None:
        """Frames to the first difference of any kind."""
        return min((lag for lag in (self.observation, self.reward, self.end) if lag is not None), default=None)


class _NotRepeatableError(Exception):
    """The same seed and actions gave something else."""


_Opener = Callable[[], AbstractContextManager[gym.Env[Any, Any]]]


def _opener(env_or_make_env: Any) -> _Opener:
    """Return a function that opens the environment that was given, or a new one, which is closed after use."""
    if isinstance(env_or_make_env, gym.Env):
        return lambda: nullcontext(env_or_make_env)

    def fresh() -> AbstractContextManager[gym.Env[Any, Any]]:
        env = env_or_make_env() if callable(env_or_make_env) else env_or_make_env
        if not isinstance(env, gym.Env):
            raise ValueError(
                "env_or_make_env must be a gymnasium.Env (one, not a vector of them) or a function that makes one, "
                f"got {env!r}"
            )
        return closing(env)

    return fresh


def _actions_of(fresh: _Opener, seed: int) -> gym.Space[Any]:
    """Return the action space, with a generator of its own, or raise where it holds a single action."""
    with fresh() as env:
        space = deepcopy(env.action_space)
    space.seed(int(np.random.SeedSequence((seed, 0x920BE)).generate_state(1)[0]))
    first = space.sample()
    if all(_same(first, space.sample()) for _ in range(4 * DRAWS)):
        raise ValueError(
            f"env_or_make_env must have two actions or more, got {space}, which holds only {first!r}: "
            "there is nothing to compare"
        )
    return space


def _sensed(fresh: _Opener, seed: int, space: gym.Space[Any], frames: int) -> Sensed:
    """Return the ages of sensors over some frames of random actions; empty where an environment has none."""
    with fresh() as env:
        if not env.has_wrapper_attr("timed_sensors"):
            return {}
        fps = env.get_wrapper_attr("fps") if env.has_wrapper_attr("fps") else frame_rate(env)
        return sense(env, deepcopy(space).sample, frames, float(fps), seed)


def _probe_episode(
    fresh: _Opener, seed: int, space: gym.Space[Any], max_frames: int, alternatives: int, place: float
) -> Iterator[_Trial]:
    """Yield the trials of one episode.

    Args:
        fresh: Opens an environment.
        seed: Of the episode.
        space: Where actions are drawn from.
        max_frames: Frames to look at.
        alternatives: Other actions per frame.
        place: Where the stretch of changed frames lies in the first half: 0 at its beginning, 1 at its end.
    """
    actions = [space.sample() for _ in range(max_frames)]
    base = [deepcopy(shown) for shown in _play(fresh, seed, actions)]  # an environment may reuse its arrays
    if _compare(fresh, seed, actions, base, 0).effect is not None:
        raise _NotRepeatableError
    changeable = min(len(base) - 1, max_frames // 2)
    first = round(place * max(0, changeable - CHANGED_FRAMES))
    for frame in range(first, min(first + CHANGED_FRAMES, changeable)):
        for other in _others(space, actions[frame], alternatives):
            trial = _compare(fresh, seed, [*actions[:frame], other, *actions[frame + 1 :]], base, frame)
            yield trial
            if trial.effect is not None:
                if trial.effect < 0:  # it differs before anything was changed
                    raise _NotRepeatableError
                break


def _play(fresh: _Opener, seed: int, actions: Sequence[Any]) -> Generator[_FrameResult]:
    """Play the episode of these actions, and yield its results: after the reset, and after each step."""
    with fresh() as env:
        yield _FrameResult(begun(env, seed=seed)[0])
        for action in actions:
            observation, reward, terminated, truncated, _ = stepped(env, deepcopy(action))
            yield _FrameResult(observation, reward, (bool(terminated), bool(truncated)))
            if terminated or truncated:
                return


def _compare(fresh: _Opener, seed: int, actions: Sequence[Any], base: Sequence[_FrameResult], changed: int) -> _Trial:
    """Play the twin of `base` until it is known where observations and rewards part; lags count from `changed`."""
    observation_lag = reward_lag = end_lag = None
    with closing(_play(fresh, seed, actions)) as twin:
        for lag, (known, shown) in enumerate(zip(base, twin, strict=False), -changed - 1):
            if observation_lag is None and not _same(shown.observation, known.observation):
                observation_lag = lag
            if reward_lag is None and not _same(shown.reward, known.reward):
                reward_lag = lag
            if shown.ended != known.ended:
                end_lag = lag
            if end_lag is not None or (observation_lag is not None and reward_lag is not None):
                break
    return _Trial(changed, observation_lag, reward_lag, end_lag, lag + 1)


def _others(space: gym.Space[Any], action: Any, count: int) -> list[Any]:
    """Return up to `count` actions that are not `action`, those that lie farthest from it."""
    others: list[Any] = []
    for candidate in (space.sample() for _ in range(DRAWS)):
        if not any(_same(candidate, known) for known in (action, *others)):
            others.append(candidate)
    if space.is_np_flattenable:
        there = np.asarray(flatten(space, action), np.float64)
        others.sort(key=lambda other: -float(np.abs(np.asarray(flatten(space, other)) - there).sum()))
    return others[:count]


def _same(one: Any, other: Any) -> bool:
    """Whether two observations, however nested, are exactly the same; NaN is the same as NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, int | float | str):
        return bool(one == other or (one != one and other != other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype.hasobject:
            return all(map(_same, one.ravel().tolist(), other.ravel().tolist()))
        return np.array_equal(one, other) or (one.dtype.kind in "fc" and np.array_equal(one, other, equal_nan=True))
    return bool(np.all(one == other) or (np.all(one != one) and np.all(other != other)))


def _result(found: list[list[_Trial]], max_frames: int, not_repeatable: str | None) -> ProbeResult:
    """Return the findings; where an episode was not repeatable, only the verdict that is given."""
    trials = [trial for episode in found for trial in episode]
    lags = [trial.observation for trial in trials if trial.observation is not None]
    if not_repeatable is not None:
        return ProbeResult(None, None, None, None, len(trials), len(lags), None, False, not_repeatable)
    reward_lag = min((trial.reward for trial in trials if trial.reward is not None), default=None)
    lag = min(lags, default=None)
    confidence = None if lag is None else lags.count(lag) / len(lags)
    period, phase, about_period = _find_period(_frames_with_effect(found))
    if lag is None:
        about_lag = (
            f"cannot tell: no action changed any observation within max_frames={max_frames}; more frames may show one"
        )
    else:
        shows = "in the observation that its own step returns" if lag == 0 else f"{_frames(lag)} after its own step"
        about_lag = f"an action first shows {shows} ({lags.count(lag)} of {len(lags)} trials that differed)"
        if confidence is not None and confidence < 0.5:
            about_lag += f"; most took longer (median {np.median(lags):g} frames)"
    if reward_lag is not None and reward_lag != lag:
        about_lag += f"; the reward first shows it after {_frames(reward_lag)}"
    return ProbeResult(
        lag, reward_lag, period, phase, len(trials), len(lags), confidence, True, f"{about_lag}; {about_period}"
    )


def _frames_with_effect(found: list[list[_Trial]]) -> list[dict[int, bool]]:
    """Return, for each episode, which of the changed frames had an effect.

    A frame without effect that is closer to its episode's end than nine in ten effects took to show says nothing, and
    is left out.
    """
    took = [trial.effect for episode in found for trial in episode if trial.effect is not None]
    enough = float(np.quantile(took, 0.9)) if took else 0.0
    result: list[dict[int, bool]] = []
    for episode in found:
        frames: dict[int, bool] = {}
        for trial in episode:
            if trial.effect is not None or trial.compared > enough:
                frames[trial.frame] = frames.get(trial.frame, False) or trial.effect is not None
        result.append(frames)
    return result


def _find_period(episodes: list[dict[int, bool]]) -> tuple[int | None, int | None, str]:
    """Return period, phase and a sentence about them.

    The period is the largest n for which, in each episode, all frames with an effect are a multiple of n apart: one
    effect anywhere else rules n out for good. It is reported if, were the effects strewn over the frames by chance,
    they would hardly be found so, and if the frames of the phase show no further pattern.
    """
    unknown = "cannot tell the period:"
    taken = [[frame for frame, effect in frames.items() if effect] for frames in episodes]
    period = math.gcd(*(frame - frames[0] for frames in taken for frame in frames))
    if period == 0:
        return None, None, f"{unknown} no two frames of an episode were seen to have an effect"
    chance = 1.0
    phases: set[int] = set()
    in_phase: list[tuple[int, bool]] = []
    for frames, hits in zip(episodes, taken, strict=True):
        if not hits:
            continue
        phase = hits[0] % period
        phases.add(phase)
        candidates = [frame for frame in frames if frame % period == phase]
        in_phase += [(frame // period, frames[frame]) for frame in candidates]
        strewn = math.comb(len(candidates), len(hits)) / math.comb(len(frames), len(hits))
        chance *= min(1.0, period * strewn)
    if period > 1 and chance > CHANCE:
        return None, None, f"{unknown} too few frames had an effect"
    if _has_pattern(in_phase):
        return None, None, f"{unknown} the frames that have an effect follow a pattern that is not one in n"
    share = sum(effect for _, effect in in_phase) / len(in_phase)
    about = "no hidden hold" if period == 1 else f"only one action in {period} has an effect"
    about += f" (period {period}"
    if len(phases) > 1:
        return period, None, f"{about}, phase different from episode to episode)"
    about += f", phase {min(phases)})" if period > 1 else ")"
    if share < 1:
        where = "these frames" if period > 1 else "the frames"
        about += f", though on {1 - share:.0%} of {where} the actions that were tried made no difference"
    return period, min(phases), about


def _has_pattern(frames: list[tuple[int, bool]]) -> bool:
    """Whether, for some m, some of the m classes of frames never have an effect, too regularly to be chance.

    Each class has three different frames or more: a stretch without effect is no pattern.
    """
    hits = sum(effect for _, effect in frames)
    for m in range(2, len({frame for frame, _ in frames}) // 3 + 1):
        used = {frame % m for frame, effect in frames if effect}
        room = sum(frame % m in used for frame, _ in frames)
        if math.comb(m, len(used)) * math.comb(room, hits) / math.comb(len(frames), hits) < CHANCE / m:
            return True
    return False


def _frames(count: int | None) -> str:
    return "unknown" if count is None else f"{count} frame{'' if count == 1 else 's'}"
