"""How a sweep is looked at: curves, panels, baselines; the figures, the page and the comparison made of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import pytest

from agents.experiment.evaluate import STATISTICS, bootstrap_interval, difference_interval, interquartile_mean
from agents.sweep.compare import compare, comparison_table
from agents.sweep.figures import draw_learning_curves, draw_scores, draw_workers, write_figure
from agents.sweep.page import write_report
from agents.sweep.plan import read_plan
from agents.sweep.results import read_rows
from agents.sweep.view import Score, View, make_view
from tests.worlds.command_line import call, place, refused
from tests.worlds.made_up_sweep import BOTH, D, N, a_score, made_up_sweep

__all__ = ["call", "place"]

GAME = "create_atari_environment.game_name"
AGENT = "create_agent.agent_name"
ALL_TRIALS = ["random, over all trials", "no-op, over all trials"]
ARMS = {
    "DQN": [f"{AGENT} = 'dqn'"],
    "random": [f"{AGENT} = 'random'", f"{D}, {N} = (0, 0)"],
    "no-op": [f"{AGENT} = 'noop'", f"{D}, {N} = (0, 0)"],
}


def view(base_dir: Path, **arguments: Any) -> View:
    return make_view(read_plan(base_dir), read_rows(base_dir), **arguments)


def shape(found: View) -> list[tuple[str, dict[str, list[float]], list[str]]]:
    return [
        (panel.title, {name: [score.x for score in curve] for name, curve in panel.curves.items()},
         [level.name for level in panel.levels])
        for panel in found.panels
    ]  # fmt: skip


class TestStatistics:
    @pytest.mark.parametrize(
        ("scores", "value"),
        [([5.0], 5.0), ([1.0, 2.0, 9.0], 4.0), ([0.0, 1.0, 3.0, 100.0], 2.0), ([9, 0, 1, 2, 3, 4, 5, 100], 3.5)],
    )
    def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(self, scores: list[float], value: float) -> None:
        assert interquartile_mean(scores) == value

    def test_it_is_taken_along_the_last_axis(self) -> None:
        assert interquartile_mean([[0.0, 1.0, 3.0, 100.0], [4.0, 4.0, 4.0, 4.0]]).tolist() == [2.0, 4.0]

    def test_intervals_are_those_of_the_statistic(self) -> None:
        scores, iqm = [*[1.0] * 15, 1000.0], STATISTICS["iqm"]
        assert bootstrap_interval(scores, iqm) == (1.0, 1.0)
        assert bootstrap_interval(scores)[1] > 100
        low, high = difference_interval([value + 5 for value in scores], scores, iqm)
        assert (low, high) == (5.0, 5.0)


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
        assert found.panels[0].levels[0].value == pytest.approx(107)  # of the arm, not of the runs' closing tables

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


class TestFigures:
    def test_a_figure_says_its_axes_its_curves_its_baselines_and_what_a_bar_is(self, tmp_path: Path) -> None:
        figure = draw_scores(view(made_up_sweep(tmp_path)))
        (axes,) = figure.axes
        assert axes.get_xlabel() == "delay (frames)"
        assert axes.get_xscale() == "log"
        assert figure.get_supylabel() == "return of an episode in the closing evaluation"
        assert figure.get_suptitle() == "mean of 3 seeds, bars: 95 % bootstrap interval over seeds"
        legend = {text.get_text() for text in figure.legends[0].get_texts()}
        assert legend == {"asynchronous", "sequential", *ALL_TRIALS}
        looks = {(bars[0].get_linestyle(), bars[0].get_marker()) for bars in axes.containers}
        assert len(looks) == 2  # told apart without colour

    def test_zero_lies_on_the_axis_too(self, tmp_path: Path) -> None:
        figure = draw_scores(view(made_up_sweep(tmp_path, [f"{D} = 0, 1, 8"])))
        assert figure.axes[0].get_xscale() == "symlog"
        assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0", "1", "8"]

    def test_one_seed_has_no_interval_and_says_so(self, tmp_path: Path) -> None:
        assert draw_scores(view(made_up_sweep(tmp_path, seeds=1))).get_suptitle() == "one seed, no interval"

    def test_learning_curves_have_a_panel_per_delay(self, tmp_path: Path) -> None:
        figure = draw_learning_curves(view(made_up_sweep(tmp_path)), "train_average_return")
        assert [axes.get_title() for axes in figure.axes] == [f"delay {delay} frames" for delay in (1, 8, 70)]
        assert [axes.get_xlabel() for axes in figure.axes] == ["training frames"] * 3
        line = figure.axes[0].get_lines()[0]
        assert list(line.get_xdata()) == [1000.0 * (n + 1) for n in range(10)]
        expected = [a_score({D: 1, N: 0}, seed)["train_average_return"][9] for seed in range(3)]
        assert line.get_ydata()[9] == pytest.approx(sum(expected) / 3)
        assert len({axes.get_ylim() for axes in figure.axes}) == 1

    def test_workers_are_drawn_against_latency(self) -> None:
        figure = draw_workers([(0.1, 6, 8), (1.0, 60, 66)], 60, "simulated")
        enough, rule = figure.axes[0].get_lines()
        assert list(enough.get_xdata()) == [100.0, 1000.0]
        assert list(enough.get_ydata()) == [8, 66]
        assert list(rule.get_ydata()) == [6, 60]
        assert figure.axes[0].get_xlabel() == "mean latency of an inference (ms)"

    def test_a_figure_is_written_as_png_and_svg_and_the_same_again(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path / "s"))
        png, svg = write_figure(draw_scores(found), tmp_path / "score")
        assert matplotlib.image.imread(png).shape[1] == 832
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        before = svg.read_bytes()
        write_figure(draw_scores(found), tmp_path / "score")
        assert svg.read_bytes() == before
        assert not list(tmp_path.glob("*.tmp"))


class Page(HTMLParser):
    """What a page refers to, and what it says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_the_page_holds_figures_numbers_failures_and_commands_and_needs_nothing_else(tmp_path: Path) -> None:
    base_dir = made_up_sweep(tmp_path / "<s>")
    directory = base_dir / "trials" / "0007"
    (directory / "result.json").unlink()
    (directory / "failure.json").write_text('{"error": "ZeroDivisionError: a < b"}')
    found = view(base_dir)
    _, svg = write_figure(draw_scores(found), base_dir / "figures" / "score")
    page = Page(write_report(base_dir, found, {"Score": svg}).read_text())
    (source,) = page.sources
    assert base64.b64decode(source.removeprefix("data:image/svg+xml;base64,")) == svg.read_bytes()
    assert "Sweep <s>" in page.cells
    assert "ZeroDivisionError: a < b" in page.cells
    assert any("17 of 18 trials have finished" in cell for cell in page.cells)
    commands = [cell for cell in page.cells if cell.startswith("python train.py")]
    assert len(commands) == 17
    assert "--gin_files configs/dqn/cartpole.gin --gin_bindings 'RealtimeDelay.delay = 1'" in commands[0]
    score = found.panels[0].curves["sequential"][0]
    assert f"{score.value:.5g}" in page.cells
    assert f"[{score.low:.5g}, {score.high:.5g}]" in page.cells


