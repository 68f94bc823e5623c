"""Mixtures of sources: shares that are held, rows that say where they come from, and every source bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.hyperparameters import whole
from async_wrappers.agents.replay.mixture import SOURCES, Mixture, Shares, UnrollQueue
from async_wrappers.agents.replay.prefetch import Prefetch
from async_wrappers.agents.replay.replay_settings import SOURCE_NAMES
from async_wrappers.agents.replay.segments import check_saved
from async_wrappers.agents.replay.selectors import Uniform
from async_wrappers.agents.replay.unrolls import SourceSpec, StandardReplay, UnrollReplay
from tests.contracts.source_contract import SourceContract, lived
from tests.worlds.lived_rows import EXTRAS, SPACE, AtOnce, World, trained
from tests.worlds.plain_data import assert_identical

STANDARD = partial(StandardReplay, capacity=8)
QUEUE = partial(UnrollQueue, capacity=100)  # one that may wait longer than a learner would let it


def make(sources: Any = None, **arguments: Any) -> Mixture:
    defaults = {"num_envs": 3, "unroll_length": 4, "batch_size": 4, "stack_size": 2}
    made = {QUEUE: 0.5, STANDARD: 0.5} if sources is None else sources
    pairs = list(made.items()) if isinstance(made, dict) else made
    return Mixture(SPACE, EXTRAS, pairs, **{**defaults, **arguments})


def steps_of(batch: dict[str, Any], source: int) -> list[float]:
    """The observations of the decisions of a source's rows, each a number of its own."""
    newest, rows = batch["observation"][1:-1, :, 0], np.flatnonzero(batch["source"] == source)
    return [each.item() for row in rows for each in newest[batch["mask"][:, row] > 0, row]]


