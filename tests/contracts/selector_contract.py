"""What every selector of a replay keeps: subclass `SelectorContract` and give it `make_selector`.

    class TestMySelector(SelectorContract):
        def make_selector(self):
            return MySelector()

A ring holds more transitions than it has slots for, so that some become invalid; the ring itself says which are valid.
A selector also runs `replay_contract.ReplayContract` as part of a whole replay, where its draws must be of all valid
transitions.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.replay.n_step import NStep
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.ring import Ring
from async_wrappers.agents.replay.selectors import Selector
from async_wrappers.agents.spaces.schema import TransitionSchema
from tests.contracts.replay_contract import SPACE, Transition, block_of, some_stream
from tests.worlds.plain_data import assert_identical

CAPACITY = 20  # slots, far fewer than the stream fills


class SelectorContract:
    """Tests of one selector, in a ring that forgets."""

    def make_selector(self) -> Selector:
        """Make the selector, attached to nothing yet."""
        raise NotImplementedError

    def make_replay(self, seed: int = 0) -> Replay:
        """Make an empty replay of stacks of two, three-step returns and `CAPACITY` slots that draws by the selector."""
        ring = Ring(TransitionSchema(SPACE, None), NStep(stack_size=2, update_horizon=3), CAPACITY)
        return Replay(ring, self.make_selector(), seed=seed)

    def learn(self, replay: Replay) -> dict[str, Any]:
        """Draw a batch and, where it has weights, give its transitions priorities, as a learner does."""
        batch = replay.sample(8)
        if "weight" in batch:
            replay.set_priorities(batch["index"], batch["action"] % 5 + 0.25)
        return batch

    def played(self, stream: list[Transition], seed: int = 0) -> Replay:
        """Return a replay that has observed a stream, and was learnt from in between."""
        replay = self.make_replay(seed)
        for transition in stream:
            replay.observe(transition)
            if len(replay):
                self.learn(replay)
        return replay

    def test_what_is_drawn_is_valid_whatever_has_come_and_gone(self) -> None:
        replay = self.make_replay()
        for transition in some_stream():
            replay.observe(transition)
            if len(replay):
                drawn = self.learn(replay)["index"]
                assert drawn.shape == (8,)
                assert set(drawn.tolist()) <= set(replay.valid_slots().tolist())

    def test_a_single_transition_is_drawn(self) -> None:
        replay = self.played(some_stream(episodes=1, length=1))
        assert replay.sample(5)["index"].tolist() == [0] * 5

    def test_draws_follow_from_the_generator(self) -> None:
        stream = some_stream()
        one, alike, other = (self.played(stream, seed).sample(64) for seed in (1, 1, 2))
        assert_identical(one, alike)
        assert one["index"].tolist() != other["index"].tolist()

    def test_what_comes_with_a_batch_is_an_entry_for_each_transition(self) -> None:
        replay = self.played(some_stream())
        assert {len(array) for name, array in replay.sample(6).items()} == {6}
        plain = {"observation", "action", "reward", "discount", "next_observation", "interval", "index"}
        added = {name: array for name, array in replay.sample(6).items() if name not in plain}
        for name, array in added.items():
            assert isinstance(array, np.ndarray) and array.dtype != object, name

    def test_priorities_are_taken_where_batches_have_weights_and_refused_elsewhere(self) -> None:
        replay = self.played(some_stream())
        batch = replay.sample(8)
        if "weight" in batch:
            assert batch["weight"].dtype == np.float32
            assert (batch["weight"] > 0).all() and (batch["weight"] <= 1).all()
            for wrong in (np.nan, -1.0):
                with pytest.raises(ValueError, match="priority must"):
                    replay.set_priorities(batch["index"], np.full(8, wrong))
        else:
            with pytest.raises(ValueError, match="priorities"):
                replay.set_priorities(batch["index"], np.ones(8))

    def test_a_restored_selector_goes_on_bit_for_bit(self) -> None:
        stream = some_stream()
        replay, restored = self.played(stream), self.make_replay(seed=7)
        restored.load_state_dict(replay.state_dict())
        for transition in some_stream(episodes=3):
            for each in (replay, restored):
                each.observe(transition)
            assert_identical(self.learn(replay), self.learn(restored))

    def test_blocks_of_rows_are_drawn_from_like_single_transitions(self) -> None:
        one, other = self.make_replay(), self.make_replay()
        for transition in some_stream():
            one.observe(transition)
            other.extend(block_of({0: transition}))
            if len(one):
                assert_identical(self.learn(one), self.learn(other))

    def test_what_it_remembers_is_plain_and_survives_json(self) -> None:
        replay = self.played(some_stream())
        state = replay.state_dict()
        assert json.loads(json.dumps(state["facts"])) == state["facts"]
        plain = {name: value for name, value in state.items() if name not in ("slots", "snapshot")}
        assert json.loads(json.dumps(plain)) == plain

    def test_its_facts_are_the_same_however_much_it_has_seen(self) -> None:
        assert self.played(some_stream()).facts() == self.make_replay().facts()

    def test_a_cleared_selector_is_like_a_new_one(self) -> None:
        replay, new = self.played(some_stream()), self.make_replay()
        replay.clear()
        draws = []
        for each in (replay, new):
            each.load_state_dict({**each.state_dict(), "generator": new.state_dict()["generator"]})
            for transition in some_stream(episodes=2):
                each.observe(transition)
            draws.append([self.learn(each)["reward"] for _ in range(5)])
        assert_identical(*draws)

    def test_its_bytes_are_those_of_the_full_ring_from_the_beginning(self) -> None:
        assert self.make_replay().nbytes == self.played(some_stream()).nbytes
