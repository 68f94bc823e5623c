"""What a phase's record becomes: a report whose numbers are worked by hand, its JSON, its trace and its picture."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

from async_wrappers.live.report.ages import GAP
from async_wrappers.live.report.journey import Span
from async_wrappers.live.report.picture import timing_picture
from async_wrappers.live.report.report import (
    EffectsOfEpisode,
    EpisodeTiming,
    Measurements,
    TimingReport,
    distribution,
)

MS = 1_000_000  # nanoseconds
BEGIN = 5_000 * MS


def picture_of(report: TimingReport, begin: float = 0.0, seconds: float = 1.0) -> Any:
    return timing_picture(report.spans, int(report.workers["count"]), report.frames, begin, seconds)


def span(worker: int, episode: int, start: int, began: int, ended: int) -> Span:
    """Return an inference as it is recorded, `began` and `ended` in ms after the run's beginning."""
    return Span(worker, episode, start, BEGIN + began * MS, BEGIN + ended * MS)


def record() -> Measurements:
    """Ten frames at 100 fps, in episodes 7 (six frames) and 8 (four frames) of their phase; two workers."""
    return Measurements(
        fps=100.0,
        workers=2,
        playout=2,
        begin=BEGIN,
        end=BEGIN + 100 * MS,
        episodes=[EpisodeTiming(3.0, 6, 7, BEGIN), EpisodeTiming(-1.5, 4, 8, BEGIN + 60 * MS)],
        effects=[[(0, 2), (1, 3), (3, 5)], [(0, 2)]],
        latencies=[15 * MS, 15 * MS, 18 * MS, 5 * MS, 40 * MS],
        spans=[
            span(0, 7, 0, 0, 15),
            span(1, 7, 1, 10, 25),
            span(0, 7, 3, 32, 50),  # read the frame of the next one too, and ended later
            span(1, 7, 3, 31, 36),
            span(0, 8, 0, 70, 110),  # ends after the phase
        ],
        exchanges=[10_000, 30_000],
        lateness=[0, 0, 1 * MS, 6 * MS, 5 * MS, 0, 0, 0, 0, 2 * MS],
        versions=[1, 1, 2, 3],
        dropped=1,
        late=1,
        fates={"refused": 1, "passed": 2},
        restarts=3,
        learner_steps=[2 * MS, 4 * MS],
        updates=5,
    )


def skipping() -> Measurements:
    """Seven frames at 50 fps of a machine; the loop is held up before frame 3, which begins 45 ms late."""
    phase = Measurements(
        50.0,
        1,
        begin=BEGIN,
        end=BEGIN + 200 * MS,
        effects=[EffectsOfEpisode([(0, 2), (2, 6)])],
        spans=[span(0, 7, 0, 1, 39), span(0, 7, 2, 41, 109), span(0, 7, 3, 107, 150)],
    )
    for frame, (missed, late) in enumerate([(1, 0), (2, 3), (0, 0), (1, 45), (2, 0), (3, 1), (0, 0)]):
        if missed:
            phase.note_missed(missed, frame, late * MS)
    phase.episodes.append(EpisodeTiming(1.0, 7, 7, BEGIN, moved=((3, 45 * MS),)))
    return phase


def test_the_longest_gap_is_told_with_its_time_and_a_loop_that_stood_still() -> None:
    report = skipping().report()
    assert report.longest_gap == pytest.approx({"frames": 3, "seconds": 0.06, "at": 0.105, "held_up": 0.045})
    gap = "0.06 s without an action of the policy (3 frames), from second 0.10 on"
    assert f"gap        {gap}: the loop itself stood still for 0.04 s\n" in str(report)
    assert report.longest_gap is not None
    punctual = replace(report, longest_gap={**report.longest_gap, "held_up": 0.001})
    assert f"gap        {gap}\n" in str(punctual)
    stopped = str(replace(report, lateness_ms={**report.lateness_ms, "max": 4_810.0}))
    assert "drift 0.000 ms; the loop itself stood still for 4.81 s\n" in stopped
    nothing = replace(report, longest_gap=None)
    assert "without an action" not in str(nothing)
    nothing.draw_ages(*Figure().subplots(2))