class TestStandard(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make({STANDARD: 1.0}, **arguments)


class TestQueueAndStandard(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        distinct = partial(StandardReplay, capacity=8, with_replacement=False)
        return make({QUEUE: 0.3, STANDARD: 0.4, distinct: 0.3}, **arguments)


class TestPrefetch(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make(prefetch=True, **arguments)


def test_a_queue_gives_each_step_once_beside_a_replay() -> None:
    mixture, world = make(), World(3, 0)
    drawn = trained(mixture, world, 250)
    fresh = [step for batch in drawn for step in steps_of(batch, 0)]
    queue: Any = mixture.sources[0]
    every = {here for rows in world.rows for here, step, _ in rows if step is not None}
    assert len(set(fresh)) == len(fresh) and set(fresh) <= every
    assert queue.dropped == 0 and len(every) - len(fresh) <= 3 * 5 + 2 * 4
    again = [step for batch in drawn for step in steps_of(batch, 1)]
    assert set(again) <= every and len(set(again)) < len(again)


def test_a_queue_drops_its_oldest_unrolls_until_the_replays_are_filled() -> None:
    filling = partial(StandardReplay, capacity=40, training_fill_in_factor=0.5)
    mixture, world = make({"queue": 0.5, filling: 0.5}), World(3, 0)
    queue, replay = mixture.sources
    while not mixture.drawable:
        mixture.extend(world.block())
    assert isinstance(queue, UnrollQueue)
    assert 20 <= len(replay) <= 22 and queue.dropped == len(replay) - len(queue) > 0
    dropped = queue.dropped
    trained(mixture, world, 50)
    assert queue.dropped == dropped


def test_rows_say_which_source_they_come_from_and_whether_they_are_replayed() -> None:
    mixture, world = make({STANDARD: 0.5, QUEUE: 0.25, partial(StandardReplay, capacity=5): 0.25}), World(3, 0)
    lived(mixture, world, 40)
    batch = mixture.sample()
    assert batch["source"].tolist() == [0, 0, 1, 2] and batch["source"].dtype == np.int64
    assert batch["replayed"].tolist() == [1.0, 1.0, 0.0, 1.0] and batch["replayed"].dtype == np.float32
    assert batch["state"].shape == (4, 3) and batch["index"].shape == (4,)
    alone = make({QUEUE: 1.0})
    lived(alone, World(3, 0), 20)
    assert alone.sample()["replayed"].tolist() == [0.0] * 4


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(4, 12))
def test_every_share_is_held_over_time(weights: list[int], batch_size: int) -> None:
    shares = [weight / sum(weights) for weight in weights]
    held, given_rows = Shares(shares, batch_size), np.zeros(len(shares))
    for batches in range(1, 101):
        rows = np.array(held.rows)
        assert rows.sum() == batch_size and (rows >= 0).all() and (rows <= held.most).all()
        given_rows += rows
        held.give()
        ahead = given_rows - np.array(shares) * batch_size * batches
        assert ahead.max() < 1 and ahead.min() > -max(1, len(shares) - 1) - 1e-6
    period = sum(weights)  # batches after which every share of the rows is a whole number
    if 100 % period == 0:
        np.testing.assert_array_equal(given_rows, np.round(np.array(shares) * batch_size * 100))


def test_two_halves_of_an_odd_batch_take_turns() -> None:
    mixture = make(batch_size=5)
    lived(mixture, World(3, 0), 60)
    assert [mixture.sample()["source"].sum().item() for _ in range(4)] == [2, 3, 2, 3]


def test_shares_that_sum_to_1_but_for_rounding_are_taken() -> None:
    thirds = {QUEUE: 0.7, STANDARD: 0.2, partial(StandardReplay, capacity=9): 0.1}
    mixture = make(thirds, batch_size=10)
    lived(mixture, World(3, 0), 60)
    assert np.bincount(mixture.sample()["source"]).tolist() == [7, 2, 1]


def test_draws_without_replacement_give_no_unroll_twice() -> None:
    once = make({partial(StandardReplay, capacity=6, with_replacement=False): 1.0}, batch_size=6)
    lived(once, World(3, 0), 60)
    assert sorted(once.sample()["index"].tolist()) == once.sources[0].valid_slots().tolist()  # type: ignore[attr-defined]
    many = make({partial(StandardReplay, capacity=6): 1.0}, batch_size=6)
    lived(many, World(3, 0), 60)
    assert any(len(set(many.sample()["index"].tolist())) < 6 for _ in range(20))


def test_learning_begins_when_the_share_of_a_replay_is_filled() -> None:
    mixture, world = make({partial(StandardReplay, capacity=30, training_fill_in_factor=0.7): 1.0}), World(3, 0)
    while not mixture.drawable:
        assert len(mixture) < 21
        mixture.extend(world.block())
    assert len(mixture) >= 21


def test_a_packed_replay_gives_the_batches_of_one_that_is_not(tmp_path: Path) -> None:
    pytest.importorskip("lz4")
    space = Box(0, 9000, (2, 40), np.float32)

    def make(compression: Any) -> Mixture:
        source = partial(StandardReplay, capacity=6, replay_compression=compression)
        return Mixture(space, EXTRAS, [(source, 1.0)], num_envs=3, unroll_length=4, batch_size=3)

    def played(compression: Any) -> Any:
        mixture, world = make(compression), World(3, 0)
        for _ in range(60):
            block = world.block()
            wide = {env: np.repeat(final[:, None], 40, 1) for env, final in block["final"].items()}
            mixture.extend({**block, "observation": np.repeat(block["observation"][:, :, None], 40, 2), "final": wide})
        mixture.save(tmp_path / str(compression), 0)
        loaded = make(compression)
        loaded.load(tmp_path / str(compression), 0)
        return [mixture.sample(), mixture.sample()], [loaded.sample(), loaded.sample()], mixture.nbytes

    plain, packed = played(None), played("lz4")
    assert_identical(packed[:2], plain[:2])
    assert_identical(*plain[:2])
    assert packed[2] < plain[2]


# Drawing ahead.


def test_batches_drawn_in_a_thread_are_those_drawn_at_the_same_places_without_one() -> None:
    played = []
    for threaded in (True, False):
        mixture, world = make(prefetch=True), World(3, 0)
        ahead: Any = mixture.sources[1]
        assert isinstance(ahead, Prefetch) and isinstance(mixture.sources[0], UnrollQueue)
        if not threaded:
            ahead.ahead.executor = AtOnce()
        played.append((trained(mixture, world, 120), mixture.state_dict()))
    assert len(played[0][0]) > 20
    assert_identical(*played)


def test_rows_drawn_ahead_are_one_update_old_and_those_of_a_queue_are_not() -> None:
    def of_source(batch: dict[str, Any], source: int) -> list[int]:
        found: list[int] = batch["index"][batch["source"] == source].tolist()
        return found

    ahead, now = (trained(make(prefetch=prefetch), World(3, 0), 120) for prefetch in (True, False))
    assert [of_source(batch, 0) for batch in ahead] == [of_source(batch, 0) for batch in now]
    newest = [max(of_source(batch, 0)) for batch in now]
    for before, batch in zip(newest, ahead[1:], strict=False):
        assert max(of_source(batch, 1)) <= before + 3  # what was put when the batch before was drawn
    assert [of_source(batch, 1) for batch in ahead] != [of_source(batch, 1) for batch in now]


# What is refused.


def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path) -> None:
    mixture, world = make({partial(StandardReplay, capacity=30): 1.0}), World(3, 3)
    lived(mixture, world, 25)
    first = next(name for name in mixture.save(tmp_path, 0) if "source_0/segment" in name)
    (tmp_path / first).write_bytes(b"torn")
    for load in (make({partial(StandardReplay, capacity=30): 1.0}).load, check_saved):
        with pytest.raises(ValueError, match=f"{Path(first).name} in .* is torn or altered"):
            load(tmp_path, 0)


class Newest(UnrollReplay):
    """A source of a user's own."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec, _Latest(), capacity=5)


class _Latest(Uniform):
    def draw(self, rng: Any, batch_size: int, importance_exponent: float | None = None) -> Any:
        return self._storage.live_positions()[-batch_size:], {}


class TestSourceOfAUsersOwn(SourceContract):
    def make_source(self, **arguments: Any) -> Mixture:
        return make({QUEUE: 0.5, Newest: 0.5}, **arguments)


def test_a_source_of_a_users_own_declares_its_settings_as_agents_do() -> None:
    class Older(UnrollReplay):
        left_out: int = whole(1, "Newest unrolls that are left out.", 0, "unrolls")

    made: Any = make({partial(Older, capacity=9): 1.0}).sources[0]
    assert (made.left_out, made.capacity, made.training_fill_in_factor) == (1, 9, 0.2)
    with pytest.raises(ValueError, match=r"^Older\.left_out must be >= 0 unrolls, got -1$"):
        make({partial(Older, left_out=-1): 1.0})
    with pytest.raises(TypeError, match="'forth'"):
        make({partial(Older, forth=1): 1.0})
    with pytest.raises(TypeError, match="'left_out'"):
        make({partial(StandardReplay, left_out=1): 1.0})


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            {"queue": 0.5, "standard": 0.4},
            "sources must have shares that sum to 1, got 0.5, 0.4: give 0.5556, 0.4444 for the same proportions",
        ),
        ({"queue": 1.5}, "sources must have shares in (0, 1], got 1.5 for 'queue'"),
        ({"queue": 1.0, "standard": 0}, "sources must have shares in (0, 1], got 0 for 'standard'"),
        (
            {"ring": 1.0},
            "sources must be 'queue', 'standard', 'elite', or what makes one, such as @StandardReplay, got 'ring'",
        ),
        (
            ["queue"],
            "sources must be pairs of a source ('queue', 'standard', 'elite', or what makes one) and its share, such "
            "as [('queue', 0.5), ('standard', 0.5)], got ['queue']",
        ),
        (
            {partial(StandardReplay, capacity=3): 1.0},
            "StandardReplay.capacity must be >= 4 unrolls, those that a batch takes of it, got 3",
        ),
        (
            {partial(StandardReplay, training_fill_in_factor=2.0): 1.0},
            "StandardReplay.training_fill_in_factor must lie in [0, 1], got 2.0",
        ),
        (
            {partial(StandardReplay, replay_compression="zip"): 1.0},
            "StandardReplay.replay_compression must be 'lz4' or None, got 'zip'",
        ),
    ],
)
def test_sources_that_make_no_batch_are_refused_in_one_sentence(sources: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make(sources)
    assert str(caught.value).splitlines()[0] == message


def test_a_saved_mixture_of_other_sources_is_refused(tmp_path: Path) -> None:
    make().save(tmp_path, 0)
    with pytest.raises(ValueError, match=r"^shares must be as in the saved mixture, \[0.5, 0.5\], got \[0.25, 0.75\]"):
        make({QUEUE: 0.25, STANDARD: 0.75}).load(tmp_path, 0)
    with pytest.raises(ValueError, match=r"^sources must be as in the saved mixture"):
        make({QUEUE: 0.5, partial(StandardReplay, capacity=9): 0.5}).load(tmp_path, 0)


def test_the_settings_name_the_sources_that_there_are() -> None:
    assert tuple(SOURCES) == SOURCE_NAMES
