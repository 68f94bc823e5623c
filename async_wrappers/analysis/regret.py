"""The regret ladder: the cost of delay and of inaction, found by playing a policy with and without them.

Riemer, Subbaraj, Berseth, Rish, "Enabling Realtime Reinforcement Learning at Scale with Staggered Asynchronous
Inference", arXiv 2412.14355, Theorem 1: the realtime regret splits into a part from not having learnt yet, a part from
inaction (frames on which the default action stands) and a part from delay (acting on an old observation).

With chunks the policy's own actions stand on those frames, made without looking: inaction becomes acting blindly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from async_wrappers.checks import whole, whole_frames
from async_wrappers.live.world.environment import score_of
from async_wrappers.policy import Decision, Memory, as_act
from async_wrappers.wrappers.chunk import as_chunk
from async_wrappers.wrappers.delay import RealtimeDelay

RESAMPLES = 10_000
AGENT_METHODS = ("begin_episode", "step", "end_episode")


class Estimate(NamedTuple):
    """A mean over episodes and its 95 % percentile-bootstrap interval (Efron 1979), in units of return."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Decomposition:
    """The result of `decompose`. A cost is a loss of return per episode: positive where the policy does worse.

    Attributes:
        delay: Age of the observation behind an action, in frames, on ``delay_only`` and ``both``.
        noops: Frames between two actions, on ``noops_only`` and ``both``.
        default_action: The action on the other frames.
        scores: Return of each episode, by rung, which is one of the four settings that were played: ``no_delay``,
            ``delay_only``, ``noops_only``, ``both``. The same place in each tuple is the same seed.
        returns: Their means, by rung.
        costs: Paired differences: ``delay`` (no_delay - delay_only), ``inaction`` (no_delay - noops_only), ``both``
            (no_delay - both) and ``interaction`` (the cost of both less the sum of the two).
    """

    delay: int
    noops: int
    default_action: Any
    scores: Mapping[str, tuple[float, ...]]
    returns: Mapping[str, Estimate]
    costs: Mapping[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON but for a default action that is an array or a function."""
        return {
            "delay": self.delay,
            "noops": self.noops,
            "default_action": self.default_action,
            "episodes": len(self.scores["both"]),
            "scores": {rung: list(scores) for rung, scores in self.scores.items()},
            "returns": {rung: estimate._asdict() for rung, estimate in self.returns.items()},
            "costs": {name: estimate._asdict() for name, estimate in self.costs.items()},
        }

    def __str__(self) -> str:
        """Return a small table."""
        rows = {f"return, {rung.replace('_', ' ')}": estimate for rung, estimate in self.returns.items()}
        rows |= {f"cost of {name}": estimate for name, estimate in self.costs.items() if name != "interaction"}
        rows["interaction"] = self.costs["interaction"]
        return "\n".join(
            [
                f"delay {self.delay} frames, noops {self.noops} frames, default action {self.default_action!r}, "
                f"{len(self.scores['both'])} episodes",
                f"{'':<20}{'mean':>10}   95 % interval",
                *(f"{name:<20}{x.mean:>10.2f}   {x.low:.2f} to {x.high:.2f}" for name, x in rows.items()),
            ]
        )


def decompose(
    make_env: Callable[[], gym.Env[Any, Any]],
    policy: Any,
    delay: int,
    noops: int,
    episodes: int = 20,
    *,
    seed: int = 0,
    default_action: Any = "noop",
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]] | None = None,
    max_frames: int | None = None,
) -> Decomposition:
    """Play a fixed policy without delay, with the delay alone, with the noops alone and with both.

    Theorem 1 of arXiv 2412.14355 splits the realtime regret, which compares with the best policy, into learning,
    inaction and delay. This measures the last two as differences of return between these four settings, the *rungs*,
    for one policy: nothing is retrained. A policy that was trained on the rung where it plays may lose less. The
    theorem's terms add up; measured costs need not, and ``interaction`` is the difference.

    Episode n has the same environment seed on every rung, and its decisions have the same keys (episode, start), so an
    exploring policy draws the same numbers. Two scores of one seed are a pair, and intervals of costs are of the
    paired differences. They show the spread between seeds, for this policy.

    Example:
        >>> import gymnasium as gym
        >>> from async_wrappers.analysis.regret import decompose
        >>> def balance(observation):
        ...     return int(observation[2] + 0.3 * observation[3] > 0)
        >>> found = decompose(lambda: gym.make("CartPole-v1"), balance, delay=4, noops=1, default_action="repeat")
        >>> found.returns["no_delay"].mean, found.costs["both"].low > 0
        (500.0, True)

    Args:
        make_env: Makes the environment, which is stepped once per frame; called once per rung.
        policy: One of four: an object with ``act(observation, decision)``; a function of the observation; a policy with
            memory in two halves (`async_wrappers.policy.SplitPolicy`), whose state goes from applied decision to
            applied decision and starts afresh with each episode; an agent with ``begin_episode(observation,
            realtime)``, ``step(reward, observation, realtime)``, ``end_episode(reward, terminal, observation,
            realtime)`` and ``eval_mode``, which is set. An agent is copied for each rung, with its counts, generators
            and replay, and is itself left as it is. A decision's ``frame`` is its ``start``: frames of earlier episodes
            differ between rungs.
        delay: Age of the observation behind an action, in frames.
        noops: Frames between two actions, filled by the default action.
        episodes: Episodes on each rung.
        seed: Of the episodes: episode n is reset with a seed made of (seed, 0, n), as in `AsyncRunner`.
        default_action: As in `RealtimeDelay`. With a `Chunk` the policy gives chunks of the same length on every rung,
            of which each executes the entries from its delay on, ``noops + 1`` of them; ``"chunk"`` is as long as the
            rung with both needs.
        wrap: Wraps the delayed environment on every rung, as ``lambda env: CommittedPrefix(env, 4)``; None for nothing.
        max_frames: Frames after which an episode is cut, the same on every rung.

    Returns:
        Scores, mean returns and costs. A score is ``info["episode_return"]`` if the environment reports it, else the
        sum of the rewards.

    Raises:
        ValueError: A number is too small or not whole, `policy` is none of the four or cannot be copied, `make_env`
            makes no environment, the default action or the chunk does not fit the environment, or `wrap` shows
            observations of another space on another rung.
    """
    delay, noops = whole_frames("delay", delay), whole_frames("noops", noops)
    episodes, seed = whole("episodes", episodes, 2), whole("seed", seed, 0)
    max_frames = max_frames if max_frames is None else whole("max_frames", max_frames, 1, or_none=True)
    default_action = as_chunk(default_action, (delay, noops + 1)) or default_action  # the same on every rung
    shown: list[gym.Space[Any]] = []  # by rung
    seeds = episode_seeds(seed, episodes)

    def climb(delay: int, noops: int) -> tuple[float, ...]:
        player = as_player(policy)
        env = _made(make_env)
        if max_frames is not None:
            # Inside the delay, where a step is a frame: outside, a rung with noops would play on longer.
            env = TimeLimit(env, max_frames)
        try:
            delayed = RealtimeDelay(env, delay, noops, default_action)
            if fast_age is not None:
                delayed.fresh_age = min(fast_age, delay)
            env = _wrapped(delayed, wrap)
            shown.append(env.observation_space)
            if shown[0] != shown[-1]:
                raise ValueError(
                    f"wrap must show the same observations on every rung, got {shown[0]} with delay and noops and "
                    f"{shown[-1]} without one of them: give it a fixed length, as in CommittedPrefix(env, 4)"
                )
            return tuple(_play(player, env, episode_seed) for episode_seed in seeds)
        finally:
            env.close()

    fast_age = getattr(getattr(policy, "spec", policy), "fast_age", None)
    both = climb(delay, noops)  # first: where the default action does not fit, nothing has been played yet
    scores = {"no_delay": climb(0, 0), "delay_only": climb(delay, 0), "noops_only": climb(0, noops), "both": both}
    return Decomposition(delay, noops, default_action, scores, *_estimates(scores))


class _Released:
    """A policy with memory, asked when its decision takes effect: both halves, one after the other."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._episode = -1

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any]) -> Any:
        self._episode += 1
        self._memory = Memory(None, 0.0, True, None)
        return self._release(observation, realtime)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any]) -> Any:
        # An episode's first step holds the frames before its effect too, as the memory of the second decision does.
        self._memory = self._memory._replace(previous_reward=reward)
        return self._release(observation, realtime)

    def end_episode(self, reward: float, terminal: bool, observation: Any, realtime: Mapping[str, Any]) -> None:
        pass

    def _release(self, observation: Any, realtime: Mapping[str, Any]) -> Any:
        start = realtime["start"]
        decision = Decision(self._episode, start, start, eval_mode=True)
        features = self._policy.encode(observation, decision)
        fresh = None  # as a policy without a fast path is promised
        if getattr(self._policy, "fast_age", None) is not None:
            fresh = realtime.get("fresh_observation", observation)
        answer = self._policy.release(features, self._memory._replace(fresh=fresh), decision)
        self._memory = Memory(deepcopy(answer.action), 0.0, False, answer.state)
        return answer.action