def nine_more(point: Mapping[str, Any], seed: int) -> dict[str, float]:
    return {"final_return": a_score(point, seed)["final_return"] + 9}


class TestCompare:
    def test_what_two_sweeps_share_is_set_side_by_side(self, tmp_path: Path) -> None:
        first = made_up_sweep(tmp_path / "a", [f"{D} = 1, 8", f"{N} = 0"])
        second = made_up_sweep(tmp_path / "b", [f"{D} = 8, 70", f"{N} = 0"], score=nine_more)
        (shared,) = compare(first, second)
        assert shared.point == "asynchronous, delay 8"
        low, high = difference_interval(shared.others, shared.first)
        line = comparison_table([shared]).splitlines()[1]
        assert line.endswith(f"  9.00 [{low:.2f}, {high:.2f}]")
        assert comparison_table(compare(second, first)).splitlines()[1].split("  ")[-1].startswith("-9.00 [")

    def test_runs_are_compared_by_their_closing_tables(self, tmp_path: Path) -> None:
        for name, scores in (("a", [1.0, 2.0]), ("b", [5.0, 6.0])):
            (tmp_path / name).mkdir()
            (tmp_path / name / "report.json").write_text(f'[{{"agent": "trained", "scores": {scores}}}]')
        text = comparison_table(compare(tmp_path / "a", tmp_path / "b"), "iqm")
        assert text.splitlines()[1].split()[:2] == ["trained", "1.50"]
        assert "4.00 [3.00, 5.00]" in text

    def test_what_cannot_be_compared_is_refused(self, tmp_path: Path) -> None:
        first, second = made_up_sweep(tmp_path / "a", [f"{D} = 1"]), made_up_sweep(tmp_path / "b", [f"{D} = 8"])
        with pytest.raises(ValueError, match="share no point"):
            compare(first, second)
        with pytest.raises(ValueError, match="holds no result"):
            compare(first, tmp_path)


class TestCommands:
    def test_plot_writes_figures_and_the_page(self, call: Any, place: Path) -> None:
        made_up_sweep(place / "s")
        done = call("plot", "s", "--statistic", "iqm")
        assert done.code == 0, done.err
        names = ("score", "learning_curves", "workers", "networks")
        files = [f"s/figures/{name}.{kind}" for name in names for kind in ("png", "svg")]
        said, *written = done.out.splitlines()
        assert said.startswith("no regret ladder")
        assert written == [*files, "s/report.html"]
        assert all((place / file).is_file() for file in written)

    def test_plot_draws_the_ladder_where_there_is_a_delay_of_zero(self, call: Any, place: Path) -> None:
        made_up_sweep(place / "s", [f"{D} = 0, 8", f"{N} = 0, {D}"])
        done = call("plot", "s")
        assert {"s/figures/ladder.png", "s/figures/ladder.svg"} <= set(done.out.splitlines()), done.err
        assert "Regret ladder: what delay costs, what inaction costs" in (place / "s" / "report.html").read_text()

    def test_compare_prints_the_difference(self, call: Any, place: Path) -> None:
        for name in "ab":
            made_up_sweep(place / name)
        done = call("compare", "a", "b")
        assert done.code == 0
        assert done.out.splitlines()[:2] == ["A: a", "B: b"]
        assert len(done.out.splitlines()) == 9

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["plot"], "plot needs results: python train.py plot DIR"),
            (["plot", "nowhere"], "nowhere holds no sweep"),
            (["plot", "s", "--metric", "mood"], "metric must be one of"),
            (["plot", "s", "--statistic", "median"], "statistic"),
            (["compare", "s"], "compare needs results: python train.py compare A B"),
            (["compare", "s", "s", "s"], "'s' belongs to no flag"),
            (["compare", "s", "nowhere"], "nowhere holds no result"),
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
        assert "no trial of this sweep has finished yet" in refused(call("plot", "s"))
