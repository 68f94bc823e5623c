"""Which reasons of lost connections are warned of: the first of each kind, and a bounded number of kinds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers.live.remote.remote_transport import MOST_KINDS, Reasons


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("was silent for 3.2 s", "was silent for 14 s"),
        ("sent a record of the kind 'a'", "sent a record of the kind 'bc'"),
        ("answered for incarnation 3fa901", "answered for incarnation 00c4ff"),
    ],
)
def test_reasons_of_one_kind_are_told_once(one: str, other: str) -> None:
    reasons = Reasons()
    assert reasons.is_new(one) and not reasons.is_new(other) and not reasons.is_new(one)


def test_other_words_are_another_kind() -> None:
    reasons = Reasons()
    assert all(map(reasons.is_new, ("closed the connection", "was silent for 3 s", "failed", "decade faded")))


@given(st.lists(st.text(max_size=300), max_size=60))
def test_no_more_kinds_are_told_or_kept_than_a_person_reads(told: list[str]) -> None:
    reasons = Reasons()
    words = [f"{each} and words {'x' * number}" for number, each in enumerate(told)]
    assert sum(map(reasons.is_new, words)) <= MOST_KINDS
    assert len(reasons._told) <= MOST_KINDS and all(len(each) <= 200 for each in reasons._told)
    assert not any(map(reasons.is_new, words[:MOST_KINDS]))
