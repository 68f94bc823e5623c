"""Rates in words."""

from __future__ import annotations

import pytest

from async_wrappers.agents.timing import rate_in_a_table, rate_in_short


@pytest.mark.parametrize(
    ("name", "value", "in_short", "in_a_table"),
    [
        ("LearnRate", 0.236, "learn 0.24/s", "updates per second 0.24"),  # PPO's update is a whole round
        ("LearnRate", 338.4, "learn 338/s", "updates per second 338"),
        ("LearnRate", 0.0, "learn 0/s", "updates per second 0"),
        ("ActRate", 12_345.6, "act 12,346/s", "actions per second 12,346"),
        ("ReplayFill", 0.5, "replay 50%", "share of the replay that is filled 0.500"),
    ],
)
def test_rates_per_second_have_the_digits_that_tell_them(
    name: str, value: float, in_short: str, in_a_table: str
) -> None:
    assert rate_in_short(name, value) == in_short
    assert " ".join(rate_in_a_table(name, value).split()) == in_a_table