def test_ages_are_those_of_the_clock_also_where_a_machines_frames_were_skipped() -> None:
    ages = skipping().report().ages()
    assert ages.times.tolist() == pytest.approx([0, 0.02, 0.04, 0.105, 0.125, 0.145, 0.165])
    np.testing.assert_allclose(ages.behind * 50, [np.nan, np.nan, 2, 5.25, 6.25, 7.25, 6.25])
    assert ages.began.tolist() == pytest.approx([0.001, 0.041, 0.107])
    assert ages.read.tolist() == pytest.approx([0.001, 0.001, 0.002])


def test_ages_of_several_episodes_follow_each_other() -> None:
    ages = record().report().ages()
    assert ages.times.tolist() == pytest.approx([frame / 100 for frame in range(10)])
    np.testing.assert_allclose(ages.behind * 100, [np.nan, np.nan, 2, 2, 3, 2, np.nan, np.nan, 2, 3], atol=1e-6)
    nothing = Measurements(100.0, 2).report().ages()
    assert [len(each) for each in nothing] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("gap", "asked", "shown"),
    [
        ((4.0, 0.2), {}, (3.6, 4.6)),
        ((4.0, 3.0), {}, (3.9, 4.9)),
        ((0.0, 0.1), {}, (0.0, 1.0)),
        ((9.9, 0.1), {}, (9.0, 10.0)),
        ((4.0, 0.2), {"begin": 7.0}, (7.0, 8.0)),
        ((4.0, 0.2), {"seconds": None}, (0.0, 10.0)),
        (None, {"seconds": 0.5}, (0.0, 0.5)),
    ],
)
def test_the_picture_shows_the_longest_gap_another_second_or_the_whole_run(
    gap: Any, asked: dict[str, Any], shown: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: figures.append(figure))
    last = Span(0, 7, 0, 0, 10_000 * MS)
    told = None if gap is None else {"frames": 10, "at": gap[0], "seconds": gap[1], "held_up": 0.0}
    replace(record().report(), spans=(last,), longest_gap=told).to_png(tmp_path / "picture.png", **asked)
    (figure,) = figures
    assert figure.axes[0].get_xlim() == pytest.approx(shown)
    shaded = [patch for patch in figure.axes[0].patches if patch.get_alpha() == GAP["alpha"]]
    assert len(shaded) == (gap is not None)


def test_a_picture_of_ages_is_a_method_of_the_report(tmp_path: Path) -> None:
    skipping().report().to_ages_png(tmp_path / "ages.png")
    assert imread(tmp_path / "ages.png").ndim == 3


def strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_numbers_of_a_report_are_those_worked_by_hand() -> None:
    report = record().report()
    assert report.frames == {
        "total": 10,
        "fresh": 4,
        "default": 6,
        "paused": 0,
        "dropped_actions": 1,
        "late_actions": 1,
        "too_old": 0,
        "limited": 0,
        "missed_deadlines": 1,  # of 6 ms; 5 ms is not more than half a frame
        "skipped": 0,
    }
    assert report.latency_ms == pytest.approx(
        {"mean": 18.6, "std": math.sqrt(133.84), "p50": 15, "p95": 35.6, "p99": 39.12, "max": 40}
    )
    assert report.interval_ms == pytest.approx(
        {"mean": 15, "std": 5, "p50": 15, "p95": 19.5, "p99": 19.9, "max": 20}
    )  # frames 2 to 3 and 3 to 5; none across the reset
    assert report.delay_frames == {"mean": 2, "std": 0, "p50": 2, "p95": 2, "p99": 2, "max": 2}
    assert report.learner_step_ms == pytest.approx({"mean": 3, "std": 1, "p50": 3, "p95": 3.9, "p99": 3.98, "max": 4})
    assert report.exchange_us == pytest.approx({"mean": 20, "std": 10, "p50": 20, "p95": 29, "p99": 29.8, "max": 30})
    assert (report.lateness_ms["mean"], report.lateness_ms["max"]) == pytest.approx((1.4, 6))
    assert report.drift_ms == 2
    assert report.fps == pytest.approx(100)
    assert report.workers == {"count": 2, "restarts": 3, "busy_share": pytest.approx((15 + 15 + 18 + 5 + 30) / 200)}
    assert report.episodes == (EpisodeTiming(3.0, 6, 7, 0), EpisodeTiming(-1.5, 4, 8, 60 * MS))
    assert [episode.began for episode in report.episodes] == [0, 60 * MS]
    assert (report.playout_frames, report.lost) == (2, {"passed": 2, "refused": 1})
    assert (report.updates, report.updates_per_frame) == (5, 0.5)


