"""`doctor`: what it measures, what it finds in a system's files, and what it says of both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from async_wrappers.__main__ import main
from async_wrappers.analysis import doctor
from async_wrappers.analysis.doctor import Examination, Finding, Measured, examine, find, stolen_share, stolen_ticks
from async_wrappers.analysis.sensing import sense_machine
from async_wrappers.live.world import realtime as realtime_module
from tests.worlds.machines import Turning
from tests.worlds.stamping_machine import Stamping

NUMBERS = {"p50": 50.0, "p99": 90.0, "max": 800.0}


def system(root: Path, **files: str) -> Path:
    """Make a system of files, a double underscore for each slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def findings(root: Path, refused: str | None = None, stolen: float | None = None) -> dict[str, Finding]:
    return {each.name: each for each in find(root, stolen, refused, None)}


def test_a_good_system_needs_nothing(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="performance",
        sys__devices__system__cpu__isolated="3",
        sys__devices__system__clocksource__clocksource0__current_clocksource="tsc",
        sys__fs__cgroup__cpu="",
        sys__kernel__realtime="1",
    )
    found = findings(root, stolen=0.0)
    assert not any(each.remedy for name, each in found.items() if name not in ("cores", "memory"))
    assert "PREEMPT_RT" in found["kernel"].found and "without" not in found["kernel"].found


def test_each_setting_that_is_missing_names_its_remedy(tmp_path: Path) -> None:
    root = tmp_path
    for name, text in (
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
        ("sys/devices/system/cpu/isolated", ""),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        ("sys/fs/cgroup/cpu.max", "150000 100000"),
        ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
        (".dockerenv", ""),
    ):
        system(root, **{name.replace("/", "__"): text})
    found = findings(root, realtime_module.no_priority(50), stolen=0.02)
    remedies = {name: each.remedy or "" for name, each in found.items()}
    assert "rtprio 50` into /etc/security/limits.conf" in remedies["priority"]
    assert "--cap-add SYS_NICE" in remedies["container"]
    assert (found["quota"].found, "--cpus" in remedies["quota"]) == ("1.5 cores", True)
    assert "cpupower frequency-set -g performance" in remedies["governor"]
    assert "isolcpus=" in remedies["isolated"] and "clocksource=tsc" in remedies["clock"]
    assert found["stolen time"].found == "2.00%" and "dedicated core" in remedies["stolen time"]
    assert "95 % of a core" in found["kernel"].found