class _Asked:
    """A policy that is called turn by turn; it keeps only the number of the episode."""

    def __init__(self, policy: Any) -> None:
        self._act = as_act(policy)
        self._episode = -1

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any]) -> Any:
        self._episode += 1
        return self.step(0.0, observation, realtime)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any]) -> Any:
        start = realtime["start"]
        return self._act(observation, Decision(self._episode, start, start, eval_mode=True))

    def end_episode(self, reward: float, terminal: bool, observation: Any, realtime: Mapping[str, Any]) -> None:
        pass


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """Return the environment seeds of episodes 0, 1, ..., made of (seed, 0, n) as in `AsyncRunner`."""
    return [int(np.random.SeedSequence((seed, 0, n)).generate_state(1)[0]) & 0x7FFFFFFF for n in range(episodes)]


def as_player(policy: Any) -> Any:
    """Return an agent that has played no episode: a copy of an agent, or one that asks the policy turn by turn.

    It has ``begin_episode(observation, realtime)``, ``step(reward, observation, realtime)`` and
    ``end_episode(reward, terminal, observation, realtime)``.

    Raises:
        ValueError: `policy` is none of those of `decompose`, or an agent that cannot be copied or evaluated.
    """
    is_agent = all(hasattr(policy, name) for name in AGENT_METHODS)
    is_split = hasattr(policy, "encode") and hasattr(policy, "release")
    if isinstance(policy, type) or not (is_agent or is_split or hasattr(policy, "act") or callable(policy)):
        raise ValueError(
            "policy must be an object with act(observation, decision), a function of the observation, a policy with "
            f"encode and release or an agent with {', '.join(AGENT_METHODS)}, got {policy!r}"
        )
    if not is_agent:
        return _Asked(policy) if hasattr(policy, "act") or not is_split else _Released(policy)
    if not hasattr(policy, "eval_mode"):
        raise ValueError(f"policy must have eval_mode, so that it does not learn while it is measured, got {policy!r}")
    try:
        agent = deepcopy(policy)
    except Exception as error:
        raise ValueError(
            f"policy must be an agent that can be copied, once per rung, got {policy!r} ({error}): give a function of "
            "the observation instead"
        ) from error
    agent.eval_mode = True
    return agent


