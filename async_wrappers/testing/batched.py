"""The rules of many environments at once, so that a runner can learn from every row and resume bit for bit.

Subclass `BatchedEnvsContract` and give it `make_batched`, and `make_environment` where a single environment exists.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers.batched.protocol import BatchedEnvs, Shown
from async_wrappers.wrappers.copies import batch


@dataclass
class Row:
    """The row of one environment at one time."""

    observation: Any
    reward: float
    first: bool
    terminal: bool
    truncated: bool
    final: Any  # None but at an end
    info: Any
    realtime: dict[str, Any]

    @property
    def over(self) -> bool:
        """Whether an episode has ended."""
        return self.terminal or self.truncated


class BatchedEnvsContract:
    """Tests of one kind of `BatchedEnvs`, which is made once for most of them.

    Attributes:
        calls: How many times rows are received and answered.
        own_seeds: Whether each row follows from its seed and its actions alone. False where a vector has one generator
            for all: then the rows together follow from all seeds and all actions.
    """

    calls: int = 30
    own_seeds: bool = True

    def make_batched(self) -> BatchedEnvs:
        """Make the environments."""
        raise NotImplementedError

    def make_environment(self) -> gym.Env[Any, Any] | None:
        """Make one of them as a single environment, with its delay; None where there is none to compare with."""
        return None

    def paid(self, envs: BatchedEnvs) -> float | None:
        """Return the sum of all environments' rewards since they were made; None if it is not known."""
        return None

    @pytest.fixture
    def envs(self, request: pytest.FixtureRequest) -> BatchedEnvs:
        """Make the environments for all tests of the class, after which they are closed."""
        contract = type(self)
        if "_made" not in vars(contract):
            contract._made = self.make_batched()  # type: ignore[attr-defined]
            its_class = request.node.getparent(pytest.Class)
            assert its_class is not None
            its_class.addfinalizer(contract._close)
        made: BatchedEnvs = contract._made  # type: ignore[attr-defined]
        return made

    @pytest.fixture
    def played(self, envs: BatchedEnvs) -> tuple[list[list[Row]], list[Row]]:
        """Return what `play` returns of the seeds and actions of most tests, which is played once for them."""
        contract = type(self)
        if "_played" not in vars(contract):
            contract._played = self.play(envs, self.seeds(envs), self.actions(envs))  # type: ignore[attr-defined]
        made: tuple[list[list[Row]], list[Row]] = contract._played  # type: ignore[attr-defined]
        return made

    @classmethod
    def _close(cls) -> None:
        made: BatchedEnvs = cls._made  # type: ignore[attr-defined]
        del cls._made  # type: ignore[attr-defined]
        made.close()

    def seeds(self, envs: BatchedEnvs, base: int = 0) -> list[int]:
        """Return a seed for each environment."""
        return [1000 * base + 7 * i + 1 for i in range(envs.num_envs)]

    def actions(self, envs: BatchedEnvs) -> list[list[Any]]:
        """Return for each environment the actions that it is sent."""
        drawn = []
        for i in range(envs.num_envs):
            envs.action_space.seed(i)
            drawn.append([copy.deepcopy(envs.action_space.sample()) for _ in range(self.calls)])
        return drawn

    def play(
        self, envs: BatchedEnvs, seeds: Sequence[int], actions: list[list[Any]], answer_last: bool = True
    ) -> tuple[list[list[Row]], list[Row]]:
        """Play from `begin` to `cut`, and return the rows of each environment and those of the cut."""
        rows: list[list[Row]] = [[] for _ in range(envs.num_envs)]
        envs.begin(seeds)
        for call in range(self.calls):
            shown = envs.recv()
            self.check(envs, shown)
            for row, i in zip(_rows(envs, shown), shown.env_ids.tolist(), strict=True):
                rows[i].append(row)
            if call < self.calls - 1 or answer_last:
                self.answer(envs, shown, rows, actions)
        cut = envs.cut()
        self.check(envs, cut)
        return rows, _rows(envs, cut)

    def answer(self, envs: BatchedEnvs, shown: Shown, rows: list[list[Row]], actions: list[list[Any]]) -> None:
        """Send each environment its next action."""
        chosen = [actions[i][len(rows[i]) - 1] for i in shown.env_ids.tolist()]
        envs.send(shown.env_ids, batch(envs.action_space, chosen))

    def check(self, envs: BatchedEnvs, shown: Shown) -> None:
        """Check the form of rows."""
        ids = shown.env_ids
        assert ids.dtype == np.int64
        assert len(ids) >= 1
        assert (np.diff(ids) > 0).all()
        assert ids[0] >= 0
        assert ids[-1] < envs.num_envs
        for name, kind in (("reward", "float32"), ("first", "bool"), ("terminal", "bool"), ("truncated", "bool")):
            assert (getattr(shown, name).dtype, getattr(shown, name).shape) == (np.dtype(kind), ids.shape), name
        over = set(ids[shown.terminal | shown.truncated].tolist())
        assert set(shown.final) == set(shown.info) == over
        for i in over:
            assert envs.observation_space.contains(shown.final[i])
            assert shown.info[i]["realtime"]["frame"] >= shown.info[i]["realtime"]["start"]
        for key in ("start", "frame", "interval", "applied", "unreported_episodes", "unreported_reward"):
            assert shown.realtime[key].shape == ids.shape, key
        assert all(envs.observation_space.contains(row.observation) for row in _rows(envs, shown))

    def test_it_is_of_the_protocol(self, envs: BatchedEnvs) -> None:
        assert isinstance(envs, BatchedEnvs)
        assert envs.num_envs >= 1

    def test_each_environment_is_shown_and_its_first_row_begins_an_episode(self, played: Any) -> None:
        for of_it in played[0]:
            first = of_it[0]
            assert first.first
            assert (first.reward, first.terminal, first.truncated) == (0.0, False, False)
            assert (first.realtime["applied"], first.realtime["interval"]) == (False, 0)

    def test_a_row_is_the_first_of_an_episode_where_one_has_ended(self, played: Any) -> None:
        ends = 0
        for of_it in played[0]:
            for row in of_it[1:]:
                assert row.first == row.over
                ends += row.over
        assert ends > 0, "no episode has ended: play more calls"

    def test_frames_are_counted_from_the_beginning_of_the_episode(self, played: Any) -> None:
        for of_it in played[0]:
            for before, row in pairwise(of_it):
                assert 0 <= row.realtime["start"] <= row.realtime["frame"]
                if not row.over:
                    assert row.realtime["start"] > before.realtime["start"]

    def test_the_same_seeds_and_actions_give_the_same_rows(self, envs: BatchedEnvs, played: Any) -> None:
        seeds, actions = self.seeds(envs), self.actions(envs)
        expected = played
        self.play(envs, self.seeds(envs, base=1), actions)
        _same(self.play(envs, seeds, actions), expected)
        other = self.make_batched()
        try:
            _same(self.play(other, seeds, actions), expected)
        finally:
            other.close()
            other.close()
        with pytest.raises(RuntimeError):
            other.recv()

    def test_a_row_follows_from_its_own_seed_and_actions(self, envs: BatchedEnvs, played: Any) -> None:
        if not self.own_seeds:
            pytest.skip("own_seeds = False")
        seeds, actions = self.seeds(envs), self.actions(envs)
        expected, _ = played
        others, other_actions = self.seeds(envs, base=1), [each[::-1] for each in actions]
        i = envs.num_envs - 1
        others[i], other_actions[i] = seeds[i], actions[i]
        rows, _ = self.play(envs, others, other_actions)
        both = min(len(rows[i]), len(expected[i]))  # which rows a call shows may depend on the others
        _same_rows(rows[i][:both], expected[i][:both])

    def test_rows_and_final_observations_are_those_of_single_environments(self, envs: BatchedEnvs, played: Any) -> None:
        single = self.make_environment()
        if single is None:
            pytest.skip("there is no make_environment")
        seeds, actions = self.seeds(envs), self.actions(envs)
        rows, cut = played
        try:
            for i, of_it in enumerate(rows):
                played = _played_alone(single, seeds[i], actions[i][: len(of_it)])
                for place, (row, alone) in enumerate(zip([*of_it, cut[i]], played, strict=True)):
                    _same_as_alone(row, alone, cut=place == len(of_it), where=f"environment {i}, row {place}")
        finally:
            single.close()

    @pytest.mark.parametrize("answer_last", [True, False])
    def test_what_is_shown_and_what_is_cut_add_up_to_what_was_paid(self, envs: BatchedEnvs, answer_last: bool) -> None:
        before = self.paid(envs)
        if before is None:
            pytest.skip("there is no paid")
        rows, cut = self.play(envs, self.seeds(envs), self.actions(envs), answer_last)
        after = self.paid(envs)
        assert after is not None
        shown = [row for of_it in [*rows, cut] for row in of_it]
        total = sum(row.reward + row.realtime["unreported_reward"] for row in shown)
        assert total == pytest.approx(after - before, rel=1e-6, abs=1e-6)

    def test_a_cut_ends_every_episode_and_shows_its_last_observation(self, envs: BatchedEnvs) -> None:
        _, cut = self.play(envs, self.seeds(envs), self.actions(envs))
        assert len(cut) == envs.num_envs
        for row in cut:
            assert row.over
            assert not row.first
            _same_values(row.observation, row.final)
        with pytest.raises(RuntimeError):
            envs.recv()

    def test_a_row_that_was_not_answered_is_cut_where_it_was_shown(self, envs: BatchedEnvs) -> None:
        envs.begin(self.seeds(envs))
        shown = envs.recv()
        row, i = _rows(envs, shown)[0], shown.env_ids[0]
        cut = _rows(envs, envs.cut())[i]
        assert (cut.truncated, cut.reward, cut.realtime["applied"], cut.realtime["interval"]) == (True, 0.0, False, 0)
        _same_values(cut.final, row.observation)

    def test_after_a_cut_all_begins_anew(self, envs: BatchedEnvs) -> None:
        seeds, actions = self.seeds(envs, base=2), self.actions(envs)
        expected = self.play(envs, seeds, actions)
        envs.begin(self.seeds(envs))
        envs.recv()
        envs.cut()
        _same(self.play(envs, seeds, actions), expected)

    def test_the_arrays_of_a_row_are_the_callers(self, envs: BatchedEnvs, played: Any) -> None:
        seeds, actions = self.seeds(envs), self.actions(envs)
        expected = played
        envs.begin(seeds)
        kept: list[tuple[Shown, Shown]] = []
        rows: list[list[Row]] = [[] for _ in range(envs.num_envs)]
        for _ in range(self.calls):
            shown = envs.recv()
            kept.append((shown, copy.deepcopy(shown)))
            for row, i in zip(_rows(envs, shown), shown.env_ids.tolist(), strict=True):
                rows[i].append(row)
            self.answer(envs, shown, rows, actions)
        envs.cut()
        for one, other in kept:
            _same_values(one._asdict(), other._asdict())
        for of_it, as_expected in zip(rows, expected[0], strict=True):
            _same_rows(of_it, as_expected)

    def test_calls_out_of_turn_are_refused(self, envs: BatchedEnvs) -> None:
        envs.begin(self.seeds(envs))
        envs.cut()
        with pytest.raises(RuntimeError):
            envs.recv()
        with pytest.raises(RuntimeError):
            envs.cut()
        envs.begin(self.seeds(envs))
        shown = envs.recv()
        with pytest.raises(RuntimeError):
            for _ in range(envs.num_envs + 1):  # rows of other environments may be shown before these are answered
                envs.recv()
        actions = batch(envs.action_space, [envs.action_space.sample() for _ in shown.env_ids])
        with pytest.raises(ValueError):
            envs.send(shown.env_ids[:-1], actions)
        with pytest.raises(ValueError):
            envs.send(shown.env_ids, batch(envs.action_space, [envs.action_space.sample()] * (len(shown.env_ids) + 1)))
        envs.send(shown.env_ids, actions)
        envs.cut()

    def test_seeds_that_do_not_fit_are_refused(self, envs: BatchedEnvs) -> None:
        for seeds in ([0] * (envs.num_envs + 1), [-1] * envs.num_envs, [0.5] * envs.num_envs):
            with pytest.raises(ValueError):
                envs.begin(seeds)  # type: ignore[arg-type]