def test_a_limit_of_the_older_control_groups_is_found_too(tmp_path: Path) -> None:
    system(tmp_path, sys__fs__cgroup__cpu__cpu_cfs="")
    for name, number in (("quota", "50000"), ("period", "100000")):
        (tmp_path / f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us").write_text(number)
    assert findings(tmp_path)["quota"].found == "0.5 cores"
    (tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").write_text("-1")
    assert findings(tmp_path)["quota"].found == "none"


def test_stolen_time_is_that_of_the_measurement(tmp_path: Path) -> None:
    root = system(tmp_path, proc__stat="cpu 100 0 100 700 0 0 0 10 0 0\ncpu0 1 2 3")
    before = stolen_ticks(root)
    system(tmp_path, proc__stat="cpu 150 0 150 790 0 0 0 20 0 0")
    assert stolen_share(before, stolen_ticks(root)) == pytest.approx(10 / 200)
    assert stolen_ticks(tmp_path / "nothing") is None and stolen_share(None, before) is None


def test_a_rate_is_held_by_the_first_setting_that_is_punctual() -> None:
    plain = Measured("as it is", None, {**NUMBERS, "p99": 9000.0}, 500, 10_000, 0.2)
    both = Measured("SCHED_FIFO and spin", "Realtime()", NUMBERS, 3, 10_000, 0.4)
    found = Examination(1000.0, (plain, both), ())
    assert found.verdict == "This machine holds 1000 frames a second with AsyncRunner(realtime=Realtime())."
    assert Examination(1000.0, (replace(plain, lateness_us=NUMBERS, missed=10), both), ()).verdict.endswith("as it is.")
    refused = Examination(1000.0, (plain, Measured("SCHED_FIFO", "Realtime()")), (Finding("priority", "refused", "x"),))
    assert refused.verdict == (
        "This machine does not hold 1000 frames a second; best is as it is, 500 of 10000 frames missed: see the "
        "remedies below."
    )
    assert "not permitted" in str(refused) and "            -> x" in str(refused)
    slow = Measured("as it is", None, {**NUMBERS, "max": 119_742.0}, 796, 360_000, 0.1)
    assert "119742    796 / 360000 " in str(Examination(1000.0, (slow,), ()))  # the columns stay apart


def test_it_measures_what_is_permitted(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    asked = []

    def measure(name: str, written: Any, realtime: Any, hz: float, seconds: float) -> Measured:
        asked.append((realtime, hz, seconds))
        return Measured(name, written, NUMBERS, 0, 100, 0.25)

    monkeypatch.setattr(doctor, "_measure", measure)
    monkeypatch.setattr(doctor, "may_schedule", lambda priority: False)
    assert main(["doctor", "--hz", "500", "--seconds", "2", "--json", str(tmp_path / "found.json")]) == 0
    printed = capsys.readouterr().out
    assert "This machine holds 500 frames a second as it is." in printed and printed.count("not permitted") == 2
    assert [(realtime and realtime.priority, *rest) for realtime, *rest in asked] == [(None, 500.0, 2.0)] * 2
    facts = json.loads((tmp_path / "found.json").read_text())
    assert [each["setting"] for each in facts["measured"]] == ["as it is", "spin", "SCHED_FIFO", "SCHED_FIFO and spin"]
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hz"] == 1000.0


class Holding(Stamping):
    """It is held where it was read, and so is sent that alone."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[float] = []

    def hold_action(self, observation: Any) -> Any:
        return np.array([0.5], np.float32)

    def send(self, action: Any) -> None:
        self.heard.append(float(action[0]))


def test_it_measures_the_ages_of_a_machines_sensors_at_rest(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(doctor, "_measure", lambda name, written, *rest: Measured(name, written, NUMBERS, 0, 100, 0.25))
    words = ["doctor", "--hz", "50", "--seconds", "0.3", "--machine", "tests.worlds.stamping_machine:Stamping"]
    assert main(words) == 0
    assert "sensor       camera: p50 60.00, p95 80.00 ms old, 25 a second\n" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sensors"]["joints"]["rate"] == pytest.approx(50)
    machine = Holding()
    sense_machine(lambda: machine, 50, 0.1)
    assert machine.heard == [0.5] * 5


@pytest.mark.parametrize(
    ("lacks", "sentence"),
    [("timed_sensors", "timed_sensors, whose readings it stamps"), ("noop_action", "noop_action or hold_action")],
)
def test_a_machine_without_stamps_or_a_safe_action_is_one_sentence(lacks: str, sentence: str) -> None:
    machine = Stamping()
    parts = ("reset", "send", "observe", "close", "observation_space", "action_space", "timed_sensors", "noop_action")
    one = SimpleNamespace(**{name: getattr(machine, name) for name in parts if name != lacks})
    with pytest.raises(ValueError, match=f"^make_machine must make a Machine with {sentence}"):
        sense_machine(lambda: one, 50, 0.1)


def test_a_machine_that_is_refused_costs_no_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(doctor, "_measure", lambda name, *rest: measured.append(name))
    with pytest.raises(ValueError, match=r"^make_machine must make a Machine with timed_sensors"):
        examine(50, 0.3, make_machine=Turning)
    assert not measured


def test_it_measures_with_the_loop_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "may_schedule", lambda priority: False)
    monkeypatch.setattr(realtime_module, "may_schedule", lambda priority: False)
    found = examine(200, 0.2)
    assert [each.frames for each in found.measured] == [40, 40, 0, 0]
    plain = found.measured[0]
    assert plain.lateness_us is not None and 0 < plain.lateness_us["p50"] <= plain.lateness_us["max"]


@pytest.mark.parametrize("words", [["--hz", "0"], ["--hz", "nan"], ["--seconds", "-1"], ["--seconds", "inf"]])
def test_what_is_no_number_is_a_usage_error(words: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *words])
    assert ended.value.code == 2
    assert f"doctor: {words[0][2:]} must be" in capsys.readouterr().err


def test_the_core_to_isolate_is_one_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4, 6})
    remedy = findings(tmp_path)["isolated"].remedy or ""
    assert "isolcpus=6 " in remedy and "Realtime(core=6)" in remedy


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "--seconds", "9", "--json"],
        ["probe", "CartPole-v1", "--json"],
        ["plan", "--latency-ms", "120", "--json"],
        ["plan", "--latency-ms", "120", "--picture"],
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "/nowhere/x"])
    assert f"{words[-1]} must be a file in a directory that exists, got '/nowhere/x'" in capsys.readouterr().err