def test_each_inference_is_told_on_which_frame_its_action_took_effect() -> None:
    spans = record().report().spans
    assert [(each.worker, each.episode, each.start, each.effect, each.applied) for each in spans] == [
        (0, 7, 0, 2, 20 * MS),
        (1, 7, 1, 3, 30 * MS),
        (0, 7, 3, None, None),
        (1, 7, 3, 5, 50 * MS),
        (0, 8, 0, 2, 80 * MS),
    ]
    assert [(each.began, each.ended) for each in spans[:2]] == [(0, 15 * MS), (10 * MS, 25 * MS)]


def test_an_inference_that_goes_on_from_the_phase_before_counts_as_work_only_from_this_ones_beginning() -> None:
    phase = record()
    phase.spans = [span(0, 6, 0, -50, 20), span(0, 6, 1, -90, -60), span(1, 7, 0, 100, 120)]
    assert phase.report().workers["busy_share"] == pytest.approx(20 / 200)


def test_a_record_of_nothing_makes_a_report_with_no_numbers(tmp_path: Path) -> None:
    report = Measurements(fps=60.0, workers=1, learner_steps=[]).report()
    assert report.frames["total"] == report.updates_per_frame == 0
    report.to_json(tmp_path / "report.json")
    told = strictly((tmp_path / "report.json").read_text())
    assert told["latency_ms"] == dict.fromkeys(("mean", "std", "p50", "p95", "p99", "max"))
    assert told["learner_step_ms"]["mean"] is None
    assert Measurements(fps=60.0, workers=1).report().to_dict()["learner_step_ms"] is None
    report.to_png(tmp_path / "report.png")
    assert imread(tmp_path / "report.png").size
    assert str(report)


