"""Tests of async_wrappers/analysis/capacity.py and of its command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.__main__ import main
from async_wrappers.analysis import capacity as module
from async_wrappers.analysis.capacity import (
    Capacity,
    capacity,
    capacity_picture,
    most_by_closed_form,
    most_by_simulation,
)
from async_wrappers.latency.batches import LinearBatches, MeasuredBatches

NETWORK = LinearBatches(0.004, 0.0002)  # 4 ms, and 0.2 ms for each observation


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate less, where shares need not be exact."""
    monkeypatch.setattr(module, "_OBSERVATIONS", 250)


class TestClosedForm:
    # 1 / (.995 x 60) s are 16.75 ms, so (16.75 - 4) / .2 environments can be read on each frame, whatever the delay.
    # Of spread ones with a playout of one frame, (1 - 2 x 4 / 16.67) / (60 x .0002) are in time.
    @pytest.mark.parametrize(("phases", "playout", "most"), [("spread", 1, 43), ("spread", 2, 63), ("together", 1, 63)])
    def test_is_the_formula(self, phases: str, playout: int, most: int) -> None:
        assert most_by_closed_form(NETWORK, 60, playout, phases=phases) == most

    def test_fewer_decisions_leave_room_for_more_environments(self) -> None:
        # 4 frames between decisions are 66.7 ms; the delay of 4 frames allows (1 - 2 x 4 / 66.7) / (15 x .0002).
        assert most_by_closed_form(NETWORK, 60, 4, every=4) == 293

    @pytest.mark.parametrize(
        ("latency", "arguments"),
        [
            (NETWORK, {"accelerators": 2}),
            (NETWORK, {"most": 8}),
            (LinearBatches(0.004, 0.0002, cv=0.1), {}),
            (LinearBatches(0.004, 0), {}),
        ],
    )
    def test_says_nothing_where_it_does_not_hold(self, latency: LinearBatches, arguments: dict[str, Any]) -> None:
        assert most_by_closed_form(latency, 60, 2, **arguments) is None

    @pytest.mark.parametrize(
        ("fixed", "each", "fps", "playout", "every", "phases"),
        [
            (0.003, 0.0001, 60, 1, 1, "spread"),
            (0.010, 0.00005, 60, 4, 1, "spread"),
            (0.020, 0.0004, 30, 3, 4, "spread"),
            (0.006, 0.00012, 60, 1, 1, "together"),
            (0.030, 0.0003, 20, 2, 1, "together"),
        ],
    )
    def test_is_within_three_percent_of_the_simulation(
        self, fixed: float, each: float, fps: int, playout: int, every: int, phases: str
    ) -> None:
        latency = LinearBatches(fixed, each)
        closed = most_by_closed_form(latency, fps, playout, every=every, phases=phases)
        found = most_by_simulation(latency, fps, playout, every=every, phases=phases)
        assert closed is not None
        assert found is not None
        assert closed >= 50
        assert found.environments == pytest.approx(closed, rel=0.03)


