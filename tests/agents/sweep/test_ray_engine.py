"""Sweeps on a local Ray: the pool's numbers and files, ASHA and random search, interruption.

Ray is an extra, which the development tools do not bring: `pip install -e '.[dev,ray]' -c constraints.txt`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from async_wrappers.agents.config.config import ConfigError
from async_wrappers.agents.experiment.metrics import add_iteration
from async_wrappers.agents.sweep.grid import make_points
from async_wrappers.agents.sweep.results import read_rows
from async_wrappers.agents.sweep.sweeping import sweep
from async_wrappers.agents.sweep.trial import TrialsCutOff, trial_status
from async_wrappers.ray_cluster import NoCluster, python_path
from tests.worlds.command_line import SWEEP, call, place
from tests.worlds.forks import fork_trials
from tests.worlds.sweeps import GRID, facts, play, play_but_fail_at_8, play_slowly

__all__ = ["call", "fork_trials", "place"]

ROOT = Path(__file__).parents[3]

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
ray_engine = pytest.importorskip("async_wrappers.agents.sweep.ray_engine")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One Ray for all tests, that of RAY_ADDRESS if it is set: each sweep uses the one that it is connected to."""
    address = os.environ.get("RAY_ADDRESS", "local")
    own = {"num_cpus": 2, "include_dashboard": False} if address == "local" else {}
    env = {"env_vars": {"PYTHONPATH": python_path()}}
    ray.init(address, log_to_driver=False, logging_level="ERROR", runtime_env=env, **own)
    yield
    ray.shutdown()


def learn(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
    """Be as good as the point says, over nine iterations, and take one's time after each."""
    for iteration in range(9):
        add_iteration(directory, skill=float(point["skill"] * (iteration + 1)))
        time.sleep(1.0)
    return {"score": float(point["skill"])}


def play_but_end_the_actor_once(point: dict[str, Any], seed: int, directory: Path) -> dict[str, float]:
    """Kill the process of Ray's that has started this one."""
    if not (directory / "killed").exists():
        (directory / "killed").touch()
        if point["delay"] == 1:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
    return {"score": 1.0}


def test_an_address_where_no_cluster_is_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=r"address 127\.0\.0\.1:1: no Ray cluster answers there"):
        sweep(play, {"delay": [1]}, 1, tmp_path, engine="ray", address="127.0.0.1:1")


LISTEN = """
import psutil, ray
from async_wrappers.ray_cluster import connected_to_ray
with connected_to_ray(None, 1):
    ray.get(ray.remote(lambda: 1).remote())
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for each in process.net_connections("inet"):
            if each.status == "LISTEN":
                print("listens on", each.laddr.ip)
"""


def test_nobody_outside_this_machine_reaches_a_ray_of_ones_own() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LISTEN], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    addresses = {line.split()[-1] for line in done.stdout.splitlines() if line.startswith("listens on")}
    assert addresses and addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


class TestWithoutACluster:
    """What a sweep makes of Ray's errors, with a Ray that is imported and not started."""

    def test_a_trial_that_cannot_begin_is_recorded_by_its_own_actor(self, tmp_path: Path) -> None:
        actor = object.__new__(ray_engine._TrialActor)
        actor.setup({"directory": str(tmp_path)}, {tmp_path: b""}, (5, "."), None)
        assert actor.step()[ray_engine.ENDED] and trial_status(tmp_path) == "failed"

    @pytest.mark.parametrize(
        ("file", "status"), [(None, "cut off"), ("failure.json", "failed"), ("result.json", "finished")]
    )
    def test_an_error_of_rays_marks_no_trial(self, tmp_path: Path, file: str | None, status: str) -> None:
        directory = tmp_path / "0000"
        directory.mkdir()
        if file is not None:
            (directory / file).touch()
        told: list[str] = []
        callback = ray_engine.TrialCallback({directory}, lambda directory, to: told.append(to))
        callback.on_trial_error(0, [], SimpleNamespace(config={"directory": str(directory)}))
        assert told == [status] and [path.name for path in directory.iterdir()] == [file] * (file is not None)

    def test_an_error_of_rays_ends_the_sweep_with_its_last_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended = SimpleNamespace(errors=[RuntimeError("Traceback\n  ...\nThe actor died: its node is gone.\n")])
        monkeypatch.setattr(ray_engine, "connected_to_ray", lambda *where: nullcontext())
        monkeypatch.setattr(ray_engine, "room_for", lambda wants: 1)
        monkeypatch.setattr(ray_engine.tune, "Tuner", lambda *what, **how: SimpleNamespace(fit=lambda: ended))
        with pytest.raises(TrialsCutOff, match=r"ended a trial \(The actor died: its node is gone\): the same"):
            sweep(play, {"delay": [1]}, 1, tmp_path, jobs=1, engine="ray")
        assert trial_status(tmp_path / "trials" / "0000") == "waiting"

    def test_a_cluster_without_a_core_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray_engine, "connected_to_ray", lambda *where: nullcontext())
        monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"memory": 1e9}}])
        with pytest.raises(NoCluster, match=r"^the cluster's nodes have no core for a trial: .*--num-cpus"):
            sweep(play, {"delay": [1]}, 1, tmp_path, jobs=1, engine="ray")