def test_json_has_null_for_what_it_has_no_number_for(tmp_path: Path) -> None:
    phase = record()
    phase.episodes = [replace(phase.episodes[0], score=score) for score in (math.inf, math.nan)]
    phase.report().to_json(tmp_path / "report.json")
    told = strictly((tmp_path / "report.json").read_text())
    assert told["episodes"] == [{"return": None, "frames": 6}] * 2
    record().report().to_json(tmp_path / "report.json")
    assert strictly((tmp_path / "report.json").read_text()) == record().report().to_dict()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_trace_has_a_named_row_for_each_worker_and_one_for_the_environment(tmp_path: Path) -> None:
    report = replace(record().report(), workers={"count": 3, "restarts": 0, "busy_share": 0.0})
    report.to_trace(tmp_path / "trace.json")
    events = strictly((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {0: "worker 0", 1: "worker 1", 2: "worker 2", 3: "environment"}
    order = {event["tid"]: event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"}
    assert order == {0: 0, 1: 1, 2: 2, 3: 3}
    inferences = [event for event in events if event["ph"] == "X"]
    assert [(event["tid"], event["ts"], event["dur"]) for event in inferences[:2]] == [
        (0, 0, 15_000),
        (1, 10_000, 15_000),
    ]
    assert [event["cat"] for event in inferences] == ["inference", "inference", "inference,dropped", *["inference"] * 2]
    actions = [(event["tid"], event["ts"], event["args"]) for event in events if event["ph"] == "i"]
    assert actions[0] == (3, 20_000, {"episode": 7, "frame": 2, "delay": 2})
    assert [ts for _, ts, _ in actions] == [20_000, 30_000, 50_000, 80_000]


def bars(figure: Figure, panel: int) -> list[Any]:
    return list(figure.axes[panel].patches)


def test_the_picture_has_a_bar_for_each_inference_of_its_window_and_tells_dropped_ones_apart() -> None:
    report = record().report()
    figure = picture_of(report, begin=0.0, seconds=0.055)
    drawn = [(round(bar.get_x(), 3), round(bar.get_width(), 3), to_hex(bar.get_facecolor())) for bar in bars(figure, 0)]
    grey, white = to_hex("0.8"), to_hex("white")
    assert drawn == [(0, 0.015, grey), (0.01, 0.015, grey), (0.032, 0.018, white), (0.031, 0.005, grey)]
    effects = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "v"]
    assert effects == pytest.approx([0.02, 0.03, 0.05])
    assert figure.axes[0].get_xlim() == (0, 0.055)
    (later,) = bars(picture_of(report, begin=0.075, seconds=1), 0)
    assert later.get_x() == pytest.approx(0.07)


def test_the_histograms_are_of_delays_and_of_intervals_within_episodes() -> None:
    figure = picture_of(record().report())
    delays = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in bars(figure, 1) if bar.get_height()}
    assert delays == {2.0: 4}
    assert sum(bar.get_height() for bar in bars(figure, 2)) == 2
    assert "mean 15.00" in figure.axes[2].get_title(loc="left")


@pytest.mark.parametrize("delays", [[2], [1, 500], [0, 3, 1_000_000]])
def test_any_delays_can_be_drawn(delays: list[int], tmp_path: Path) -> None:
    phase = record()
    phase.episodes, phase.effects = phase.episodes[:1], [[(k, k + delay) for k, delay in enumerate(delays)]]
    phase.spans = [span(0, 7, k, k, k + 1) for k in range(len(delays))]
    phase.report().to_png(tmp_path / "picture.png", seconds=0.5)
    assert imread(tmp_path / "picture.png").shape[2] >= 3
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_of_many_workers_the_first_are_drawn_and_the_picture_says_so() -> None:
    phase = record()
    phase.workers = 100
    phase.spans = [span(worker, 7, worker, worker, worker + 5) for worker in range(100)]
    figure = picture_of(phase.report())
    assert len(bars(figure, 0)) == 24
    assert "first 24 of 100" in figure.axes[0].get_ylabel()


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan])
def test_a_window_without_length_is_refused(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seconds must be > 0 to be drawn, got"):
        record().report().to_png(tmp_path / "picture.png", seconds=seconds)
    assert not list(tmp_path.iterdir())


def test_a_distribution_by_hand_and_of_nothing() -> None:
    assert distribution([1, 2, 3, 4]) == pytest.approx(
        {"mean": 2.5, "std": math.sqrt(1.25), "p50": 2.5, "p95": 3.85, "p99": 3.97, "max": 4}
    )
    assert distribution(x for x in ()) == pytest.approx(
        dict.fromkeys(("mean", "std", "p50", "p95", "p99", "max"), math.nan), nan_ok=True
    )
    assert distribution(np.array([7], np.int64))["p99"] == 7


def test_a_notebook_shows_tables_with_the_numbers_of_the_text() -> None:
    report = replace(record().report(), phase_state="<b>&</b>")
    html = report._repr_html_()
    facts, distributions = ElementTree.fromstring(f"<div>{html}</div>")
    shown = {row[0].text: row[1].text for row in facts}
    text = dict(line.split(maxsplit=1) for line in str(report).splitlines())
    assert shown.items() < text.items()
    assert shown["state"] == "<b>&</b>, for the next phase"
    heads = [cell.text for cell in distributions[0][0]]
    assert heads == [None, "unit", "mean", "std", "p50", "p95", "p99", "max"]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in distributions[1]}
    assert list(rows) == ["latency", "delay", "interval", "lateness", "exchange", "update"]
    assert rows["latency"][:2] == ["ms", "18.60"] and rows["latency"][-1] == "40.00"
    assert rows["update"][:3] == ["ms", "3.00", "1.00"]
    assert text.keys() <= shown.keys() | rows.keys()
    nothing = replace(report, exchange_us=None, learner_step_ms=None)._repr_html_()
    assert "exchange" not in nothing and "update<" not in nothing


