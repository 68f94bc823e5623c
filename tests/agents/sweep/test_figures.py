"""The figures of a sweep: axes, legends, scales, and the files that they are written to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import pytest

from async_wrappers.agents.sweep.figures import (
    draw_learning_curves,
    draw_scores,
    put_subject,
    write_figure,
)
from tests.worlds.made_up_sweep import ALL_TRIALS, D, N, a_score, made_up_sweep, view


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
        assert len(looks) == 2  # distinct without colour

    def test_zero_lies_on_the_axis_too(self, tmp_path: Path) -> None:
        figure = draw_scores(view(made_up_sweep(tmp_path, [f"{D} = 0, 1, 8"])))
        assert figure.axes[0].get_xscale() == "symlog"
        assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["0", "1", "8"]

    def test_one_seed_has_no_interval_and_says_so(self, tmp_path: Path) -> None:
        assert draw_scores(view(made_up_sweep(tmp_path, seeds=1))).get_suptitle() == "one seed, no interval"

    def test_learning_curves_have_a_panel_per_delay(self, tmp_path: Path) -> None:
        figure = draw_learning_curves(view(made_up_sweep(tmp_path)), "train_average_return")
        titles = ["delay 1 frame", "delay 8 frames", "delay 70 frames"]
        assert [axes.get_title() for axes in figure.axes] == titles
        assert [axes.get_xlabel() for axes in figure.axes] == ["training frames"] * 3
        known = draw_learning_curves(view(tmp_path, frame_rate=15.0), "train_average_return")
        assert [axes.get_title() for axes in known.axes] == [
            "delay 1 frame (67 ms)",
            "delay 8 frames (533 ms)",
            "delay 70 frames (4667 ms)",
        ]
        line = figure.axes[0].get_lines()[0]
        assert list(line.get_xdata()) == [1000.0 * (n + 1) for n in range(10)]
        expected = [a_score({D: 1, N: 0}, seed)["train_average_return"][9] for seed in range(3)]
        assert line.get_ydata()[9] == pytest.approx(sum(expected) / 3)
        assert len({axes.get_ylim() for axes in figure.axes}) == 1

    def test_the_curve_without_delay_and_the_baselines_stand_beside_those_of_each_delay(self, tmp_path: Path) -> None:
        swept = view(made_up_sweep(tmp_path, [f"{D}, {N} = (0, 0), (2, 2), (2, 0), (8, 0)"]))
        figure = draw_learning_curves(swept, "train_average_return")
        assert [axes.get_title() for axes in figure.axes] == ["delay 2 frames", "delay 8 frames"]
        names = [[line.get_label() for line in axes.get_lines()] for axes in figure.axes]
        assert names == [
            ["no delay", "sequential", "asynchronous", *ALL_TRIALS],
            ["no delay", "asynchronous", *ALL_TRIALS],
        ]
        expected = [a_score({D: 0, N: 0}, seed)["train_average_return"][9] for seed in range(3)]
        for axes in figure.axes:
            assert axes.get_lines()[0].get_ydata()[9] == pytest.approx(sum(expected) / 3)

    def test_the_curve_without_delay_has_a_panel_of_its_own_until_a_delay_was_played(self, tmp_path: Path) -> None:
        game = "create_atari_environment.game_name"
        swept = made_up_sweep(tmp_path, [f"{game} = 'Boxing', 'Krull'", f"{D}, {N} = (0, 0), (2, 0)"], seeds=1)
        found = view(swept)
        rows = [row for row in found.rows if row[game] == "Boxing" or row[D] == 0]
        figure = draw_learning_curves(replace(found, rows=rows), "train_average_return")
        titles = {axes.get_title(): [line.get_label() for line in axes.get_lines()] for axes in figure.axes}
        assert titles == {
            "Boxing, delay 2 frames": ["no delay", "asynchronous", *ALL_TRIALS],
            "Krull, delay 0 frames": ["no delay", *ALL_TRIALS],
        }

    def test_curves_of_a_key_share_panels_and_axes_with_those_without_delay(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path, [f"{D} = 0, 2, 70", "AppliedActions.told = False, True"]))
        figure = draw_learning_curves(found, "train_average_return")
        assert [axes.get_title() for axes in figure.axes] == ["delay 2 frames", "delay 70 frames"]
        for axes in figure.axes:
            names = [line.get_label() for line in axes.get_lines()][:4]
            assert names == ["no delay, told False", "no delay, told True", "told False", "told True"]
        assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1

    def test_where_a_seed_has_ended_the_mean_of_the_others_is_dotted(self, tmp_path: Path) -> None:
        def score(point: Mapping[str, Any], seed: int) -> dict[str, Any]:
            ends = 3 + 2 * seed
            return {"frames": [1000.0 * (n + 1) for n in range(ends)], "return": [float(seed)] * ends, "score": 0.0}

        figure = draw_learning_curves(view(made_up_sweep(tmp_path, [f"{D} = 2"], seeds=2, score=score)), "return")
        mean, rest = figure.axes[0].get_lines()
        assert [list(each) for each in mean.get_data()] == [[1000, 2000, 3000], [0.5] * 3]
        assert [list(each) for each in rest.get_data()] == [[3000, 4000, 5000], [0.5, 1, 1]]
        assert rest.get_linestyle() == ":" and "dotted: after the end of some" in figure.get_suptitle()

    def test_a_figure_is_written_as_png_and_svg_and_the_same_again(self, tmp_path: Path) -> None:
        found = view(made_up_sweep(tmp_path / "s"))
        png, svg = write_figure(draw_scores(found), tmp_path / "score")
        assert matplotlib.image.imread(png).shape[1] == 832
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        before = svg.read_bytes()
        write_figure(draw_scores(found), tmp_path / "score")
        assert svg.read_bytes() == before
        assert not list(tmp_path.glob("*.tmp"))


def test_a_figure_says_what_it_is_of_above_its_note(tmp_path: Path) -> None:
    figure = draw_scores(view(made_up_sweep(tmp_path, seeds=1)))
    assert put_subject(figure, "").get_suptitle() == "one seed, no interval"
    assert put_subject(figure, "CartPole-v1, DQNAgent").get_suptitle() == "CartPole-v1, DQNAgent\none seed, no interval"
