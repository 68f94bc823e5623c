"""Grids: axes, linked values, arms, exclusions, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import async_wrappers.configurables  # noqa: F401  # references in values are of what gin knows
from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.sweep.grid import Axis, make_points, parse_axis, plain, points_with

D, N = "RealtimeDelay.delay", "RealtimeDelay.noops"


def pairs(*arguments: Any) -> list[tuple[str | None, ...]]:
    return [(point.arm, point.bindings.get(D), point.bindings.get(N)) for point in make_points(*arguments)]


class TestAxis:
    @pytest.mark.parametrize(
        ("text", "choices"),
        [
            (f"{D} = 1, 8, 70", [("1",), ("8",), ("70",)]),
            (f"{D}=1", [("1",)]),
            ("A.b = 'x, y', 'z'", [("'x, y'",), ("'z'",)]),
            ("A.b = (8, 8), [1, 2], {'k': (1, 2)}", [("(8, 8)",), ("[1, 2]",), ("{'k': (1, 2)}",)]),
            ("A.b = (8,)", [("(8,)",)]),
            ("A.b = @RealtimeDelay, None", [("@RealtimeDelay",), ("None",)]),
            ("A.b = 0.5, 1e-4, -1.5", [("0.5",), ("1e-4",), ("-1.5",)]),
            (f"{N} = 0, {D}", [("0",), (D,)]),
            ("scope/A.b = True,", [("True",)]),
            (r"A.b = 'it\'s, \"so\"', 2", [(r"'it\'s, \"so\"'",), ("2",)]),
            ("A.b = 1,\n  2,\n  (3,\n  4)", [("1",), ("2",), ("(3,\n  4)",)]),
        ],
    )
    def test_values_are_split_at_the_commas_outside_of_brackets_and_quotes(self, text: str, choices: Any) -> None:
        assert list(parse_axis(text).choices) == choices

    def test_linked_keys_take_tuples(self) -> None:
        axis = parse_axis(f"{D}, {N} = (1, 0), (8, 3)")
        assert axis == Axis((D, N), (("1", "0"), ("8", "3")))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "an axis reads"),
            (D, "an axis reads"),
            ("delay = 1", "an axis reads"),
            (f"{D} =", f"{D} has no values"),
            (f"{D} = 1, , 2", "nothing is not a gin value"),
            (f"{D} = eight", "eight is not a gin value"),
            (f"{D} = (1, 2", "(1, 2 is not"),
            (f"{D} = 'a, b", "is not"),
            (f"{D} = 1 2", "1 2 is not a gin value"),
            (f"{D} = @Nothing", "@Nothing is not a gin value"),
            (f"{D}, {N} = 1, 2", "2 linked keys take values as (1, 0), (8, 3), got 1"),
            (f"{D}, {N} = (1, 2, 3)", "got (1, 2, 3)"),
        ],
    )
    def test_what_is_no_axis_is_refused_with_its_text(self, text: str, said: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)) as error:
            parse_axis(text)
        assert repr(text) in str(error.value)

    @given(
        st.lists(
            st.one_of(
                st.integers(),
                st.text(max_size=5),
                st.text("'\"\\,()[]\n", max_size=8),
                st.tuples(st.integers(), st.text(max_size=3)),
            )
        )
    )
    def test_the_values_written_are_the_values_read(self, values: list[Any]) -> None:
        if not values:
            return
        read = parse_axis("A.b = " + ", ".join(map(repr, values))).choices
        assert [text for (text,) in read] == list(map(repr, values))


class TestPoints:
    def test_axes_are_combined_in_all_ways(self) -> None:
        assert pairs([f"{D} = 1, 8", f"{N} = 0, 3"]) == [("", "1", "0"), ("", "1", "3"), ("", "8", "0"), ("", "8", "3")]

    def test_a_value_may_be_that_of_another_key(self) -> None:
        assert pairs([f"{D} = 1, 8", f"{N} = 0, {D}"])[2:] == [("", "8", "0"), ("", "8", "8")]

    def test_and_that_keys_value_may_be_a_third_ones(self) -> None:
        (_, point) = make_points([f"{D} = 8", f"{N} = 0, {D}", f"A.b = {N}", "A.c = A.b"])
        assert point.bindings == {D: "8", N: "8", "A.b": "8", "A.c": "8"}

    def test_points_that_come_out_alike_are_one(self) -> None:
        assert pairs([f"{D} = 0, 8, 8", f"{N} = 0, {D}"]) == [("", "0", "0"), ("", "8", "0"), ("", "8", "8")]

    def test_arms_add_their_bindings_and_win_over_axes(self) -> None:
        arms = {"asynchronous": [f"{N} = 0"], "sequential": [f"{N} = {D}"], "random": [f"{D}, {N} = (0, 0)"]}
        assert pairs([f"{D} = 1, 8"], arms) == [
            ("asynchronous", "1", "0"),
            ("sequential", "1", "1"),
            ("random", "0", "0"),
            ("asynchronous", "8", "0"),
            ("sequential", "8", "8"),
        ]

    def test_an_arm_may_have_axes_of_its_own(self) -> None:
        arms = {"few": [f"{D} = 1"], "linked": [f"{D}, {N} = (0, 1), (8, 3)"]}
        assert pairs([f"{D} = 1, 8"], arms) == [("few", "1", None), ("linked", "0", "1"), ("linked", "8", "3")]

    def test_arms_alone_are_a_grid(self) -> None:
        assert pairs([], {"a": [f"{D} = 1"], "b": [f"{D} = 2"]}) == [("a", "1", None), ("b", "2", None)]

    def test_what_has_a_value_of_each_axis_of_a_group_is_left_out(self) -> None:
        grid, groups = [f"{D} = 1, 8, 70", f"{N} = 0, {D}"], [[f"{D} = 8, 70", f"{N} = {D}"]]
        assert pairs(grid, None, groups) == [("", "1", "0"), ("", "1", "1"), ("", "8", "0"), ("", "70", "0")]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (([],), "grid: it is empty"),
            (([], {"a": []}), "grid: it is empty"),
            (([f"{D} = 1"], None, [[f"{D} = 1"]]), "Sweep.exclude leaves every point out"),
            (([f"{D} = 1", f"{D} = 2"],), f"{D} is an axis twice"),
            (([f"{N} = {D}"],), f"{N} = {D}, which has no value of its own"),
            (([f"{D} = {N}", f"{N} = {D}"],), "which has no value of its own"),
            (([f"{D} = 1"], None, [[f"{N} = 1"]]), f"Sweep.exclude: {N} is no"),
        ],
    )
    def test_what_makes_no_grid_is_refused(self, arguments: Any, said: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            make_points(*arguments)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("1e-4", 1e-4),
        ("'x'", "x"),
        ("True", True),
        ("None", None),
        ("(8, 8)", "(8, 8)"),
        ("@f", "@f"),
        (8, 8),
        ([1], [1]),
    ],
)
def test_a_columns_entry_is_a_number_or_word_where_there_is_one(text: Any, value: Any) -> None:
    assert plain(text) == value


class TestSomePoints:
    points = make_points([f"{D} = 0, 8", f"{N} = 0, {D}"], exclude=[[f"{D} = 8", f"{N} = 0"]])

    @pytest.mark.parametrize(
        ("axes", "found"),
        [
            ([], [("0", "0"), ("8", "8")]),
            ([f"{D} = 8"], [("8", "8")]),
            ([f"{D} = 8, 0", f"{N} = 0"], [("0", "0")]),
            ([f"{D}, {N} = (8, 8), (1, 1)"], [("8", "8")]),
            ([f"{N} = {D}"], [("0", "0"), ("8", "8")]),
        ],
    )
    def test_are_those_with_a_listed_value_of_every_axis(self, axes: list[str], found: list[tuple[str, str]]) -> None:
        assert [(each.bindings[D], each.bindings[N]) for each in points_with(self.points, axes)] == found

    def test_may_be_those_of_some_arms(self) -> None:
        points = make_points([f"{D} = 0, 8"], {"one": [f"{N} = 0"], "two": [f"{N} = 1"], "three": [f"{N} = 2"]})
        found = points_with(points, ["one", f"{D} = 8", "three"])
        assert [(each.arm, each.bindings[D]) for each in found] == [("one", "8"), ("three", "8")]
        with pytest.raises(ConfigError, match=r"^only 'thre': .* an arm \(one, two, three\); did you mean 'three'\?$"):
            points_with(points, ["thre"])

    def test_name_the_arm_that_excludes_a_value(self) -> None:
        points = make_points([f"{D} = 0, 8"], {"late": [f"{N} = 0"], "random": [f"{D}, {N} = (0, 0)"]})
        said = "^only 'RealtimeDelay.delay = 8': no point of 'random' has such a value, but those of 'late' have"
        with pytest.raises(ConfigError, match=said):
            points_with(points, [f"{D} = 8", "random"])

    @pytest.mark.parametrize(
        ("axes", "reason"),
        [
            ([f"{D} = 5"], "no point of this grid has such a value, they have 0; 8"),
            (["A.b = 5"], "only 'A.b = 5': no point of this grid binds A.b, they bind "),
            ([f"{D} = 8", f"{N} = 0"], "no point of this grid has values of all of them"),
            (["8"], "only '8': it reads 'RealtimeDelay.delay = 1, 8'$"),
        ],
    )
    def test_are_refused_where_there_are_none(self, axes: list[str], reason: str) -> None:
        with pytest.raises(ConfigError, match=reason):
            points_with(self.points, axes)
