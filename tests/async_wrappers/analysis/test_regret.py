"""Tests of async_wrappers/analysis/regret.py on a target whose every cost can be counted by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from async_wrappers import CommittedPrefix
from async_wrappers.analysis.regret import Decomposition, decompose
from async_wrappers.policy import Decision, Memory
from async_wrappers.wrappers.chunk import Chunk
from tests.worlds.recording_env import RecordingEnv
from tests.worlds.remembering import Remembering, Taken, replayed

IDLE = 3  # the action that never pays
HOLD = 4  # frames that a target stands
BLOCK = 12 * HOLD  # frames of the shortest episode


class Target(gym.Env[Any, Any]):
    """Shows which action pays now; the target moves on every `HOLD` frames, an episode lasts one to three blocks.

    An action of delay d is right on those of each four frames that are d or more frames after the target's last move.

    Args:
        bonus: Paid on the first frame, times a number drawn from the seed: returns vary, costs do not.
        blocks: Blocks per episode; None draws 1, 2 or 3 from the seed.
        unclipped: Report the return, doubled, in ``info["episode_return"]``.
    """

    def __init__(self, bonus: float = 0.0, blocks: int | None = None, unclipped: bool = False) -> None:
        self.observation_space = Box(0, 2, (), np.int64)
        self.action_space = Discrete(4)
        self._bonus, self._blocks, self._unclipped = bonus, blocks, unclipped
        self.closed = False
        self.seeds: list[int | None] = []
        self.frames: list[int] = []

    def get_action_meanings(self) -> list[str]:
        return ["A", "B", "C", "NOOP"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.frames.append(0)
        self._due = self._bonus * float(self.np_random.integers(100))
        self._score = 0.0
        self._length = BLOCK * (self._blocks or int(self.np_random.integers(1, 4)))
        return self._target(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._target()) + self._due
        self._due = 0.0
        self._score += reward
        self.frames[-1] += 1
        info = {"episode_return": 2 * self._score} if self._unclipped else {}
        return self._target(), reward, self.frames[-1] == self._length, False, info

    def close(self) -> None:
        self.closed = True

    def _target(self) -> np.ndarray[Any, Any]:
        return np.array(self.frames[-1] // HOLD % 3)


def follow(observation: Any) -> int:
    """The best policy without delay."""
    return int(observation)


class Noisy:
    """A policy that sometimes idles, by the keys of the decision alone."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def act(self, observation: Any, decision: Decision) -> int:
        self.decisions.append(decision)
        return IDLE if (7 * decision.episode + 3 * decision.start) % 5 == 0 else int(observation)


class NoisyAgent:
    """`Noisy` in Dopamine's interface: it counts its own episodes, and it would learn outside evaluation."""

    def __init__(self) -> None:
        self.eval_mode = False
        self.episodes = 0
        self.ends: list[tuple[float, bool]] = []
        self._policy = Noisy()

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        self.episodes += 1
        return self.step(0.0, observation, realtime)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        assert self.eval_mode, "it would learn"
        assert realtime is not None
        return self._policy.act(observation, Decision(self.episodes - 1, realtime["start"], 0, True))

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        assert observation is not None
        assert realtime is not None
        self.ends.append((reward, terminal))


def costs(found: Decomposition) -> dict[str, float]:
    return {name: estimate.mean for name, estimate in found.costs.items()}