@pytest.mark.usefixtures("cluster")
class TestOnRay:
    def test_an_address_is_refused_where_ray_is_connected_already(self, tmp_path: Path) -> None:
        with pytest.raises(NoCluster, match="connected to Ray already: leave the address out"):
            sweep(play, {"delay": [1]}, 1, tmp_path, engine="ray", address="127.0.0.1:1")

    def test_a_trial_that_ray_cannot_begin_says_why(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "async_wrappers.agents.sweep.ray_engine.python_path", lambda: 5
        )  # which no process can be given
        sweep(play, {"delay": [1]}, 1, tmp_path, jobs=1, engine="ray")
        failure = json.loads((tmp_path / "trials" / "0000" / "failure.json").read_text())
        assert failure["error"].startswith("TypeError")

    def test_a_trial_whose_actor_dies_has_not_failed_and_the_same_call_runs_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(TrialsCutOff, match=r"^Ray has ended a trial \(.*\): the same call runs what is left$"):
            sweep(play_but_end_the_actor_once, {"delay": [1, 8]}, 1, tmp_path, jobs=1, engine="ray")
        assert "trial 0000 was cut off" in capsys.readouterr().out
        assert not list(tmp_path.glob("trials/*/failure.json"))
        sweep(play_but_end_the_actor_once, {"delay": [1, 8]}, 1, tmp_path, jobs=1, engine="ray")
        assert {row["delay"] for row in read_rows(tmp_path)} == {1, 8}

    @pytest.mark.usefixtures("fork_trials")  # those of the pool
    def test_a_sweep_has_the_numbers_and_the_files_of_the_pool(self, tmp_path: Path) -> None:
        sweep(play, GRID, 1, tmp_path / "ray", jobs=2, engine="ray")
        sweep(play, GRID, 1, tmp_path / "pool", jobs=2)
        assert facts(tmp_path / "ray") == facts(tmp_path / "pool")
        assert (tmp_path / "ray" / "results.csv").is_file()
        start = json.loads((tmp_path / "ray" / "manifest.json").read_text())["starts"][0]
        assert (start["engine"], start["packages"]["ray"]) == ("ray", ray.__version__)

        # What has finished is not run again, by neither engine.
        sweep(play, GRID, 1, tmp_path / "ray", jobs=2, engine="ray")
        sweep(play, GRID, 1, tmp_path / "ray", jobs=2)
        starts = [path.read_text() for path in (tmp_path / "ray" / "trials").glob("*/starts")]
        assert starts == ["x"] * 4

    @pytest.mark.usefixtures("fork_trials")  # those of the pool
    def test_a_gin_trial_has_the_numbers_of_the_pool(self, call: Any, place: Path) -> None:
        (place / "short.gin").write_text(SWEEP)
        words = ("sweep", "--gin_files", "short.gin", "--jobs", "2", "--base_dir")
        done = call(*words, "ray", "--engine", "ray")
        assert done.code == 0, done.out + done.err
        assert call(*words, "pool").code == 0
        assert facts(place / "ray") == facts(place / "pool")

    def test_a_trial_that_fails_is_recorded_and_tried_again_when_asked(self, tmp_path: Path) -> None:
        sweep(play_but_fail_at_8, {"delay": [8, 1]}, 1, tmp_path, jobs=2, engine="ray")
        directory = tmp_path / "trials" / "0000"
        failure = json.loads((directory / "failure.json").read_text())
        assert (failure["error"], failure["log"][0]) == ("ZeroDivisionError: the game broke", "on my way")
        assert {row["delay"] for row in read_rows(tmp_path)} == {1}
        (directory / "mended").touch()
        sweep(play_but_fail_at_8, {"delay": [8, 1]}, 1, tmp_path, jobs=2, engine="ray", retry_failed=True)
        assert {row["delay"] for row in read_rows(tmp_path)} == {1, 8}

    def test_asha_ends_the_worse_trials_and_keeps_what_they_measured(self, tmp_path: Path) -> None:
        settings = {"scheduler": "asha", "scheduler_metric": "skill", "reduction_factor": 2, "engine": "ray"}
        grid = {"skill": [9, 8, 1, 2]}
        sweep(learn, grid, 1, tmp_path, jobs=1, **settings)  # one by one, so that those that come first are known
        rows = read_rows(tmp_path)
        assert {row["skill"] for row in rows if row["metric"] == "score"} == {9}
        results = {
            row["skill"]: json.loads((tmp_path / "trials" / row["trial"] / "result.json").read_text()) for row in rows
        }
        assert "stopped_after" not in results[9]
        for skill in (8, 1, 2):
            assert 0 <= results[skill]["stopped_after"] < 8
            assert results[skill]["metrics"]["skill"][0] == skill

    def test_a_metric_that_is_not_reported_is_the_failure_of_the_trial(self, tmp_path: Path) -> None:
        sweep(learn, {"skill": [1]}, 1, tmp_path, jobs=1, engine="ray", scheduler="asha", scheduler_metric="luck")
        failure = json.loads((tmp_path / "trials" / "0000" / "failure.json").read_text())
        assert "Sweep.scheduler_metric must be one of iteration, skill, got 'luck'" in failure["error"]