def _made(make_env: Any) -> gym.Env[Any, Any]:
    env = make_env() if callable(make_env) else make_env
    if not callable(make_env) or not isinstance(env, gym.Env):
        raise ValueError(f"make_env must be a function that makes a gymnasium.Env, got {env!r}")
    return env


def _wrapped(env: gym.Env[Any, Any], wrap: Any) -> gym.Env[Any, Any]:
    if wrap is None:
        return env
    wrapped = wrap(env) if callable(wrap) else None
    if not isinstance(wrapped, gym.Env):
        raise ValueError(f"wrap must be a function that wraps a gymnasium.Env, or None, got {wrap!r}")
    return wrapped


def _play(player: Any, env: gym.Env[Any, Any], seed: int) -> float:
    """Return the score of one episode."""
    observation, info = env.reset(seed=seed)
    action = player.begin_episode(observation, info["realtime"])
    score = 0.0
    while True:
        observation, reward, terminated, truncated, info = env.step(action)
        score += float(reward)
        if terminated or truncated:
            player.end_episode(float(reward), bool(terminated), observation, info["realtime"])
            return score_of(info, score)
        action = player.step(float(reward), observation, info["realtime"])


def _estimates(scores: Mapping[str, Sequence[float]]) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """Return the means by rung, and the costs."""
    rungs = {rung: np.asarray(values) for rung, values in scores.items()}
    costs = {
        "delay": rungs["no_delay"] - rungs["delay_only"],
        "inaction": rungs["no_delay"] - rungs["noops_only"],
        "both": rungs["no_delay"] - rungs["both"],
    }
    costs["interaction"] = costs["both"] - (costs["delay"] + costs["inaction"])
    episodes = len(rungs["both"])
    drawn = np.random.default_rng(0).integers(episodes, size=(RESAMPLES, episodes))  # the same episodes for all

    def estimate(values: NDArray[np.float64]) -> Estimate:
        low, high = np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))
        return Estimate(float(values.mean()), float(low), float(high))

    return {rung: estimate(rungs[rung]) for rung in rungs}, {name: estimate(costs[name]) for name in costs}
