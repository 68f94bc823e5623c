"""A sweep as curves, panels and baselines, and the commands that show it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from async_wrappers.agents.experiment.evaluate import bootstrap_interval
from async_wrappers.agents.sweep.grid import Point
from async_wrappers.agents.sweep.plan import SweepPlan
from async_wrappers.agents.sweep.view import Score, View, make_view
from tests.worlds.command_line import call, place, refused
from tests.worlds.made_up_sweep import ALL_TRIALS, BOTH, D, N, a_score, made_up_sweep, view

__all__ = ["call", "place"]

GAME = "create_atari_environment.game_name"
AGENT = "create_agent.agent_name"
ARMS = {
    "DQN": [f"{AGENT} = 'dqn'"],
    "random": [f"{AGENT} = 'random'", f"{D}, {N} = (0, 0)"],
    "no-op": [f"{AGENT} = 'noop'", f"{D}, {N} = (0, 0)"],
}


def shape(found: View) -> list[tuple[str, dict[str, list[float]], list[str]]]:
    return [
        (panel.title, {name: [score.x for score in curve] for name, curve in panel.curves.items()},
         list(panel.levels))
        for panel in found.panels
    ]  # fmt: skip


class TestView:
    def test_a_delay_with_and_without_noops_is_an_asynchronous_and_a_sequential_curve(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path))
        assert (found.x, found.metric) == (D, "final_return")
        assert shape(found) == [
            ("", {"asynchronous": [1, 8, 70], "sequential": [1, 8, 70]}, ALL_TRIALS),
        ]
        score = found.panels[0].curves["sequential"][1]
        expected = [a_score({D: 8, N: 8}, seed)["final_return"] for seed in range(3)]
        low, high = bootstrap_interval(expected)
        assert score == Score(8, tuple(expected), pytest.approx(sum(expected) / 3), low, high, ("0003", "0009", "0015"))

    def test_no_delay_and_no_noops_are_on_both_curves(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path, [f"{D} = 0, 8", f"{N} = 0, {D}"]))
        assert shape(found)[0][1] == {"asynchronous": [0, 8], "sequential": [0, 8]}

    def test_other_noops_have_a_curve_of_their_own(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path, [f"{D}, {N} = (8, 0), (8, 3), (8, 8), (70, 0)"]))
        assert shape(found)[0][1] == {"asynchronous": [8, 70], "noops 3": [8], "sequential": [8]}

    def test_arms_are_curves_and_random_and_noop_are_levels(self, tmp_path: Path) -> None:
        arms = {
            "asynchronous": [f"{N} = 0"],
            "sequential": [f"{N} = {D}"],
            "random": [f"{D} = 0", f"{AGENT} = 'random'"],
        }
        found = view(made_up_sweep(tmp_path, [f"{GAME} = 'Boxing', 'Krull'", f"{D} = 1, 8"], arms))
        curves = {"asynchronous": [1, 8], "sequential": [1, 8]}
        assert shape(found) == [("Boxing", curves, ["random"]), ("Krull", curves, ["random"])]
        assert found.panels[0].levels["random"].value == pytest.approx(
            107
        )  # of the arm, not of the runs' closing tables

    def test_arms_and_interactions_make_a_curve_together(self, tmp_path: Path) -> None:
        assert set(shape(view(made_up_sweep(tmp_path, BOTH, ARMS)))[0][1]) == {"DQN, asynchronous", "DQN, sequential"}

    def test_without_arms_the_first_other_axis_makes_curves_and_the_next_panels(self, tmp_path: Path) -> None:
        grid = [f"{D} = 1, 8", f"{AGENT} = 'dqn', 'c51'", f"{GAME} = 'Boxing', 'Krull'"]
        assert shape(view(made_up_sweep(tmp_path, grid))) == [
            (game, {"agent_name dqn": [1, 8], "agent_name c51": [1, 8]}, ALL_TRIALS) for game in ("Boxing", "Krull")
        ]

    def test_a_key_that_is_linked_to_the_delay_makes_no_curve(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path, [f"{D}, create_network.torso = (1, '55k'), (8, '10m')"]))
        assert [len(curve) for curve in found.panels[0].curves.values()] == [2]

    def test_another_key_may_lie_along_the_axis(self, tmp_path: Path) -> None:
        directory = made_up_sweep(tmp_path, [f"{D} = 1, 8", "DQNAgent.gamma = 0.9, 0.99, 0.999"])
        found = view(directory, x="DQNAgent.gamma", metric="frames", statistic="iqm")
        assert shape(found)[0][1] == {"delay 1": [0.9, 0.99, 0.999], "delay 8": [0.9, 0.99, 0.999]}
        assert found.panels[0].curves["delay 1"][0].scores == (10_000.0,) * 3  # of the last iteration
        assert found.x_label == "DQNAgent.gamma"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"metric": "score"}, "metric must be one of frames, train_average_return, final_return"),
            ({"statistic": "median"}, "statistic must be one of mean, iqm, got 'median'"),
            ({"x": "DQNAgent.gamma"}, f"x must be a key with numbers, one of {D}, {N}, got 'DQNAgent.gamma'"),
            ({"x": "metric"}, "x must be a key with numbers"),
        ],
    )
    def test_what_the_sweep_does_not_have_is_refused(self, tmp_path: Path, arguments: Any, said: str) -> None:
        with pytest.raises(ValueError, match=re.escape(said)):
            view(made_up_sweep(tmp_path), **arguments)

    def test_baselines_alone_are_no_curve(self, tmp_path: Path) -> None:
        directory = made_up_sweep(tmp_path, BOTH, {"random": [f"{AGENT} = 'random'"]})
        with pytest.raises(ValueError, match="no trial has it yet but those of random and no-op"):
            view(directory)

    def test_a_sweep_of_words_has_no_axis(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no axis of this sweep holds numbers"):
            view(made_up_sweep(tmp_path, [f"{GAME} = 'Boxing', 'Krull'"]))


class TestCommands:
    def test_plot_writes_figures_and_the_page(self, call: Any, place: Path) -> None:
        made_up_sweep(place / "s")
        done = call("plot", "s", "--statistic", "iqm")
        assert done.code == 0, done.err
        names = ("score", "learning_curves")
        files = [f"s/figures/{name}.{kind}" for name in names for kind in ("png", "svg")]
        said, *written = done.out.splitlines()
        assert said.startswith("no regret ladder")
        assert written == [*files, "s/report.html"]
        assert all((place / file).is_file() for file in written)

    def test_plot_draws_the_ladder_where_there_is_a_delay_of_zero(
        self, call: Any, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The pictures of a plot take seconds, and the test above has them drawn.
        monkeypatch.setattr(Figure, "savefig", lambda self, file, **how: None)
        made_up_sweep(place / "s", [f"{D} = 0, 8", f"{N} = 0, {D}"])
        done = call("plot", "s")
        assert {"s/figures/ladder.png", "s/figures/ladder.svg"} <= set(done.out.splitlines()), done.err
        assert "Regret ladder: what delay costs, what inaction costs" in (place / "s" / "report.html").read_text()
        assert done.out.count("8 frames late it scores ") == 2

        made_up_sweep(place / "two", [f"{D} = 0, 8", f"{N} = 0, {D}", f"{GAME} = 'Boxing', 'Krull'"])
        done = call("plot", "two")
        assert "two/figures/ladder.png" in done.out and "frames late" not in done.out, done.err

    def test_compare_prints_the_difference(self, call: Any, place: Path) -> None:
        for name in "ab":
            made_up_sweep(place / name)
        done = call("compare", "a", "b")
        assert done.code == 0
        assert done.out.splitlines()[:2] == ["A: a", "B: b"]
        assert len(done.out.splitlines()) == 9

    def test_the_first_of_several_is_compared_with_each_of_the_others(self, call: Any, place: Path) -> None:
        for name, seeds in (("a", 2), ("b", 3), ("c", 4)):
            made_up_sweep(place / name, seeds=seeds)
        done = call("compare", "a", "b", "c")
        assert done.code == 0, done.err
        assert done.out == call("compare", "a", "b").out + call("compare", "a", "c").out

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["plot"], "plot needs results: python train.py plot DIR"),
            (["plot", "nowhere"], "there is no directory nowhere: name a --base_dir"),
            (["plot", "s", "--metric", "mood"], "metric must be one of"),
            (["plot", "s", "--statistic", "median"], "statistic"),
            (["compare", "s"], "compare needs results: python train.py compare A B"),
            (["compare", "s", "nowhere"], "there is no directory nowhere: name a --base_dir"),
        ],
    )
    def test_what_they_cannot_use_is_refused_in_one_line(
        self, call: Any, place: Path, words: list[str], said: str
    ) -> None:
        made_up_sweep(place / "s")
        assert said in refused(call(*words))

    @pytest.mark.parametrize("contents", ["", "[", "{}", "[1]", '{"metrics": 3, "seconds": 1}', "\ud800"])
    def test_a_damaged_result_is_named(self, call: Any, place: Path, contents: str) -> None:
        path = made_up_sweep(place / "s") / "trials" / "0000" / "result.json"
        path.write_bytes(contents.encode(errors="surrogatepass"))
        for words in (["plot", "s"], ["compare", "s", "s"]):
            message = refused(call(*words))
            assert message.startswith("s/trials/0000/result.json is damaged (")
            assert message.endswith("remove it, and let the sweep run that trial again")

    @pytest.mark.parametrize("contents", ["", "[1]", '{"agent": 1}', '[{"agent": "trained"}]'])
    def test_a_damaged_closing_table_is_named(self, call: Any, place: Path, contents: str) -> None:
        (place / "r").mkdir()
        (place / "r" / "report.json").write_text(contents)
        assert refused(call("compare", "r", "r")).startswith("r/report.json is damaged (")

    @pytest.mark.parametrize("contents", ["", "[]", '{"points": 3}', '{"points": []}', '{"points": [{"arm": 1}]}'])
    def test_a_damaged_plan_is_named(self, call: Any, place: Path, contents: str) -> None:
        (made_up_sweep(place / "s") / "sweep.json").write_text(contents)
        for words in (["plot", "s"], ["compare", "s", "s"], ["sweep", "--base_dir", "s"]):
            assert refused(call(*words)).startswith("s/sweep.json is not the plan of a sweep (")

    def test_a_sweep_without_results_is_not_plotted(self, call: Any, place: Path) -> None:
        base_dir = made_up_sweep(place / "s")
        for path in base_dir.glob("trials/*/result.json"):
            path.unlink()
        message = refused(call("plot", "s"))
        assert message.startswith("s: no trial of this sweep has finished yet: let it run until one has; the command")


TOLD = "AppliedActions.told"


class TestKeysOfOnesOwn:
    def test_beside_arms_and_interactions_they_make_curves_too(self, tmp_path: Path) -> None:
        grid = [f"{GAME} = 'Boxing', 'Krull'", f"{D}, {N} = (0, 0), (4, 0), (4, 4)", f"{TOLD} = False, True"]
        panels = shape(view(made_up_sweep(tmp_path, grid)))
        assert [title for title, _, _ in panels] == ["Boxing", "Krull"]
        names = {f"{way}, told {told}" for way in ("asynchronous", "sequential") for told in (False, True)}
        assert all(set(curves) == names for _, curves, _ in panels)

    def test_what_an_arm_says_is_not_said_again(self, tmp_path: Path) -> None:
        arms = {"told": [f"{TOLD} = True"], "late": [f"{TOLD} = False"]}
        found = view(made_up_sweep(tmp_path, [f"{D} = 0, 4", f"{TOLD} = False, True"], arms))
        assert shape(found)[0][:2] == ("", {"told": [0, 4], "late": [0, 4]})

    def test_a_key_named_arm_is_the_arm(self, tmp_path: Path) -> None:
        rows = [
            {"arm": arm, "delay": delay, "seed": 0, "iteration": None, "metric": "score", "value": 1.0, "trial": name}
            for name, arm, delay in (("0", "late", 4), ("1", "told", 4), ("2", "at once", 0))
        ]
        points = [Point("", {"arm": row["arm"], "delay": row["delay"]}) for row in rows]
        found = make_view(SweepPlan(points, ["arm", "delay"], 1, [], ""), rows)
        assert shape(found) == [("", {"late": [4], "told": [4], "at once": [0]}, [])]

    def test_more_curves_than_colours_become_panels_whose_titles_name_the_key(self, tmp_path: Path) -> None:
        found = view(
            made_up_sweep(tmp_path, [*BOTH, f"{TOLD} = False, True", "DQNAgent.gamma = .9, .95, .99"], seeds=1)
        )
        panels = shape(found)
        assert [title for title, _, _ in panels] == ["gamma 0.9", "gamma 0.95", "gamma 0.99"]
        assert {len(curves) for _, curves, _ in panels} == {4}


def test_one_seed_has_no_interval_in_the_page_and_in_words(call: Any, place: Path) -> None:
    made_up_sweep(place / "sweep", [f"{GAME} = 'Boxing', 'Krull'", f"{D}, {N} = (0, 0), (8, 0), (8, 8)"], seeds=1)
    assert call("plot", "sweep").code == 0
    text = (place / "sweep" / "report.html").read_text()
    tables = text[text.index("<h2>Scores") : text.index("<h2>Trials")]
    rows = [row for row in tables.split("<tr>") if "over all trials" not in row]  # these are over several trials
    assert "Over games" in tables and not re.search(r"<td>\[|>nan", "".join(rows))
    assert "nan" not in (place / "sweep" / "aggregate.csv").read_text()
    assert "[" not in call("compare", "sweep", "sweep").out.partition("B minus A")[2]