@pytest.mark.parametrize(
    ("delay", "noops", "paid"),
    [  # right frames of each four: no delay, delay alone, noops alone, both
        (0, 0, (4, 4, 4, 4)),
        (1, 0, (4, 3, 4, 3)),
        (4, 0, (4, 0, 4, 0)),
        (0, 1, (4, 4, 2, 2)),
        (1, 1, (4, 3, 2, 2)),  # effects on frames 1 and 3, both right
        (2, 1, (4, 2, 2, 1)),  # effects on frames 0 and 2, the second is right
        (2, 3, (4, 2, 1, 1)),  # an effect on frame 2
        (3, 3, (4, 1, 1, 1)),
    ],
)
def test_costs_are_those_counted_by_hand(delay: int, noops: int, paid: tuple[int, int, int, int]) -> None:
    found = decompose(lambda: Target(blocks=1), follow, delay, noops, episodes=2)
    none, late, rare, both = (12 * count for count in paid)
    assert {rung: x.mean for rung, x in found.returns.items()} == {
        "no_delay": none,
        "delay_only": late,
        "noops_only": rare,
        "both": both,
    }
    assert costs(found) == {
        "delay": none - late,
        "inaction": none - rare,
        "both": none - both,
        "interaction": late + rare - none - both,
    }


def test_an_interval_without_spread_is_a_point_and_pairs_take_the_spread_of_seeds_away() -> None:
    found = decompose(lambda: Target(bonus=1.0, blocks=1), follow, 1, 1, episodes=12)
    for mean, low, high in found.returns.values():
        assert low < mean < high
    for mean, low, high in found.costs.values():
        assert low == mean == high
    assert costs(found) == {"delay": 12, "inaction": 24, "both": 24, "interaction": -12}


def test_about_19_of_20_intervals_hold_the_true_cost() -> None:
    truth = {"delay": 24.0, "inaction": 48.0, "both": 48.0, "interaction": -24.0}  # two blocks on average
    held = []
    for seed in range(20):
        found = decompose(Target, follow, 1, 1, episodes=20, seed=seed)
        held += [low <= truth[name] <= high for name, (_, low, high) in found.costs.items()]
    assert 0.80 <= np.mean(held) < 1


