"""A queue of unrolls: each step once, rows as they were lived, and a saved queue goes on bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.networks.sequence_network import sequence_tensors
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.replay.mixture import Mixture, UnrollQueue
from async_wrappers.agents.replay.sequences import Assembly
from async_wrappers.agents.spaces.compute import Compute, Reader
from tests.contracts.agent_contract import play
from tests.contracts.source_contract import SourceContract
from tests.worlds.lived_rows import EXTRAS, SPACE, World
from tests.worlds.plain_data import assert_identical


def expected(world: World, env_id: int, start: int, length: int, stack: int, gamma: float) -> dict[str, Any]:
    """A sequence row by row, as the module's comment says."""
    rows = world.rows[env_id]
    found: dict[str, list[Any]] = {name: [] for name in ("stack", "action", "reward", "discount", "mask", "logits")}
    found |= {name: [] for name in ("previous_action", "previous_reward", "first")}
    for t in range(start, start + length + 1):
        _here, step, first = rows[t]
        begins = max(each for each in range(t + 1) if rows[each][2])
        stacked = [rows[max(each, 0)][0] if each >= begins else 0.0 for each in range(t - stack + 1, t + 1)]
        found["stack"].append(stacked)
        found["first"].append(first)
        before = None if first else rows[t - 1][1]
        found["previous_action"].append(-1 if before is None else before["action"])
        found["previous_reward"].append(0.0 if before is None else before["reward"])
        if t < start + length:
            found["action"].append(0 if step is None else step["action"])
            found["reward"].append(0.0 if step is None else step["reward"])
            found["discount"].append(0.0 if step is None or step["terminal"] else gamma ** step["interval"])
            found["mask"].append(float(step is not None))
            found["logits"].append(np.zeros(2) if step is None else step["logits"])
    _, _, first = rows[start]
    before = None if first else rows[start - 1][1]
    return {**found, "state": np.zeros(3) if before is None else before["state"]}


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(0, 4), st.integers(0, 2**31))
def test_sequences_are_the_rows_as_they_were_lived(
    num_envs: int, length: int, stack: int, overlap: int, seed: int
) -> None:
    period = max(1, length - overlap)
    found: list[dict[str, Any]] = []

    def emit(columns: Any) -> None:
        for row in range(len(columns["mask"])):
            found.append(assembly.batch({name: column[row][None] for name, column in columns.items()}))

    assembly = Assembly(
        SPACE,
        EXTRAS,
        emit,
        num_envs=num_envs,
        length=length,
        period=period,
        stack_size=stack,
        gamma=0.5,
        discount_by="frame",
    )
    world, rng = World(num_envs, seed), np.random.default_rng(seed)
    for _ in range(30):
        assembly.extend(world.block())
        if rng.random() < 0.1:
            env_id = int(rng.integers(num_envs))
            assembly.cut(world.cut(env_id), env_id)
    reader = Reader(SPACE, stack, Compute("cpu"))
    starts = [0] * num_envs
    assert len(found) == sum(max(0, (len(rows) - length - 1) // period + 1) for rows in world.rows)
    for batch in found:
        time_major = {
            name: array if name == "state" else array.swapaxes(0, 1)
            for name, array in batch.items()
            if name not in ("extras",)
        }
        time_major["extras"] = {"logits": batch["extras"]["logits"].swapaxes(0, 1)}
        tensors = sequence_tensors(time_major, reader, Compute("cpu").tensor, stack)
        env_id = int(tensors["observation"][0, 0, -1, 0]) // 1000
        wanted = expected(world, env_id, starts[env_id], length, stack, 0.5)
        starts[env_id] += period
        assert torch.equal(tensors["observation"][:, 0, :, 0], torch.tensor(wanted["stack"]))
        for name in ("action", "reward", "discount", "mask", "previous_action", "previous_reward", "first"):
            assert tensors[name][:, 0].tolist() == np.array(wanted[name], tensors[name].numpy().dtype).tolist(), name
        np.testing.assert_array_equal(tensors["extras"]["logits"][:, 0], np.array(wanted["logits"], np.float32))
        np.testing.assert_array_equal(tensors["state"][0], wanted["state"])


def make(capacity: int = 50, when_full: Any = "wait", **arguments: Any) -> Mixture:
    defaults = {"num_envs": 3, "unroll_length": 4, "batch_size": 2, "stack_size": 2}
    queue = partial(UnrollQueue, capacity=capacity, when_full=when_full)
    return Mixture(SPACE, EXTRAS, [(queue, 1.0)], **{**defaults, **arguments})


def lived(queue: Mixture, world: World, blocks: int) -> Iterator[None]:
    for _ in range(blocks):
        queue.extend(world.block())
        yield


def steps_of(batch: dict[str, Any]) -> list[float]:
    """The observations of the decisions of a batch, each a number of its own."""
    newest = batch["observation"][1:-1, :, 0]  # stacks of two: one observation lies before row 0
    return [each.item() for column in range(newest.shape[1]) for each in newest[batch["mask"][:, column] > 0, column]]


def test_each_step_is_drawn_once_and_in_order() -> None:
    queue, world, drawn = make(), World(3, 0), []
    for _ in lived(queue, world, 200):
        while queue.drawable:
            drawn += steps_of(queue.sample())
    every = [here for rows in world.rows for here, step, _ in rows if step is not None]
    assert len(set(drawn)) == len(drawn) and set(drawn) <= set(every)
    assert len(every) - len(drawn) <= 3 * 5 + 4 and queue.add_count == len(every)
    for env_id in range(3):
        own = [here for here in drawn if here // 1000 == env_id]
        assert own == sorted(own)


@pytest.mark.parametrize(("when_full", "kept"), [("drop_oldest", [3, 4]), ("drop_newest", [0, 1])])
def test_a_full_queue_drops_what_it_is_told_to(when_full: str, kept: list[int]) -> None:
    queue = make(num_envs=1, unroll_length=1, capacity=2, when_full=when_full)
    for step in range(6):  # the first five are whole
        observation = np.full(2, step, np.float32)
        extras = {"logits": np.zeros(2, np.float32), "state": np.zeros(3, np.float32)}
        numbers = {"action": 0, "reward": 0.0, "interval": 1, "terminal": False, "truncated": False}
        queue.observe({"observation": observation, "next_observation": observation, "extras": extras, **numbers})
    assert queue.sources[0].dropped == 3 and len(queue) == 2  # type: ignore[attr-defined]
    assert steps_of(queue.sample()) == kept


def test_alternating_drops_the_newcomer_half_of_the_times_by_its_seed() -> None:
    def play(seed: int, resumed_at: int | None = None) -> tuple[list[bool], Any]:
        queue, stayed = make(num_envs=1, unroll_length=1, capacity=2, when_full="alternate", seed=seed), []
        for step in range(400):
            if step == resumed_at:
                state = queue.state_dict()
                queue = make(num_envs=1, unroll_length=1, capacity=2, when_full="alternate", seed=seed + 1)
                queue.load_state_dict(state)
            observation, before = np.full(2, step, np.float32), queue.state_dict()["sources"][0]["head"]
            extras = {"logits": np.zeros(2, np.float32), "state": np.zeros(3, np.float32)}
            numbers = {"action": 0, "reward": 0.0, "interval": 1, "terminal": False, "truncated": False}
            queue.observe({"observation": observation, "next_observation": observation, "extras": extras, **numbers})
            stayed.append(queue.state_dict()["sources"][0]["head"] > before)
        assert len(queue) == 2 and queue.sources[0].dropped == 397  # type: ignore[attr-defined]
        return stayed[3:], steps_of(queue.sample())

    assert 150 < sum(play(0)[0]) < 250
    assert play(0) == play(0) == play(0, resumed_at=200) != play(1)


def test_a_full_queue_that_waits_says_that_nobody_learns() -> None:
    queue = make(capacity=2)
    with pytest.raises(RuntimeError, match=r"^the queue holds its capacity of 2 unrolls, and more have become whole"):
        for _ in lived(queue, World(3, 0), 50):
            pass


def test_an_agent_made_by_hand_under_a_delay_is_told_how_to_be_made() -> None:
    env = RealtimeDelay(gym.make("CartPole-v1"), delay=6, default_action="random")
    small = {"unroll_length": 1, "batch_size": 2, "device": "cpu"}
    spec = VTrace(env.observation_space, env.action_space, **small)
    sentence = r"make the agent by TurnBasedAgent.playing \(or set spec.in_flight to the .*, got 0\), let it"
    with pytest.raises(RuntimeError, match=sentence):
        play(TurnBasedAgent(spec), env, range(9))
    play(TurnBasedAgent.playing(VTrace, env, **small), env, range(9))


# A circular buffer.


def ring(batches: int, replay_coefficient: int, **arguments: Any) -> Mixture:
    capacity, when_full = arguments.pop("capacity", 50), arguments.pop("when_full", "wait")
    how: dict[str, Any] = {"batches": batches, "replay_coefficient": replay_coefficient}
    queue = partial(UnrollQueue, capacity=capacity, when_full=when_full, **how)
    defaults: dict[str, Any] = {"num_envs": 3, "unroll_length": 4, "batch_size": 2, "stack_size": 2}
    return Mixture(SPACE, EXTRAS, [(queue, 1.0)], **{**defaults, **arguments})


def single_steps(queue: Mixture, steps: range) -> None:
    """Let a queue of unrolls of one row of one environment observe steps whose observations are their numbers."""
    for step in steps:
        observation = np.full(2, step, np.float32)
        extras = {"logits": np.zeros(2, np.float32), "state": np.zeros(3, np.float32)}
        numbers = {"action": 0, "reward": 0.0, "interval": 1, "terminal": False, "truncated": False}
        queue.observe({"observation": observation, "next_observation": observation, "extras": extras, **numbers})


def test_batches_of_a_circular_buffer_are_drawn_in_turn_and_leave_after_the_last_pass() -> None:
    queue = ring(3, 2, num_envs=1, unroll_length=1)
    single_steps(queue, range(5))  # of which four are whole
    drawn = [steps_of(queue.sample()) for _ in range(2)]
    assert drawn == [[0, 1], [2, 3]] and not queue.drawable and len(queue) == 4
    single_steps(queue, range(5, 9))
    held = list[int]()
    while queue.drawable:
        drawn.append(steps_of(queue.sample()))
        held.append(len(queue))
    assert drawn[2:] == [[4, 5], [0, 1], [2, 3], [4, 5], [6, 7]]
    assert held == [8, 6, 4, 2, 2]


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**31))
def test_every_step_is_drawn_as_often_as_is_told_whatever_order_play_and_updates_have(
    batches: int, times: int, rows: int, seed: int
) -> None:
    queue, rng, drawn = (
        ring(batches, times, num_envs=1, unroll_length=1, batch_size=rows),
        np.random.default_rng(seed),
        [],
    )
    step = 0
    while step < 40:
        few = int(rng.integers(1, 5))
        single_steps(queue, range(step, step + few))
        step += few
        while queue.drawable and (rng.random() < 0.8 or len(queue) > 30):
            drawn.append(steps_of(queue.sample()))
    while queue.drawable:
        drawn.append(steps_of(queue.sample()))
    every = [list(range(rows * batch, rows * (batch + 1))) for batch in range((step - 1) // rows)]
    whole = len(every) // batches * batches  # of the rest there was a first pass alone
    buffers = [every[first : first + batches] for first in range(0, whole, batches)]
    assert drawn == [batch for each in buffers for _ in range(times) for batch in each] + every[whole:]


class Places:
    """A circular buffer of lists: N places, each with the steps of a batch and the draws that they have left."""

    def __init__(self, batches: int, times: int, rows: int, capacity: int, when_full: str) -> None:
        self.places: list[tuple[list[int], int]] = [([], 0)] * batches
        self.times, self.rows, self.capacity, self.when_full = times, rows, capacity, when_full
        self.waiting, self.at = list[int](), 0
        self.dropped, self.drawn = list[int](), list[int]()

    def put(self, step: int) -> None:
        held = [batch for batch, left in self.places if left]
        if sum(map(len, held)) + len(self.waiting) == self.capacity:
            if self.when_full == "drop_newest":
                self.dropped.append(step)
                return
            oldest = min(held, default=self.waiting[:1])  # as a batch is learnt from, it leaves, whole
            self.places = [(batch, 0 if batch == oldest else left) for batch, left in self.places]
            self.waiting = [each for each in self.waiting if each not in oldest]
            self.dropped += oldest
        self.waiting.append(step)

    def draw(self) -> list[int] | None:
        batch, left = self.places[self.at]
        if not left:
            if len(self.waiting) < self.rows:
                return None
            batch, left = self.waiting[: self.rows], self.times
            self.waiting = self.waiting[self.rows :]
        self.places[self.at], self.at = (batch, left - 1), (self.at + 1) % len(self.places)
        self.drawn += batch
        return batch


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 3),
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(0, 4),
    st.sampled_from(["drop_oldest", "drop_newest"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
)
def test_what_is_not_dropped_is_learnt_from_as_often_as_is_told_whatever_is_dropped_beside_it(
    batches: int, times: int, rows: int, more: int, when_full: str, plan: list[int]
) -> None:
    capacity = batches * rows + more
    made = partial(
        ring, batches, times, num_envs=1, unroll_length=1, batch_size=rows, capacity=capacity, when_full=when_full
    )
    queue, model = made(), Places(batches, times, rows, capacity, when_full)
    single_steps(queue, range(1))
    put = 0
    for few in plan:  # draws after so many steps; 0: it is saved and goes on
        if not few:
            state, queue = queue.state_dict(), made()
            queue.load_state_dict(state)
        single_steps(queue, range(put + 1, put + 1 + few))  # each makes the one before it whole
        for step in range(put, put + few):
            model.put(step)
        put += few
        for _ in range(2):
            expected = model.draw()
            assert queue.drawable == (expected is not None)
            if expected is not None:
                assert steps_of(queue.sample()) == expected
        assert queue.sources[0].dropped == len(model.dropped)  # type: ignore[attr-defined]
    kept = {*model.waiting, *(step for batch, left in model.places if left for step in batch)}
    assert all(model.drawn.count(step) == times for step in {*range(put)} - {*model.dropped} - kept)
    assert len(queue) == len(kept)


def test_a_batch_that_is_pushed_out_makes_place_for_the_oldest_that_no_place_has() -> None:
    queue = ring(2, 2, num_envs=1, unroll_length=1, capacity=4, when_full="drop_oldest")
    single_steps(queue, range(5))
    drawn = [steps_of(queue.sample())]
    single_steps(queue, range(5, 7))
    drawn += [steps_of(queue.sample()) for _ in range(4)]
    assert drawn == [[0, 1], [2, 3], [4, 5], [2, 3], [4, 5]]


@pytest.mark.parametrize("draws", range(6))
def test_a_circular_buffer_that_counted_passes_goes_on(draws: int) -> None:
    queue, restored = (ring(2, 3, num_envs=1, unroll_length=1) for _ in range(2))
    single_steps(queue, range(13))
    for _ in range(draws):
        queue.sample()
    state = queue.state_dict()
    del state["sources"][0]["places"]
    state["sources"][0] |= {"pass": draws // 2, "place": draws % 2}
    restored.load_state_dict(state)
    for _ in range(8):
        assert steps_of(restored.sample()) == steps_of(queue.sample()) and len(restored) == len(queue)


class TestCircularBuffer(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return ring(3, 2, **arguments)


class TestQueue(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make(**arguments)


class TestAlternatingQueue(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make(capacity=3, when_full="alternate", **arguments)


def test_an_episode_under_way_at_a_save_is_ended_where_it_is_loaded(tmp_path: Path) -> None:
    queue, restored, world = make(num_envs=1, stack_size=1), make(num_envs=1, stack_size=1), World(1, 1)
    while not world.running[0] or len(queue) or len(world.rows[0]) < 3:
        queue.extend(world.block())
        if queue.drawable:
            queue.sample()
    queue.save(tmp_path, 0)
    restored.load(tmp_path, 0)
    world.running[0] = False
    while not restored.drawable:
        restored.extend(world.block())
    batch = restored.sample()
    assert not batch["mask"].all()
    finals = np.argwhere(batch["mask"] == 0)
    assert all(batch["first"][row + 1, column] for row, column in finals)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unroll_length": 0}, "length must be >= 1, got 0"),
        ({"num_envs": 0}, "num_envs must be >= 1, got 0"),
        ({"stack_size": 0}, "stack_size must be >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be >= 1 unroll, got 0"),
        ({"capacity": 1}, "capacity must be >= 2 unrolls, those of a batch, got 1"),
        (
            {"when_full": "drop"},
            "when_full must be one of 'wait', 'drop_oldest', 'drop_newest', 'alternate', got 'drop'",
        ),
        ({"gamma": 2.0}, "gamma must lie in [0, 1], got 2.0"),
        ({"discount_by": "hour"}, "discount_by must be 'decision' or 'frame', got 'hour'"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"env_ids": np.array([0, 0])}, "env_ids must be distinct and lie in [0, 3), got [0, 0]"),
        ({"env_ids": np.array([0, 3])}, "env_ids must be distinct and lie in [0, 3), got [0, 3]"),
        ({"terminal": np.array([True, False])}, "final must hold the last observation of environment 0, whose episode"),
        ({"extras": {"logits": np.zeros((2, 2), np.float32)}}, "extras['state'] must be [2, 3], got ()"),
        ({"observation": np.zeros((2, 3), np.float32)}, "observation must have shape (2, 2), got (2, 3)"),
    ],
)
def test_a_block_that_does_not_fit_is_refused_and_leaves_no_trace(changed: dict[str, Any], message: str) -> None:
    queue, flags = make(), np.zeros(2, bool)
    extras = {"logits": np.zeros((2, 2), np.float32), "state": np.zeros((2, 3), np.float32)}
    block = {"env_ids": np.arange(2), "observation": np.zeros((2, 2), np.float32), "action": np.zeros(2, int)}
    block |= {"reward": np.zeros(2), "interval": np.ones(2, int), "terminal": flags, "truncated": flags, "final": {}}
    before = queue.state_dict()
    with pytest.raises(ValueError) as caught:
        queue.extend({**block, "extras": extras, **changed})
    assert str(caught.value).startswith(message)
    assert_identical(queue.state_dict(), before)


def test_a_dict_of_observations_is_kept_by_key() -> None:
    space = Dict(a=Box(0, 1, (2,), np.float32), b=Discrete(3))
    queue = Mixture(space, unroll_length=2, batch_size=1)
    for step in range(3):
        observation = {"a": np.full(2, 0.25 * step, np.float32), "b": np.int64(step)}
        numbers = {"action": 1, "reward": 1.0, "interval": 1, "terminal": False, "truncated": False}
        queue.observe({"observation": observation, "next_observation": observation, **numbers})
    batch = queue.sample()
    assert batch["observation"]["b"].tolist() == [[0], [1], [2]]
    tensors = sequence_tensors(batch, Reader(space, 1, Compute("cpu")), Compute("cpu").tensor, 1)
    assert tensors["observation"]["a"].shape == (3, 1, 1, 2) and tensors["observation"]["b"].shape == (3, 1, 1, 3)
    assert "extras" not in tensors and tensors["state"].shape == (1, 0)


def test_a_queue_holds_nothing_twice() -> None:
    queue = make()
    with pytest.raises(ValueError, match=r"^a batch takes 2 unrolls of its sources, and they hold 0"):
        queue.sample()
    with pytest.raises(ValueError, match=r"^a mixture gives whole unrolls"):
        queue.transitions(np.array([0]))
    with pytest.raises(ValueError, match=r"^a mixture has no priorities"):
        queue.set_priorities([0], [1.0])
