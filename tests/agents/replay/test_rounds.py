"""Sequences that end with a round: each environment's rows in their order, and one sequence of each in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.replay.sequences import Assembly

SPACE = Box(-np.inf, np.inf, (1,), np.float32)


class Lives:
    """N environments in step, whose observations are numbers that never come again."""

    def __init__(self, num_envs: int, seed: int, decisions: int, stack_size: int = 1) -> None:
        self.rng, self.num_envs = np.random.default_rng(seed), num_envs
        self.emitted: list[dict[str, Any]] = []
        self.assembly = self.make(decisions, stack_size)
        self.made = lambda: self.make(decisions, stack_size)
        self.shown = 0.0
        self.now = [self.next() for _ in range(num_envs)]
        self.rows: list[list[tuple[float, float]]] = [[] for _ in range(num_envs)]  # observation and mask

    def make(self, decisions: int, stack_size: int) -> Assembly:
        length = 2 * -(-decisions // self.num_envs) + 2
        return Assembly(SPACE, None, self.emit, num_envs=self.num_envs, length=length, period=length,
                        stack_size=stack_size, gamma=0.5, with_returns=True, decisions=decisions)  # fmt: skip

    def emit(self, columns: Any) -> None:
        count = len(columns["mask"])
        self.emitted += [{name: column[row].copy() for name, column in columns.items()} for row in range(count)]

    def next(self) -> float:
        self.shown += 1.0
        return self.shown

    def step(self) -> None:
        ended = self.rng.random(self.num_envs) < 0.3
        terminal = ended & (self.rng.random(self.num_envs) < 0.5)
        finals = {int(env): np.array([self.next()], np.float32) for env in np.flatnonzero(ended)}
        block = {
            "env_ids": np.arange(self.num_envs),
            "observation": np.array(self.now, np.float32)[:, None],
            "action": np.zeros(self.num_envs, np.int64),
            "reward": np.array(self.now, np.float32),
            "interval": np.ones(self.num_envs, np.int64),
            "terminal": terminal,
            "truncated": ended & ~terminal,
            "final": finals,
        }
        for env in range(self.num_envs):
            self.rows[env].append((self.now[env], 1.0))
            if env in finals:
                self.rows[env].append((float(finals[env][0]), 0.0))
            self.now[env] = self.next()
        self.assembly.extend(block)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(0, 2**31), st.integers(2, 13), st.integers(1, 3), st.integers(0, 25))
def test_sequences_are_all_rows_in_their_order_and_a_round_has_one_of_each(
    num_envs: int, seed: int, decisions: int, stack_size: int, saved_at: int
) -> None:
    lives = Lives(num_envs, seed, decisions, stack_size)
    for number in range(30):
        lives.step()
        if number == saved_at:  # what is under way can be saved and loaded
            snapshot = {name: array.copy() for name, array in lives.assembly.snapshot().items()}
            lives.assembly = lives.made()
            lives.assembly.restore(snapshot, 0)
    per_round = -(-decisions // num_envs)
    last = stack_size - 1
    for env in range(num_envs):
        expected = iter(lives.rows[env])
        mine = [each for each in lives.emitted if each["observation"][last, 0] in dict(lives.rows[env])]
        for sequence in mine:
            assert sequence["mask"].sum() == per_round
            rows = int(np.flatnonzero(sequence["mask"])[-1]) + 1
            for row in range(rows):
                assert (sequence["observation"][row + last, 0], sequence["mask"][row]) == next(expected)
            # The row after the last step holds what the next sequence begins with; then come zeros alone.
            following = sequence["observation"][rows + last, 0]
            assert following and not sequence["observation"][rows + stack_size :].any()
            for name in ("mask", "discount", "reward", "return"):
                assert not sequence[name][rows:].any()
        # Where an episode ends with a round, its final observation is known at once.
        assert 29 // per_round <= len(mine) <= 30 // per_round


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 4), st.integers(0, 2**31), st.integers(2, 9))
def test_the_order_of_the_environments_in_a_block_changes_nothing(num_envs: int, seed: int, decisions: int) -> None:
    ascending, descending = (Lives(num_envs, seed, decisions) for _ in range(2))
    extend = descending.assembly.extend

    def from_the_last(block: dict[str, Any]) -> None:
        extend({name: each if name == "final" else each[::-1] for name, each in block.items()})

    descending.assembly.extend = from_the_last  # type: ignore[method-assign, assignment]
    for _ in range(20):
        ascending.step()
        descending.step()
    one, other = ascending.assembly.snapshot(), descending.assembly.snapshot()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert len(ascending.emitted) >= num_envs
    sequences = [sorted(each.emitted, key=lambda of: of["observation"][0, 0]) for each in (ascending, descending)]
    for these, those in zip(*sequences, strict=True):
        assert all(np.array_equal(these[name], those[name]) for name in these)


def test_stacks_reach_back_to_the_episodes_beginning_in_the_round_before() -> None:
    lives = Lives(1, 0, 3, stack_size=3)
    lives.rng = type("Never", (), {"random": lambda self, n: np.ones(n)})()  # no episode ends
    for _ in range(7):
        lives.step()
    first, second = lives.emitted
    assert first["observation"][:6, 0].tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    assert second["observation"][:6, 0].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    # 1, then 2 + 1/2, and on: the return of the running episode goes on across rounds.
    assert first["return"][:3].tolist() == pytest.approx([1.0, 2.5, 4.25])
    assert second["return"][0] == pytest.approx(4 + 4.25 / 2)
