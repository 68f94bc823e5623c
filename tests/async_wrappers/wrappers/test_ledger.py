"""The ledger against the rules read literally: one frame of one environment at a time, everything kept for ever."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers import Chunk
from async_wrappers.wrappers.chunk import Chunks
from async_wrappers.wrappers.default_action import DefaultAction, make_default_action
from async_wrappers.wrappers.ledger import Ledger, LedgerRows
from async_wrappers.wrappers.lockstep import default_actions_of
from tests.worlds.recording_env import RecordingEnv

ACTIONS = Box(-np.inf, np.inf, (2,), np.float64)
LENGTH = 4


class Landing(NamedTuple):
    """A decision that lands: so many frames old, with this action; and what is sent in its place on each frame."""

    age: int
    action: int
    sent: int | None


class Told(DefaultAction):
    """A default action that tells what it was told."""

    def __init__(self) -> None:
        super().__init__(None)

    def __call__(self, observation: Any, last_action: Any, missed: int = 1) -> Any:
        return "default", observation, None if last_action is None else last_action.tolist(), missed


def of(action: int, entry: int = 0) -> np.ndarray:
    return np.array([action, entry], np.float64)


FRAMES = st.lists(
    st.one_of(st.none(), st.builds(Landing, st.integers(0, 3), st.integers(0, 9), st.none() | st.integers(10, 19))),
    min_size=1,
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(frames=FRAMES, chunked=st.booleans())
def test_each_frame_receives_what_the_rules_say_and_each_decision_gets_its_rewards(
    frames: list[Landing | None], chunked: bool
) -> None:
    ledger = Ledger(Told(), Chunks(Chunk(LENGTH), ACTIONS) if chunked else None)
    landed: list[tuple[int, int, Landing]] = []  # start, effect
    last_sent: Any = None
    missed, rewards = 0, list[float]()
    sent_instead: dict[int, Any] = {}
    for frame, lands in enumerate(frames):
        start = frame if lands is None else frame - lands.age
        if lands is not None and (start < 0 or (landed and start <= landed[-1][0])):
            lands = None  # starts strictly increase
        if lands is not None:
            got = plain(ledger.close(frame))
            if landed:
                assert got == expected(landed[-1], frame, rewards, sent_instead, chunked, first=len(landed) == 1)
            else:
                ledger.reward = got[0]  # it is the first decision's
            landed.append((start, frame, lands))
            chunk = np.stack([of(lands.action, entry) for entry in range(LENGTH)])
            received = ledger.land(start, frame, chunk if chunked else of(lands.action), frame)
        else:
            received = ledger.go_on(frame, frame)
        acts = landed and (frame - landed[-1][0] < LENGTH if chunked else landed[-1][1] == frame)
        if acts:
            missed = 0
            entry = frame - landed[-1][0] if chunked else 0
            assert received.tolist() == of(landed[-1][2].action, entry).tolist()
            last_sent = received.tolist()
            if (sent := landed[-1][2].sent) is not None:
                ledger.note_sent(frame, of(sent, entry))
                sent_instead[frame] = last_sent = of(sent, entry).tolist()
        else:
            missed += 1
            assert received == ("default", frame, last_sent, missed)
        assert ledger.missed == missed
        assert (None if ledger.last_action is None else ledger.last_action.tolist()) == last_sent
        rewards.append(float(frame + 1))
        ledger.reward += rewards[-1]
    end = len(frames)
    if landed:
        got = plain(ledger.close(end))
        assert got == expected(landed[-1], end, rewards, sent_instead, chunked, first=len(landed) == 1)
    else:
        assert ledger.close(end)[:2] == (sum(rewards), 0)


def plain(got: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a decision got, with lists for arrays, which can be compared."""
    return tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in got)


def expected(
    decision: tuple[int, int, Landing], end: int, rewards: list[float], sent: dict[int, Any], chunked: bool, first: bool
) -> tuple[Any, ...]:
    start, effect, landing = decision
    reward = sum(rewards[0 if first else effect : end])
    if not chunked:
        return reward, end - effect, False, sent.get(effect)
    executed = [effect <= start + entry < end for entry in range(LENGTH)]
    instead = None
    if any(frame in sent for frame in range(effect, end)):
        chosen = [of(landing.action, entry).tolist() for entry in range(LENGTH)]
        instead = [sent.get(start + i, chosen[i]) if executed[i] else chosen[i] for i in range(LENGTH)]
    return reward, end - effect, executed, instead


def test_what_is_forgotten_after_a_cut_is_the_decision_or_the_last_action_each_by_itself() -> None:
    ledger = Ledger(Told())
    ledger.land(0, 2, of(5), 2)
    ledger.reward += 3.0
    ledger.forget_decision()
    assert (ledger.effect, ledger.reward, ledger.sent) == (None, 0.0, None)
    assert ledger.go_on(3, 3) == ("default", 3, [5.0, 0.0], 1)
    ledger.forget_last_action()
    assert ledger.go_on(4, 4) == ("default", 4, None, 1)


def test_what_an_environment_writes_into_an_action_does_not_change_the_last_one() -> None:
    ledger, action = Ledger(Told()), of(5)
    received = ledger.land(0, 0, action, 0)
    received[:] = 0.0
    assert ledger.go_on(1, 1) == ("default", 1, [5.0, 0.0], 1)


@pytest.mark.parametrize("default_action", [3, "repeat", lambda observation, last: 2 if last is None else last])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_row_receives_what_a_ledger_of_its_own_says(default_action: Any, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    vector = SyncVectorEnv([lambda: RecordingEnv(100)] * n)
    rows = LedgerRows(
        vector, default_actions_of(default_action, vector, "{}", "default_action"), callable(default_action), None
    )
    ledgers = [Ledger(make_default_action(default_action, each)) for each in vector.envs]
    mask = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
    for frame in range(data.draw(st.integers(1, 12))):
        begun = data.draw(mask)
        rows.begin_episodes(np.flatnonzero(begun))
        for i in np.flatnonzero(begun).tolist():
            ledgers[i].begin()
        lands, observations = data.draw(st.booleans()), np.full((n, 1), frame)
        actions = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
        receiving = data.draw(mask) if lands else None
        sent = rows.actions(actions if lands else None, receiving, None, observations)
        for i, ledger in enumerate(ledgers):
            acts = receiving is not None and receiving[i]
            own = ledger.land(frame, frame, int(actions[i]), frame) if acts else ledger.go_on(frame, frame)
            assert sent[i] == own
    vector.close()


def test_a_ledger_without_default_actions_is_for_those_whose_frames_all_receive_a_decision() -> None:
    ledger = Ledger(None)
    assert ledger.land(0, 0, 3, None) == 3
    with pytest.raises(AssertionError):
        ledger.go_on(1, None)
