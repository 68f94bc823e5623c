"""How many unrolls can wait: under any delay, for any lengths, nothing is dropped and the queue never overflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import example, given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from async_wrappers.agents.acting.decisions import PolicyOutput
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay import memory
from async_wrappers.agents.replay.mixture import Mixture, UnrollQueue, most_waiting, whole_at_once
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.replay.unrolls import SourceSpec, StandardReplay
from async_wrappers.agents.spec import Spec
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.latency import Uniform

SPACE = Box(-1.0, 1.0, (1,), np.float32)


class Lasting(gym.Env[Any, Any]):
    """Its episodes last as many frames as it is told, over and over."""

    observation_space, action_space = SPACE, Discrete(2)

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._lengths, self._episode = lengths, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._frame = self._episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._frame += 1
        over = self._frame >= self._lengths[self._episode % len(self._lengths)]
        return np.zeros(1, np.float32), 1.0, over, False, {}


class Taking:
    """A learner that draws its batches and learns nothing."""

    def __init__(self, replay: Mixture) -> None:
        self.replay, self.updates, self.most = replay, 0, 0

    def observe(self, transition: Mapping[str, Any]) -> None:
        self.replay.observe(transition)
        self.most = max(self.most, len(self.replay.sources[0]))

    def extend(self, block: Mapping[str, Any]) -> None:
        self.replay.extend(block)
        self.most = max(self.most, len(self.replay.sources[0]))

    def cut(self, observation: Any, env_id: int = 0) -> None:
        self.replay.cut(observation, env_id)
        self.most = max(self.most, len(self.replay.sources[0]))

    @property
    def ready(self) -> bool:
        return self.replay.drawable

    def update(self) -> dict[str, Any]:
        self.replay.sample()
        self.updates += 1
        return {}


class FirstAction:
    def act(self, inputs: Any, state: Any, decisions: Any) -> PolicyOutput:
        return PolicyOutput(np.zeros(len(inputs), np.int64))


class Unrolls(Spec):
    """An agent whose learner takes its unrolls out of a queue as V-trace does."""

    learns_once = True

    def __init__(
        self, *spaces: Any, length: int, rows: int, sources: Any = None, decisions: int | None = None, **more: Any
    ) -> None:
        super().__init__(*spaces, **more)
        self.decisions = decisions
        self.length, self.rows, self.sources, self.batch_size = length, rows, sources, length * rows

    def make_learner(self, number: int = 0, learners: int = 1) -> Taking:
        return self.make_vector_learner(1)

    def make_vector_learner(self, num_envs: int) -> Taking:
        how: dict[str, Any] = {"num_envs": num_envs, "unroll_length": self.length, "batch_size": self.rows}
        how["decisions"] = self.decisions
        return Taking(Mixture(SPACE, None, self.sources, in_flight=self.in_flight, **how))

    def make_policy_of(self, learner: Any) -> Any:
        return FirstAction()

    def make_vector_policy(self, learner: Any, num_envs: int) -> Any:
        return FirstAction()


def made(make: Callable[..., Any], **how: Any) -> Unrolls:
    """The spec of an agent that has been made for an environment, as runners make it."""
    spec: Any = TurnBasedAgent.playing(Unrolls, make((1,)), **how).spec
    return spec


def beside(agent: VectorAgent) -> None:
    """Let updates be spread over time, as those beside the environments are."""
    overlap: Any = SimpleNamespace(under_way=False, join=lambda: None, start=agent.learner.update)
    agent._overlap = overlap


def played(make: Callable[..., Any], spec: Unrolls, lengths: list[tuple[int, ...]], rounds: int, how: str) -> Any:
    """Play environments with these lengths of episodes; return the learner, and how it was at most."""
    if how == "turn":
        one, env = TurnBasedAgent(spec), make(lengths[0])
        for episode in range(rounds // 4):
            observation, info = env.reset(seed=episode)
            action, over = one.begin_episode(observation, info.get("realtime")), False
            while not over:
                observation, reward, over, _, info = env.step(action)
                if over:
                    one.end_episode(reward, True, observation, info.get("realtime"))
                else:
                    action = one.step(reward, observation, info.get("realtime"))
        return one.learner
    agent = VectorAgent(spec, len(lengths))
    if how == "beside":
        beside(agent)
    envs = VectorEnvs(SyncVectorEnv([partial(make, each) for each in lengths], autoreset_mode=AutoresetMode.SAME_STEP))
    envs.begin(list(range(len(lengths))))
    for _ in range(rounds):
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))
    agent.observe(envs.cut())
    envs.close()
    return agent.learner


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)


@settings(deadline=None, max_examples=6)
@given(
    delay=st.integers(0, 30),
    noops=st.integers(0, 3),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 5)).filter(lambda shape: shape != (1, 1)),
    lengths=st.lists(LENGTHS, min_size=1, max_size=4),
    how=st.sampled_from(["turn", "vector", "beside"]),
    mixed=st.booleans(),
)
@example(30, 0, (10, 16), [(33, 61, 40, 5)], "turn", False)
@example(12, 0, (4, 5), [(9, 35, 22, 60)], "turn", False)
@example(60, 0, (10, 16), [(90, 130), (110, 64), (100, 61), (75, 200)], "vector", False)
@example(20, 0, (2, 1), [(25, 1), (27, 1), (21, 2), (30, 1)], "beside", False)
@example(20, 0, (2, 1), [(25, 1), (27, 1), (21, 2), (30, 1)], "vector", False)
@example(7, 0, (5, 1), [(37,)], "turn", True)
def test_what_is_in_flight_always_finds_room(
    delay: int, noops: int, shape: tuple[int, int], lengths: list[tuple[int, ...]], how: str, mixed: bool
) -> None:
    def make(each: tuple[int, ...]) -> Any:
        return RealtimeDelay(Lasting(each), delay=delay, noops=noops, default_action=0)

    length, rows = shape
    sources = [("queue", 0.5), (partial(StandardReplay, capacity=20), 0.5)] if mixed and length > 3 else None
    spec = made(make, length=length, rows=rows, sources=sources)
    learner = played(make, spec, lengths, 250, how)
    queue = learner.replay.sources[0]
    of_queue = rows if sources is None else -(-rows // 2)
    num_envs = 1 if how == "turn" else len(lengths)
    capacity = most_waiting(of_queue, num_envs, length, -(-delay // (noops + 1)))
    assert queue.facts()["capacity"] == capacity
    behind = 1 if sources is not None and rows % 2 else 0  # half of an odd batch is no whole number of unrolls
    assert learner.most <= capacity + behind
    assert sources is not None or queue.dropped == 0
    assert learner.replay.queue_in_words().startswith(f"{capacity + behind} unrolls (")


@settings(deadline=None, max_examples=6)
@given(
    delay=st.integers(0, 30),
    noops=st.integers(0, 3),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(2, 8)).filter(
        lambda shape: 2 * shape[2] <= shape[0] * shape[1]
    ),
    batches=st.integers(1, 5),
    lengths=st.lists(LENGTHS, min_size=1, max_size=4),
    how=st.sampled_from(["turn", "vector", "beside"]),
)
@example(30, 0, (2, 2, 2), 5, [(33, 1, 40, 5)], "turn")
@example(0, 0, (1, 4, 2), 5, [(1,)], "turn")
@example(20, 0, (2, 2, 2), 3, [(25, 1), (27, 1), (21, 2), (30, 1)], "vector")
@example(20, 0, (2, 2, 2), 3, [(25, 1), (27, 1), (21, 2), (30, 1)], "beside")
@example(0, 0, (2, 2, 2), 1, [(1,)], "beside")  # an unroll with each decision, and room with every other update
@example(0, 3, (2, 3, 2), 4, [(3, 1), (2, 1, 2), (1, 1, 3, 2), (36, 40, 3, 1)], "beside")
@example(0, 2, (2, 5, 5), 3, [(2,), (1, 1, 5, 1), (3, 3), (2, 1)], "beside")  # rounds end amid passes
def test_a_circular_buffer_finds_room_too(
    delay: int, noops: int, shape: tuple[int, int, int], batches: int, lengths: list[tuple[int, ...]], how: str
) -> None:
    def make(each: tuple[int, ...]) -> Any:
        return RealtimeDelay(Lasting(each), delay=delay, noops=noops, default_action=0)

    length, rows, times = shape
    ring = partial(UnrollQueue, batches=batches, replay_coefficient=times)
    spec = made(make, length=length, rows=rows, sources=[(ring, 1.0)])
    spec.replay_coefficient = times
    learner = played(make, spec, lengths, 250, how)
    queue = learner.replay.sources[0]
    num_envs = 1 if how == "turn" else len(lengths)
    capacity = most_waiting(rows, num_envs, length, -(-delay // (noops + 1)), batches, times)
    assert queue.facts()["capacity"] == capacity
    assert learner.most <= capacity and queue.dropped == 0


@settings(deadline=None, max_examples=4)
@given(
    workers=st.integers(1, 40),
    longest=st.floats(0.01, 0.6),
    max_age=st.none() | st.integers(40, 60),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 5)).filter(lambda shape: shape != (1, 1)),
    lengths=st.lists(LENGTHS, min_size=1, max_size=3),
    how=st.sampled_from(["turn", "vector", "beside"]),
)
@example(40, 0.6, None, (2, 1), [(40, 39)], "turn")
def test_under_random_latencies_too(
    workers: int, longest: float, max_age: int | None, shape: tuple[int, int], lengths: list[Any], how: str
) -> None:
    def make(each: tuple[int, ...]) -> Any:
        return RealtimeDelay(
            Lasting(each),
            latency=Uniform(longest / 3, longest),
            workers=workers,
            fps=60,
            playout="p50",
            max_age=max_age,
            default_action=0,
        )

    length, rows = shape
    spec = made(make, length=length, rows=rows)
    learner = played(make, spec, lengths, 200, how)
    queue = learner.replay.sources[0]
    num_envs = 1 if how == "turn" else len(lengths)
    assert queue.dropped == 0
    assert queue.facts()["capacity"] == most_waiting(rows, num_envs, length, max_age or 0)
    if max_age is not None:
        assert learner.most <= queue.facts()["capacity"]
    assert learner.replay.queue_in_words().endswith("where latencies ask for it") == (max_age is None)


@pytest.mark.parametrize(("decisions", "num_envs", "delay"), [(64, 8, 30), (8, 1, 100)])
def test_rounds_that_become_whole_at_once_find_room(decisions: int, num_envs: int, delay: int) -> None:
    def make(each: tuple[int, ...]) -> Any:
        return RealtimeDelay(Lasting(each), delay=delay, default_action=0)

    spec = made(make, length=2 * -(-decisions // num_envs) + 2, rows=num_envs, decisions=decisions)
    how, rounds = ("turn", 12) if num_envs == 1 else ("vector", 250)
    learner = played(make, spec, [(200,)] * num_envs, rounds, how)
    queue = learner.replay.sources[0]
    assert queue.dropped == 0 and learner.updates > 10
    assert learner.most > most_waiting(num_envs, num_envs, spec.length, delay) == queue.facts()["capacity"]


def test_the_bound_is_reached_within_an_unroll_of_each_environment() -> None:
    """All that is in flight closes at once where the episodes of all environments end together."""

    def make(each: tuple[int, ...]) -> Any:
        return RealtimeDelay(Lasting(each), delay=60, default_action=0)

    learner = played(make, made(make, length=10, rows=16), [(121,)] * 4, 250, "vector")
    capacity = most_waiting(16, 4, 10, 60)
    assert capacity == 16 + 4 * 7 and 4 * 6 <= learner.most <= capacity


def test_without_a_long_delay_the_capacity_is_what_it_was() -> None:
    for length in range(1, 30):
        for in_flight in range(length):
            assert most_waiting(16, 4, length, in_flight) == 16 + 2 * 4


@pytest.mark.parametrize(
    ("length", "in_flight", "whole"), [(20, 0, 1), (1, 0, 2), (10, 30, 4), (4, 12, 4), (10, 60, 7)]
)
def test_unrolls_of_an_environment_that_become_whole_at_once(length: int, in_flight: int, whole: int) -> None:
    assert whole_at_once(length, in_flight) == whole


def test_a_queue_that_grows_keeps_what_waits_in_its_order_and_goes_on_from_a_saved_state() -> None:
    found: list[Any] = []

    def queue_of(emit: Any) -> tuple[Assembly, UnrollQueue]:
        assembly = Assembly(SPACE, None, emit, length=2, period=2)
        return assembly, UnrollQueue(SourceSpec(assembly, 1, 2, in_flight=None))

    def emit(columns: Any) -> None:
        found.append({name: np.array(column) for name, column in columns.items()})

    assembly, queue = queue_of(emit)
    for step in range(61):
        assembly.observe(
            {
                "observation": np.full(1, step / 100, np.float32),
                "action": 0,
                "reward": float(step),
                "interval": 1,
                "terminal": False,
                "truncated": False,
                "next_observation": np.zeros(1, np.float32),
            }
        )
    for each in found[:3]:
        queue.put(each, begun=True)
    rewards = queue.draw(2)["reward"].T.tolist()
    for each in found[3:]:
        queue.put(each, begun=True)
    assert len(queue) == len(found) - 2 > queue.facts()["capacity"] == 4
    other = queue_of(emit)[1]
    other.load_state_dict(queue.state_dict())
    for each in (queue, other):
        rest = list(rewards)
        while each.ready(2):
            rest += each.draw(2)["reward"].T.tolist()
        assert rest == [[2.0 * n, 2.0 * n + 1.0] for n in range(len(rest))] and len(rest) >= 28


def test_until_learning_begins_a_queue_that_grows_drops_the_oldest() -> None:
    assembly = Assembly(SPACE, None, lambda columns: None, length=1, period=1)
    queue = UnrollQueue(SourceSpec(assembly, 1, 2, in_flight=None))
    whole = {name: np.zeros((1, *column.shape), column.dtype) for name, column in assembly.columns.items()}
    for _ in range(9):
        queue.put(whole, begun=False)
    assert len(queue) == 4 and queue.dropped == 5
    queue.put(whole, begun=True)
    assert len(queue) == 5 and queue.dropped == 5


def test_a_queue_that_memory_does_not_hold_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)

    def make(each: tuple[int, ...]) -> Any:
        return RealtimeDelay(Lasting(each), delay=10**9, default_action=0)

    with pytest.raises(ValueError) as caught:
        made(make, length=10, rows=2)
    assert str(caught.value) == (
        "memory must hold a queue of 100,000,004 unrolls, as many as become whole at once where 1,000,000,000 "
        "decisions of each environment are on their way: that is 38.7 GB, and 1.0 GB are free; give a shorter delay, "
        "fewer environments or shorter unrolls"
    )
