"""`EpisodeClock` against a table worked by hand, then against a plain count of frames on random runs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import RealtimeDelay
from async_wrappers.agents.play.turns.clock import EpisodeClock, Outcome
from async_wrappers.agents.play.turns.turn_based import frames_per_decision
from async_wrappers.latency import LogNormal
from async_wrappers.policy import Decision
from tests.worlds.drifting_env import DriftingEnv


def report(start: int, frame: int, interval: int = 1, applied: bool = True) -> dict[str, Any]:
    """The part of ``info["realtime"]`` after a step."""
    return {"start": start, "frame": frame, "interval": interval, "applied": applied, "delay": 0, "default_frames": 0}


class TestWithoutAReport:
    def test_each_decision_is_one_frame(self) -> None:
        turns = EpisodeClock()
        assert turns.begin(eval_mode=False) == Decision(episode=0, start=0, frame=0, eval_mode=False)
        assert turns.advance() == (Decision(0, 1, 1, False), Outcome(interval=1, closed=1, applied=True))
        assert turns.advance() == (Decision(0, 2, 2, False), Outcome(1, 2, True))
        assert turns.end() == Outcome(1, 3, True)
        assert turns.frames == 3

    def test_a_second_episode_begins_where_the_first_ended(self) -> None:
        turns = EpisodeClock()
        turns.begin(eval_mode=False)
        turns.advance()
        turns.end()
        assert turns.begin(eval_mode=False) == Decision(episode=1, start=0, frame=2, eval_mode=False)
        assert turns.advance() == (Decision(1, 1, 3, False), Outcome(1, 3, True))


class TestWithAReport:
    def test_delay_two_and_one_noop(self) -> None:
        # s = 0 2 4, e = 2 4 6; the episode ends on frame 5.
        turns = EpisodeClock()
        assert turns.begin(False, {"start": 0, "frame": 0}) == Decision(0, 0, 0, False)
        assert turns.advance(report(start=2, frame=4, interval=2)) == (Decision(0, 2, 2, False), Outcome(2, 4, True))
        assert turns.end(report(start=4, frame=5, interval=1)) == Outcome(1, 5, True)
        assert turns.begin(False, {"start": 0, "frame": 0}) == Decision(1, 0, 5, False)
        assert turns.advance(report(start=2, frame=4, interval=2)) == (Decision(1, 2, 7, False), Outcome(2, 9, True))

    def test_an_episode_that_ends_before_the_first_effect_counts_its_frames(self) -> None:
        turns = EpisodeClock()
        turns.begin(False, {"start": 0, "frame": 0})
        assert turns.end(report(start=3, frame=3, interval=0, applied=False)) == Outcome(0, 3, False)
        assert (turns.frames, turns.train_episodes) == (3, 1)

    def test_a_first_start_after_the_reset_is_taken_from_the_report(self) -> None:
        assert EpisodeClock().begin(False, {"start": 4, "frame": 0}) == Decision(0, 4, 4, False)


class TestEvaluation:
    @pytest.mark.parametrize("reported", [False, True])
    def test_evaluation_lives_through_no_training_frame(self, reported: bool) -> None:
        turns = EpisodeClock()
        turns.begin(eval_mode=False)
        turns.end()
        first = {"start": 0, "frame": 0} if reported else None
        assert turns.begin(True, first) == Decision(episode=0, start=0, frame=1, eval_mode=True)
        decision, _ = turns.advance(report(start=1, frame=1) if reported else None)
        assert decision == Decision(episode=0, start=1, frame=1, eval_mode=True)
        turns.end(report(start=2, frame=2) if reported else None)
        assert (turns.frames, turns.train_episodes, turns.eval_episodes) == (1, 1, 1)

    def test_the_two_modes_number_their_episodes_apart(self) -> None:
        turns, numbers = EpisodeClock(), []
        for eval_mode in (False, True, True, False, True, False):
            numbers.append(turns.begin(eval_mode).episode)
            turns.end()
        assert numbers == [0, 0, 1, 1, 2, 2]


Schedule = tuple[int, int]
EPISODES = st.lists(
    st.tuples(st.booleans(), st.integers(1, 30), st.none() | st.tuples(st.integers(0, 6), st.integers(0, 4))),
    max_size=6,
)


def model(episodes: list[tuple[bool, int, Schedule | None]]) -> list[Decision | Outcome]:
    """All decisions and outcomes, from s_j = j (noops + 1), e_j = s_j + delay and the lengths of the episodes."""
    told: list[Decision | Outcome] = []
    lived, numbers = 0, {False: 0, True: 0}
    for eval_mode, length, schedule in episodes:
        delay, noops = schedule or (0, 0)
        starts = [0, *(start for start in range(noops + 1, length, noops + 1) if start + delay < length)]
        for start in starts:
            told.append(Decision(numbers[eval_mode], start, lived if eval_mode else lived + start, eval_mode))
            effect, next_effect = start + delay, min(start + noops + 1 + delay, length)
            closed = lived if eval_mode else lived + next_effect
            told.append(Outcome(max(0, next_effect - effect), closed, effect < length))
        numbers[eval_mode] += 1
        lived += 0 if eval_mode else length
    return told


def play(turns: EpisodeClock, episodes: list[tuple[bool, int, Schedule | None]]) -> list[Decision | Outcome]:
    """The same as `model`, from `turns` told what `RealtimeDelay` reports (or nothing, where there is no schedule)."""
    told: list[Decision | Outcome] = []
    for eval_mode, length, schedule in episodes:
        delay, noops = schedule or (0, 0)
        told.append(turns.begin(eval_mode, None if schedule is None else {"start": 0, "frame": 0}))
        start = 0
        while True:
            effect, start = start + delay, start + noops + 1
            frame = min(start + delay, length)
            told_now = report(min(start, length), frame, max(0, frame - effect), effect < length)
            realtime = None if schedule is None else told_now
            if frame == length:
                told.append(turns.end(realtime))
                break
            decision, outcome = turns.advance(realtime)
            told += [outcome, decision]
    return told


class TestAgainstTheModel:
    @given(EPISODES)
    def test_decisions_and_outcomes_are_the_models(self, episodes: list[tuple[bool, int, Schedule | None]]) -> None:
        turns = EpisodeClock()
        assert play(turns, episodes) == model(episodes)
        assert turns.frames == sum(length for eval_mode, length, _ in episodes if not eval_mode)
        assert turns.train_episodes == sum(not eval_mode for eval_mode, _, _ in episodes)
        assert turns.eval_episodes == sum(eval_mode for eval_mode, _, _ in episodes)

    @given(EPISODES, st.integers(0, 6))
    def test_a_state_taken_between_two_episodes_goes_on_alike(
        self, episodes: list[tuple[bool, int, Schedule | None]], cut: int
    ) -> None:
        first, second = EpisodeClock(), EpisodeClock()
        told = play(first, episodes[:cut])
        second.load_state_dict(first.state_dict())
        assert told + play(second, episodes[cut:]) == model(episodes)

    def test_a_state_holds_plain_numbers_alone(self) -> None:
        turns = EpisodeClock()
        turns.begin(False)
        turns.end()
        assert turns.state_dict() == {"frames": 1, "train_episodes": 1, "eval_episodes": 0}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("constants", "expected"),
    [
        ({}, 1),
        ({"delay": 8}, 1),
        ({"noops": 8}, 9),
        ({"delay": 3, "noops": 3}, 4),
        ({"latency": LogNormal(mean=0.1, cv=0.2), "fps": 60}, None),
        ({"latency": 0.1, "fps": 60}, None),
    ],
)
def test_a_wrapped_environment_says_how_many_frames_a_decision_takes(
    constants: dict[str, Any], expected: int | None, wrapped: bool
) -> None:
    env: gym.Env[Any, Any] = RealtimeDelay(DriftingEnv(noop=True), **constants)
    assert frames_per_decision(gym.wrappers.TimeLimit(env, 10) if wrapped else env) == expected


def test_an_environment_that_says_nothing_is_turn_based() -> None:
    assert frames_per_decision(DriftingEnv()) == 1
    assert frames_per_decision(gym.wrappers.TimeLimit(DriftingEnv(), 10)) == 1
