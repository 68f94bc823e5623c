"""What an actor passes on, and when: beside a list of transitions that is searched through whole after every round."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.agents.acting.decisions import PolicyOutput
from async_wrappers.agents.play.actor import Actor
from async_wrappers.agents.spec import Spec

SPACES = Box(-np.inf, np.inf, (2,), np.float32), Discrete(100)


class Counting(Spec):
    """Its policy numbers its decisions, in the action and in an extra."""

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:
        raise AssertionError("the tests have a policy of rows")


class Numbering:
    def __init__(self) -> None:
        self.decisions = 0

    def act(self, inputs: Any, state: Any, decisions: Any) -> PolicyOutput:
        numbers = self.decisions + np.arange(len(decisions))
        self.decisions += len(decisions)
        return PolicyOutput(numbers, (), {"number": numbers / 2})


class Kept:
    """Keeps what it was given as it was then, and what it is made of for a second look at the end."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.blocks: list[Mapping[str, Any]] = []

    def extend(self, block: Mapping[str, Any]) -> None:
        self.blocks.append(block)
        self.rows += self.told(block)

    @staticmethod
    def told(block: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        found = []
        for row, env_id in enumerate(block["env_ids"].tolist()):
            ended = bool(block["terminal"][row])
            final = block["final"][env_id].tolist() if ended else None
            action, number = int(block["action"][row]), float(block["extras"]["number"][row])
            found.append((env_id, block["observation"][row].tolist(), action, number, ended, final))
        return found

    def cut(self, observation: Any, env_id: int) -> None:
        raise AssertionError("no episode is cut")


@st.composite
def rounds(draw: Any) -> tuple[int, list[list[tuple[int, int, int, bool]]]]:
    """Draw rounds of rows: (environment, frames until the next start, frames beyond it, whether the episode ends)."""
    num_envs = draw(st.integers(1, 4))
    row = st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(0, 6).map(lambda number: number == 0))
    of_round = st.dictionaries(st.integers(0, num_envs - 1), row, min_size=1)
    given_rounds = draw(st.lists(of_round, min_size=1, max_size=12))
    return num_envs, [sorted((env_id, *each) for env_id, each in of_one.items()) for of_one in given_rounds]


@given(rounds=rounds(), stack_size=st.integers(1, 3))
def test_transitions_are_passed_on_in_order_once_a_decision_could_know_them(rounds: Any, stack_size: int) -> None:
    num_envs, drawn = rounds
    kept, policy = Kept(), Numbering()
    spec = Counting(*SPACES)
    spec.stack_size = stack_size
    actor = Actor(spec, num_envs, kept)
    begun, start, frame = [False] * num_envs, [0] * num_envs, [0] * num_envs
    decided: dict[int, tuple[Any, int]] = {}  # of each environment, the last decision's observation and action
    waiting: list[tuple[int, tuple[Any, ...]]] = []
    known, expected, shown_so_far = [0] * num_envs, list[tuple[Any, ...]](), 0

    for rows in drawn:
        env_ids, first, ended, applied = [], [], [], []
        for env_id, later, beyond, ends in rows:
            over = ends and begun[env_id]
            applied.append(begun[env_id])
            first.append(over or not begun[env_id])
            closed = max(frame[env_id], start[env_id] + later + beyond)
            start[env_id], frame[env_id] = (0, 0) if first[-1] else (start[env_id] + later, closed)
            env_ids.append(env_id)
            ended.append(over)
            if begun[env_id]:
                observation, action = decided[env_id]
                final = [-1.0, float(env_id)] if over else None
                # Of an episode that is over the frame is that of the next one's beginning, and nothing is in flight.
                row = env_id, observation, action, action / 2, over, final
                waiting.append((0 if over else closed, row))
            begun[env_id] = True
        observations = np.array([[shown_so_far + row, env_id] for row, env_id in enumerate(env_ids)], np.float32)
        shown_so_far += len(env_ids)
        shown = SimpleNamespace(
            env_ids=np.array(env_ids),
            observation=observations.copy(),
            reward=np.zeros(len(env_ids), np.float32),
            first=np.array(first),
            terminal=np.array(ended),
            truncated=np.zeros(len(env_ids), bool),
            final={i: np.array([-1, i], np.float32) for i, over in zip(env_ids, ended, strict=True) if over},
            info={i: {"realtime": {"frame": 9}} for i, over in zip(env_ids, ended, strict=True) if over},
            realtime={
                "start": np.array([start[i] for i in env_ids]),
                "frame": np.array([frame[i] for i in env_ids]),
                "interval": np.ones(len(env_ids), np.int64),
                "applied": np.array(applied),
                "unreported_episodes": np.zeros(len(env_ids), np.int64),
            },
        )
        actor.observe(shown)
        over_now = {env_id for env_id, over in zip(env_ids, ended, strict=True) if over}
        for env_id in env_ids:
            known[env_id] = start[env_id]
        still = []
        for closed, row in waiting:
            if row[0] in over_now or closed <= known[row[0]]:
                expected.append(row)
            else:
                still.append((closed, row))
        waiting = still
        assert kept.rows == expected
        actions = actor.rows.decide(shown, policy)
        for env_id, observation, action in zip(env_ids, observations.tolist(), actions.tolist(), strict=True):
            decided[env_id] = observation, action
    # What was passed on as views is still what it was, whatever was decided since.
    assert [row for block in kept.blocks for row in Kept.told(block)] == expected