def _rows(envs: BatchedEnvs, shown: Shown) -> list[Row]:
    """Return the shown rows one by one."""
    places = range(len(shown.env_ids))
    return [
        Row(
            _row(shown.observation, place),
            float(shown.reward[place]),
            bool(shown.first[place]),
            bool(shown.terminal[place]),
            bool(shown.truncated[place]),
            shown.final.get(i),
            shown.info.get(i),
            {key: value[place].item() for key, value in shown.realtime.items()},
        )
        for place, i in zip(places, shown.env_ids.tolist(), strict=True)
    ]


def _row(observations: Any, place: int) -> Any:
    if isinstance(observations, dict):
        return {key: _row(part, place) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row(part, place) for part in observations)
    return copy.deepcopy(observations[place])


def _played_alone(env: gym.Env[Any, Any], seed: int, actions: list[Any]) -> list[Row]:
    """Return the rows that an environment gives which is played alone, reset at each end."""
    observation, info = env.reset(seed=seed)
    rows = [Row(copy.deepcopy(observation), 0.0, True, False, False, None, None, _times(info, None))]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        final, times = copy.deepcopy(observation), _times(info, info)
        if terminated or truncated:
            last = info
            observation, info = env.reset()
            times = _times(info, last)
        over = bool(terminated or truncated)
        ends = (over, bool(terminated), bool(truncated))
        rows.append(
            Row(copy.deepcopy(observation), float(np.float32(reward)), *ends, final if over else None, None, times)
        )
    return rows