def test_the_same_arguments_give_the_same_result_and_another_seed_another() -> None:
    first, again, other = (decompose(Target, follow, 2, 1, episodes=6, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.scores != other.scores


@pytest.mark.parametrize("default_action", ["random", "repeat"])
def test_every_rung_meets_the_same_seeds_and_all_environments_are_closed(default_action: str) -> None:
    made: list[Target] = []

    def make_env() -> Target:
        made.append(Target())
        return made[-1]

    decompose(make_env, follow, 2, 1, episodes=5, default_action=default_action)
    assert len(made) == 4
    assert all(env.seeds == made[0].seeds and env.closed for env in made)
    assert len(set(made[0].seeds)) == 5


def test_a_decision_on_the_same_frame_of_the_same_episode_has_the_same_key_on_every_rung() -> None:
    policy = Noisy()
    decompose(lambda: Target(blocks=1), policy, 3, 1, episodes=2)
    every_frame = {Decision(n, start, start, True) for n in range(2) for start in range(BLOCK)}
    assert set(policy.decisions) == every_frame
    assert max(policy.decisions.count(decision) for decision in every_frame) == 4


def test_an_agent_gives_what_its_policy_gives_and_is_left_as_it_was() -> None:
    agent = NoisyAgent()
    found = decompose(Target, agent, 2, 1, episodes=6)
    assert found == decompose(Target, Noisy(), 2, 1, episodes=6)
    assert (agent.episodes, agent.eval_mode, agent.ends) == (0, False, [])


def test_an_episode_is_cut_after_the_same_frames_on_every_rung() -> None:
    made: list[Target] = []

    def make_env() -> Target:
        made.append(Target())
        return made[-1]

    found = decompose(make_env, follow, 5, 7, episodes=3, max_frames=10)
    assert [env.frames for env in made] == [[10, 10, 10]] * 4
    assert found.returns["no_delay"].mean == 10


def test_a_cut_is_told_to_the_agent_as_no_termination(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[bool] = []
    monkeypatch.setattr(NoisyAgent, "end_episode", lambda self, reward, terminal, *rest: ends.append(terminal))
    decompose(lambda: Target(blocks=1), NoisyAgent(), 1, 0, episodes=2, max_frames=10)
    decompose(lambda: Target(blocks=1), NoisyAgent(), 1, 0, episodes=2)
    assert ends == [False] * 8 + [True] * 8


def test_an_episode_that_ends_before_the_first_action_lands_is_scored() -> None:
    found = decompose(lambda: Target(blocks=1), follow, BLOCK + 1, 0, episodes=2)
    assert costs(found)["delay"] == BLOCK


def test_the_score_is_the_return_that_the_environment_tells_where_it_does() -> None:
    found = decompose(lambda: Target(blocks=1, unclipped=True), follow, 0, 0, episodes=2)
    assert found.returns["no_delay"].mean == 2 * BLOCK


def test_a_result_is_plain_data_and_a_table() -> None:
    found = decompose(lambda: Target(blocks=1), follow, 1, 1, episodes=2)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["episodes"] == 2
    assert data["scores"]["both"] == [24.0, 24.0]
    assert data["costs"]["inaction"] == {"mean": 24.0, "low": 24.0, "high": 24.0}
    lines = str(found).splitlines()
    assert lines[0] == "delay 1 frames, noops 1 frames, default action 'noop', 2 episodes"
    assert lines[-1].split() == ["interaction", "-12.00", "-12.00", "to", "-12.00"]
    assert len({line.index(".") for line in lines[2:]}) == 1
    assert len(lines) == 10


class Clock:
    """A policy with memory that counts its decisions, and so knows what pays `delay` frames after each of them."""

    def __init__(self, delay: int) -> None:
        self._delay = delay

    def encode(self, observation: Any, decision: Decision) -> Any:
        return observation

    def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
        number = 0 if memory.first else memory.state + 1
        return SimpleNamespace(action=(number + self._delay) // HOLD % 3, state=number)


def test_memory_goes_from_applied_decision_to_applied_decision_and_starts_afresh_with_an_episode() -> None:
    found = decompose(lambda: Target(blocks=1), Clock(2), 2, 0, episodes=3)
    assert found.scores["delay_only"] == (BLOCK - 2,) * 3  # all but the frames before the first action
    assert found.scores["no_delay"] == (BLOCK / 2,) * 3  # it looks ahead where nothing is late


@pytest.mark.parametrize(("delay", "noops"), [(0, 0), (3, 0), (0, 2), (4, 1), (25, 1)])
def test_a_policy_with_memory_is_given_what_the_rules_say(delay: int, noops: int) -> None:
    rewards = (1.0, 2.5, -3.0)
    taken: list[Taken] = []
    decompose(lambda: RecordingEnv(length=20, rewards=rewards), Remembering(taken=taken), delay, noops, episodes=2)
    starts = range(0, max(20 - delay, 1), noops + 1)  # of the rung with both, which comes first
    pairs = [(start, start + delay) for start in starts]
    expected: list[Taken] = []
    replayed(
        RecordingEnv(length=20, rewards=rewards), Remembering(taken=expected), [pairs], lambda *_: 2, [20], 0, True
    )
    assert taken[: len(expected)] == expected
    assert len(expected) == (0 if delay > 20 else len(pairs))
    assert taken[len(pairs)].decision[:2] == (1, 0)


class OverAgain:
    """Gives chunks of what it sees."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __call__(self, observation: Any) -> Any:
        shown = observation["observation"] if isinstance(observation, dict) else observation
        return np.full(self._length, int(shown))


@pytest.mark.parametrize(
    ("delay", "noops", "paid"),
    [  # right frames of each four; with both, the first `delay` frames pay nothing, and are wrong in each block
        (1, 0, (4, 3, 4, 3)),
        (0, 1, (4, 4, 4, 4)),
        (0, 7, (4, 4, 2, 2)),  # on frames 0 to 3 of each eight
        (1, 1, (4, 3, 4, 3)),  # starts on frames 0 and 2, effects on 1 and 3
        (2, 1, (4, 2, 4, 2)),  # those of starts 0 and 2 hold on frames 2, 3 and 4, 5
    ],
)
def test_chunks_act_on_the_frames_between_on_every_rung(delay: int, noops: int, paid: tuple[int, ...]) -> None:
    chunks: Any = {"default_action": Chunk(9, IDLE), "episodes": 2}
    found = decompose(lambda: Target(blocks=1), OverAgain(9), delay, noops, **chunks)
    names = ("no_delay", "delay_only", "noops_only", "both")
    assert {name: found.returns[name].mean for name in names} == dict(
        zip(names, (12 * count for count in paid), strict=True)
    )
    if delay + noops == 2:
        shortest: Any = {"default_action": "chunk", "episodes": 2}
        assert decompose(lambda: Target(blocks=1), OverAgain(3), delay, noops, **shortest).scores == found.scores


def test_a_wrapper_may_stand_around_the_delay() -> None:
    chunks: Any = {"default_action": "chunk", "episodes": 2}
    plain = decompose(lambda: Target(blocks=1), OverAgain(4), 2, 1, **chunks)
    told = decompose(lambda: Target(blocks=1), OverAgain(4), 2, 1, **chunks, wrap=lambda env: CommittedPrefix(env, 2))
    assert told == plain


class Uncopyable(NoisyAgent):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Learner(NoisyAgent):
    def __init__(self) -> None:
        super().__init__()
        del self.eval_mode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 1}, "episodes must be a whole number >= 2, got 1"),
        ({"episodes": 2.5}, "episodes must be a whole number"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"max_frames": 0}, "max_frames must be a whole number >= 1, or None, got 0"),
        ({"delay": -3}, "delay must be >= 0 frames, got -3"),
        ({"noops": 0.5}, "noops must be a whole number of frames"),
        ({"default_action": "nop"}, "did you mean 'noop'"),
        ({"policy": 3}, "policy must be an object with act.*got 3"),
        ({"policy": NoisyAgent}, "policy must be an object with act.*got <class"),
        ({"policy": Learner()}, "policy must have eval_mode"),
        ({"policy": Uncopyable()}, "policy must be an agent that can be copied.*lock.*give a function"),
        ({"policy": Clock}, "policy must be an object with act.*got <class"),
        ({"wrap": 4}, "wrap must be a function that wraps a gymnasium.Env, or None, got 4"),
        ({"default_action": Chunk(2)}, r"length of a Chunk must be >= delay .* interval .* got Chunk\(length=2"),
        ({"make_env": Target()}, "make_env must be a function that makes a gymnasium.Env"),
        ({"make_env": lambda: None}, "make_env must be a function that makes a gymnasium.Env, got None"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(arguments: dict[str, Any], message: str) -> None:
    played: list[int] = []

    def note(observation: Any) -> int:
        played.append(1)
        return follow(observation)

    with pytest.raises(ValueError, match=message):
        decompose(**({"make_env": Target, "policy": note, "delay": 1, "noops": 1} | arguments))
    assert played == []


def test_a_policy_that_gives_no_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match=r"action must be a chunk of shape \[3\], got shape \[\]"):
        decompose(Target, follow, 1, 1, default_action="chunk")


def test_a_wrapper_that_shows_each_rung_something_else_is_refused() -> None:
    def wrap(env: Any) -> Any:
        return CommittedPrefix(env, max(1, env.get_wrapper_attr("playout")))

    with pytest.raises(ValueError, match=r"wrap must show the same observations on every rung.*give it a fixed length"):
        decompose(Target, OverAgain(4), 2, 1, default_action="chunk", wrap=wrap)


def test_the_environment_is_closed_when_the_policy_fails() -> None:
    env = Target()

    def fail(observation: Any) -> int:
        raise RuntimeError("out of memory")

    make_env: Callable[[], Target] = lambda: env  # noqa: E731
    with pytest.raises(RuntimeError, match="out of memory"):
        decompose(make_env, fail, 1, 1)
    assert env.closed
