"""The GPU's benchmark, with the CPU in the GPU's place."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from async_wrappers.analysis.scaling import read_networks
from benchmarks.gpu import __main__ as script
from benchmarks.gpu import graphs, plain, right, speed
from benchmarks.gpu.cases import CASES, Case, pair, plain_descent
from benchmarks.gpu.latency import network_times

ROOT = Path(__file__).parents[2]
SMALL = ("R2D2", "PPO", "SAC")  # which play vectors
TINY = speed.Size(rounds=1, updates=1, steps=2, unrolls=1, units=(8,))


@pytest.mark.parametrize("name", SMALL)
def test_the_same_device_gives_the_same_gradient(name: str) -> None:
    rows = [*right.gradients(name, CASES[name], "cpu")]
    assert [each["right"] for each in rows] == [True, True]
    assert all(each["figure"].startswith("0.0e+00") for each in rows)


@pytest.mark.parametrize("name", SMALL)
def test_another_gradient_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_an_error(case: Case, one: Any, other: Any) -> tuple[Any, Any]:
        here, there = pair(case, one, other)
        with torch.no_grad():
            for weight in there.network.parameters():
                weight.mul_(1.2)
        return here, there

    monkeypatch.setattr(right, "pair", with_an_error)
    assert [each["right"] for each in right.gradients(name, CASES[name], "cpu")] == [False, False]


def test_two_changes_are_as_far_apart_as_their_difference_is_long() -> None:
    here, there = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])
    assert right.distance(there, here) == pytest.approx(0.1)


def test_a_pair_observes_the_same_and_draws_the_same_batches() -> None:
    case = CASES["R2D2"]
    here, there = pair(case, case.spec("cpu"), case.spec("cpu", optimizer=plain_descent))
    one, other = here.draw(), there.draw()
    assert one.arrays.keys() == other.arrays.keys()
    assert (one.arrays["reward"] == other.arrays["reward"]).all()


@pytest.mark.parametrize("check", [right.late_losses, right.states, right.devices_that_act, right.bfloat16])
def test_checks_hold_where_the_device_is_the_cpu(check: Any) -> None:
    rows = [*check("cpu")]
    assert rows and all(each["right"] for each in rows)


def test_a_check_that_fails_is_a_row_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such kernel")

    checks = (
        "gradients",
        "late_losses",
        "bfloat16",
        "states",
        "live_workers",
        "policy_server",
        "served",
        "checkpoints",
    )
    for name in checks:
        monkeypatch.setattr(right, name, broken)
    rows = right.check_all("cpu", lambda: 100.0, True)
    assert [each["figure"] for each in rows if not each["right"]] == [
        "RuntimeError: no such kernel" for _ in range(len(CASES) + len(checks) - 1)
    ]
    assert [each["what"] for each in rows if each["right"]] == ["act_devices=('cpu',): the learner's actions"]


def test_what_no_time_was_left_for_is_not_right() -> None:
    rows = right.check_all("cpu", lambda: 0.0, True)
    assert rows and not any(each["right"] for each in rows)


@pytest.mark.parametrize(
    "make",
    [
        partial(speed.ppo_updates, 8),
        partial(speed.sac_updates, 8),
        partial(speed.ppo_steps, 8),
        partial(speed.sac_steps, 8),
    ],
)
def test_contestants_do_their_work(make: Any) -> None:
    contestants = make("cpu", TINY)
    assert list(contestants) == [speed.OURS, speed.PLAIN]
    assert all(contestant() > 0 for contestant in contestants.values())


@pytest.mark.parametrize("make", [speed.ppo_updates, speed.sac_updates])
def test_contestants_by_graphs_do_their_work(make: Any) -> None:
    contestants = make(8, "cpu", TINY._replace(graphs=True))
    assert list(contestants) == [speed.OURS, speed.PLAIN, speed.GRAPHS, speed.CAPTURED]
    assert all(contestant() > 0 for contestant in contestants.values())


def test_graphs_are_compared_with_eager_updates() -> None:
    (found,) = graphs.checked("R2D2", CASES["R2D2"], "cpu", lambda: 100.0)
    assert "two eager ones 0.0e+00" in found["figure"]


def test_a_plain_loop_from_a_graph_steps_as_the_eager_one() -> None:
    networks = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2)) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    updates = [plain.dqn(each, "cpu", play) for each, play in zip(networks, (plain.eager, plain.by_graph), strict=True)]
    for number in range(3):
        arrays = {
            "observation": torch.full((4, 3), 1.0 + number).numpy(),
            "action": torch.tensor([0, 1, 1, 0]).numpy(),
            "reward": torch.ones(4).numpy(),
            "discount": torch.full((4,), 0.9).numpy(),
            "next_observation": torch.ones(4, 3).numpy(),
        }
        for update in updates:
            update(arrays)
    assert all(map(torch.equal, networks[0].parameters(), networks[1].parameters()))


def test_a_plain_update_of_c51_projects_as_ours_does() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2 * 51), torch.nn.Unflatten(1, (2, 51)))
    before = [weight.clone() for weight in network.parameters()]
    arrays = {
        "observation": torch.ones(4, 3).numpy(),
        "action": torch.tensor([0, 1, 1, 0]).numpy(),
        "reward": torch.tensor([1.0, -20.0, 20.0, 10.0]).numpy(),  # beyond the support, and on its last atom
        "discount": torch.tensor([0.9, 0.0, 0.9, 0.0]).numpy(),
        "next_observation": torch.ones(4, 3).numpy(),
    }
    plain.rainbow(network, "cpu")(arrays)
    assert all(weight.isfinite().all() for weight in network.parameters())
    assert any((weight != old).any() for weight, old in zip(network.parameters(), before, strict=True))


def test_the_table_of_latencies_is_what_networks_reads(tmp_path: Path) -> None:
    row = network_times("55k", "cpu", False, repeats=2)
    assert row is not None and row["latency_ms"] > 0 and row["update_ms"] > 0
    path = tmp_path / "times.json"
    path.write_text(json.dumps([{key: row[key] for key in ("name", "parameters", "latency_ms", "update_ms")}]))
    (network,) = read_networks(path)
    assert network.parameters == row["parameters"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fast"], "parts must be of right, graphs, latency, speed, got fast"),
        ([], "--device cuda needs a GPU, and torch"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^2$"):
        script.main()
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_of_it_runs_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--brief", "--minutes", "30"]
    command += ["--json", str(tmp_path / "found.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["speed"]) == len([*speed.contests(speed.BRIEF)])
    assert all(row["right"] for row in found["right"])