def _times(info: dict[str, Any], of_the_action: dict[str, Any] | None) -> dict[str, Any]:
    """Return a delayed environment's times of the shown observation, and of the action before it."""
    if "realtime" not in info:
        return {}
    times = {"start": info["realtime"]["start"]}
    if of_the_action is not None:
        times |= {key: of_the_action["realtime"][key] for key in ("interval", "applied")}
    return times


def _same_as_alone(row: Row, alone: Row, cut: bool, where: str) -> None:
    """Compare a row; one that is cut shows its last observation, and no beginning."""
    assert row.reward == alone.reward, where
    if cut:
        assert row.terminal == alone.terminal, where
        _same_values(row.final, alone.final if alone.over else alone.observation, where)
        return
    assert (row.first, row.terminal, row.truncated) == (alone.first, alone.terminal, alone.truncated), where
    _same_values(row.observation, alone.observation, where)
    _same_values(row.final, alone.final, where)
    assert {key: row.realtime[key] for key in alone.realtime} == alone.realtime, where


def _same(one: tuple[list[list[Row]], list[Row]], other: tuple[list[list[Row]], list[Row]]) -> None:
    for left, right in zip([*one[0], one[1]], [*other[0], other[1]], strict=True):
        _same_rows(left, right)


def _same_rows(one: list[Row], other: list[Row]) -> None:
    assert len(one) == len(other)
    for place, (left, right) in enumerate(zip(one, other, strict=True)):
        for name in ("observation", "reward", "first", "terminal", "truncated", "final", "realtime"):
            _same_values(getattr(left, name), getattr(right, name), f"{name} of row {place}")


def _same_values(left: Any, right: Any, where: str = "") -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            _same_values(left[key], right[key], f"{where}[{key!r}]")
    elif isinstance(left, tuple):
        assert len(left) == len(right), where
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            _same_values(one, other, f"{where}[{number}]")
    else:
        np.testing.assert_array_equal(left, right, err_msg=where)