class TestRandomSearch:
    def test_points_are_drawn_within_their_distributions_and_are_the_same_again(self) -> None:
        from functools import partial

        from async_wrappers.agents.sweep.grid import draw_bindings

        axes = [
            "create_optimizer.learning_rate = loguniform(1e-5, 1e-2)",
            "DQNAgent.update_period = randint(1, 5), 40",
            "RealtimeDelay.delay, RealtimeDelay.noops = (1, 0), (8, 8)",
        ]
        arms = {"DQN": ["create_agent.agent_name = 'dqn'"], "C51": ["create_agent.agent_name = 'c51'"]}
        points = make_points(axes, arms, draw=partial(draw_bindings, num_samples=40))
        assert points == make_points(axes, arms, draw=partial(draw_bindings, num_samples=40))
        assert [point.arm for point in points] == ["DQN", "C51"] * 40  # each draw in each arm
        rates = {float(point.bindings["create_optimizer.learning_rate"]) for point in points}
        assert len(rates) == 40
        assert all(1e-5 <= rate <= 1e-2 for rate in rates)
        assert {int(point.bindings["DQNAgent.update_period"]) for point in points} == {1, 2, 3, 4, 40}
        pairs = {(point.bindings["RealtimeDelay.delay"], point.bindings["RealtimeDelay.noops"]) for point in points}
        assert pairs == {("1", "0"), ("8", "8")}

    def test_what_is_no_distribution_is_refused(self) -> None:
        from async_wrappers.agents.sweep.grid import draw_bindings, parse_axis

        for text in ("uniform(1)", "loguniform(0.1, 0.01)", "lograndint(5, 2)"):
            with pytest.raises(ConfigError, match=re.escape(f"{text} is no distribution of Ray Tune")):
                list(draw_bindings([parse_axis(f"DQNAgent.gamma = {text}")], 1))

    @pytest.mark.usefixtures("cluster")
    def test_a_sweep_in_python_draws_from_lists_and_distributions(self, tmp_path: Path) -> None:
        from ray import tune

        space = {"delay": tune.randint(1, 100), "agent": ["dqn", "random"]}
        sweep(play, space, 1, tmp_path, jobs=2, engine="ray", search="random", num_samples=3)
        rows = [row for row in read_rows(tmp_path) if row["metric"] == "score"]
        assert len(rows) == 3
        assert all(1 <= row["delay"] < 100 and row["agent"] in ("dqn", "random") for row in rows)

    @pytest.mark.parametrize("space", [[{"delay": 1}], {"delay": []}, {}, {"delay": 8}])
    def test_nothing_to_draw_from_is_refused(self, tmp_path: Path, space: Any) -> None:
        with pytest.raises(ConfigError, match="grid"):
            sweep(play, space, 1, tmp_path / "s", engine="ray", search="random")
        assert not (tmp_path / "s").exists()


SCRIPT = """
import sys
from pathlib import Path
from async_wrappers.agents.sweep.sweeping import sweep
from tests.worlds.sweeps import play_slowly

if __name__ == "__main__":
    sweep(play_slowly, {"delay": list(range(6))}, 1, Path(sys.argv[1]), jobs=2, engine="ray")
"""


@pytest.mark.slow  # three starts of Ray
def test_a_sweep_on_ray_that_was_interrupted_and_killed_ends_as_one_of_the_pool(tmp_path: Path) -> None:
    for wanted, number in ((1, signal.SIGINT), (4, signal.SIGKILL), (7, None)):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / "ray")], cwd=ROOT)
        deadline = time.monotonic() + 200
        while len(list(tmp_path.glob("ray/trials/*/made"))) < wanted and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if number is not None:
            process.send_signal(number)
        process.wait(200)
    assert process.returncode == 0
    sweep(play_slowly, {"delay": list(range(6))}, 1, tmp_path / "pool", jobs=2)
    assert facts(tmp_path / "ray") == facts(tmp_path / "pool")
    assert {row["value"] for row in facts(tmp_path / "ray") if row["metric"] == "steps"} == {10.0}
    assert len(json.loads((tmp_path / "ray" / "manifest.json").read_text())["starts"]) == 3