class TestCapacity:
    def test_compares_delays(self) -> None:
        found = capacity(NETWORK, 60, environments=50, playouts=(1, 2), price=2.0)
        assert [service.environments for service in found.most if service] == [43, 63]
        assert [round(service.in_time, 2) for service in found.asked][1] == 1.0
        assert found.asked[0].in_time < 0.995 <= found.asked[1].in_time
        assert found.asked[0].cost == pytest.approx(2.0 / 50)
        assert "50 environments are served with a delay of 2 frames and no less." in found.advice

    def test_more_accelerators_serve_more(self) -> None:
        found = capacity(NETWORK, 60, playouts=2, accelerators=2)
        assert found.closed_form == (None,)
        assert found.most[0] is not None
        assert found.most[0].environments > 100
        assert any("simulation alone" in sentence for sentence in found.advice)

    def test_says_that_not_one_environment_can_be_served(self) -> None:
        found = capacity(LinearBatches(0.100, 0.001), 60, environments=3, playouts=1)
        assert found.most == (None,)
        assert "a batch of one takes 101 ms, a frame 16.7 ms" in str(found)
        assert "with no delay that was tried" in str(found)

    def test_takes_measured_batches(self) -> None:
        measured = MeasuredBatches({size: [0.004 + 0.0002 * size] * 2 for size in (1, 8, 64)})
        found = capacity(measured, 60, playouts=2)
        assert found.most[0] is not None
        assert found.most[0].environments == pytest.approx(63, abs=1)

    def test_its_file_is_plain(self, tmp_path: Path) -> None:
        found = capacity(NETWORK, 60, playouts=(2,))
        found.to_json(tmp_path / "found.json")
        plain = json.loads((tmp_path / "found.json").read_text())
        assert plain["most"][0]["environments"] == 63
        assert Capacity(**plain).fps == 60

    def test_the_picture_has_a_curve_and_a_line_for_each(self, tmp_path: Path) -> None:
        results = [capacity(NETWORK, 60, playouts=(1, 2), phases=phases) for phases in ("spread", "together")]
        figure = capacity_picture(results, ["spread", "together"], tmp_path / "capacity.png")
        assert (tmp_path / "capacity.png").stat().st_size > 0
        assert len(figure.axes[0].lines) == 4

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"environments": 0}, "environments must be a whole number between 1 and 200,000, got 0"),
            ({"environments": 300_000}, "environments must be a whole number between 1 and 200,000, got 300000"),
            ({"phases": "even"}, 'phases must be "spread" or "together", got \'even\''),
            ({"playouts": 0}, "playouts must be a whole number of frames >= 1, got 0"),
            ({"playouts": (2, 1.5)}, "playouts must be a whole number of frames >= 1, got 1.5"),
            ({"playouts": ()}, "playouts must be one number of frames or several, got none: leave it out for 1 to 8"),
            ({"every": 0}, "every must be a whole number of frames >= 1, got 0"),
            ({"accelerators": 0}, "accelerators must be a whole number >= 1, got 0"),
            ({"most": 0}, "most must be a whole number >= 1, or None, got 0"),
            ({"share": 0}, "share must be a share from 0 to 1, such as 0.995, got 0"),
            ({"price": -1}, "price must be a number > 0, the price of an accelerator's hour, or None, got -1"),
        ],
    )
    def test_refuses_arguments_out_of_range(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError) as refused:
            capacity(NETWORK, 60, **{"playouts": 1, **arguments})
        assert str(refused.value) == message


class TestCommand:
    def test_prints_the_most_environments(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["plan", "--batch-ms", "4", "0.2", "--envs", "50", "--playouts", "1", "2", "--price", "2.5"]) == 0
        printed = capsys.readouterr().out
        assert "2 (33 ms)           63           63" in printed
        assert "50 environments are served with a delay of 2 frames" in printed

    def test_reads_measured_batches_and_writes_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        MeasuredBatches({1: [0.0042], 64: [0.0168]}).to_json(tmp_path / "batches.json")
        assert main(["plan", "--batch-trace", str(tmp_path / "batches.json"), "--playouts", "2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["playouts"] == [2]

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--latency-ms", "10", "--envs", "3"], "--envs is about many environments on an accelerator, got 3"),
            (["--batch-ms", "4", ".2", "--workers", "3"], "--workers is about one environment, got 3"),
            (["--batch-ms", "4", ".2", "--playouts", "0"], "playouts must be a whole number of frames >= 1, got 0"),
            (["--batch-ms", "-1", ".2"], "--batch-ms must be two numbers of milliseconds >= 0 and finite, got -1 0.2"),
            (["--batch-ms", "0", "0"], "fixed or each must be > 0 seconds"),
        ],
    )
    def test_refuses_flags_that_do_not_go_together(
        self, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            main(["plan", *flags])
        assert message in capsys.readouterr().err