def test_the_text_tells_what_was_lost_and_learnt() -> None:
    text = str(record().report())
    assert "10 at 100.00 fps: 40.0% new decision, 60.0% default action (6 frames)" in text
    assert "{'passed': 2, 'refused': 1}" in text
    assert "5 updates, 0.50 per frame" in text
    assert "returns 3, -1.5" in text
    many = replace(record().report(), episodes=(EpisodeTiming(1.0, 1),) * 9)
    assert str(many).endswith(", ...")


def test_a_report_is_plain_data_of_its_own() -> None:
    report = record().report()
    assert isinstance(report, TimingReport)
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
    assert "spans" not in report.to_dict()


def aged() -> Measurements:
    """The ten frames, with learners: weights of some age, and a pause of frames 4 of episode 7."""
    phase = record()
    phase.lags, phase.pauses, phase.too_old = [4, 0, 2, 6], [[(4, 5)], []], 3
    phase.note_learning(
        [
            ([2 * MS], {"Rho": 9.0, "Loss": 1.0}, {"Rho": 2.0, "KL": 0.5}),
            ([4 * MS] * 3, {"Rho": 1.0}, {"Rho": 1.0, "KL": 0.1}),
        ]
    )
    return phase


def test_the_age_of_weights_and_what_a_pause_leaves_out_by_hand() -> None:
    report = aged().report()
    assert report.lag_updates == pytest.approx(
        {"mean": 3, "std": math.sqrt(5), "p50": 3, "p95": 5.7, "p99": 5.94, "max": 6}
    )
    assert report.off_policy == pytest.approx({"Rho": 1.25, "KL": 0.2})  # means over the four updates
    assert report.scalars == {"Rho": 9.0, "Loss": 1.0}
    assert (report.frames["paused"], report.frames["default"], report.frames["too_old"]) == (1, 5, 3)
    assert report.actions_per_frame == 4 / 9
    assert report.interval_ms["max"] == 10  # frames 2 to 3; not 3 to 5, across the pause
    assert report.pauses == ((40 * MS, 50 * MS),)
    lags = {(span.worker, span.episode, span.start): span.lag for span in report.spans}
    assert lags == {(0, 7, 0): 4, (1, 7, 1): 0, (0, 7, 3): None, (1, 7, 3): 2, (0, 8, 0): 6}
    without = record().report()
    assert (without.lag_updates, without.off_policy, without.pauses, without.stopped) == (None, {}, (), None)


def test_a_wait_for_the_end_of_a_pause_between_two_episodes_is_no_time_of_the_run() -> None:
    phase = record()
    phase.end += 900 * MS
    phase.waited = 900 * MS
    assert phase.report().fps == pytest.approx(100)


def test_a_trace_has_both_ages_of_each_action_and_the_pauses(tmp_path: Path) -> None:
    aged().report().to_trace(tmp_path / "trace.json")
    events = strictly((tmp_path / "trace.json").read_text())["traceEvents"]
    ages = [(event["args"]["delay"], event["args"]["lag"]) for event in events if event["ph"] == "i"]
    assert ages == [(2, 4), (2, 0), (2, 2), (2, 6)]
    (pause,) = [event for event in events if event["name"] == "pause"]
    assert (pause["tid"], pause["ts"], pause["dur"]) == (2, 40_000, 10_000)


def test_the_picture_has_a_histogram_of_the_age_of_weights_where_they_have_one_and_shows_pauses() -> None:
    report = aged().report()
    figure = timing_picture(report.spans, 2, report.frames, 0, 1, report.pauses)
    assert [ax.get_xlabel() for ax in figure.axes] == ["seconds", "delay (frames)", "interval (ms)", "lag (updates)"]
    lags = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in bars(figure, 3) if bar.get_height()}
    assert lags == {0.0: 1, 2.0: 1, 4.0: 1, 6.0: 1}
    (hatched,) = [bar for bar in bars(figure, 0) if bar.get_hatch()]
    assert (hatched.get_x(), hatched.get_width()) == pytest.approx((0.04, 0.01))
    assert sum(bar.get_height() for bar in bars(figure, 2)) == 1
    title = figure.axes[0].get_title(loc="left")
    assert title == "1 of 10 frames paused; of the others 44.4% new decision, 55.6% default action"
    assert len(picture_of(record().report()).axes) == 3
