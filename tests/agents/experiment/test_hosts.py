"""Runs on hosts: one host is the vector runner's run, engines give the same, and a dead host is replaced."""

from __future__ import annotations

import csv
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.play.hosts import rounds as host_rounds
from async_wrappers.agents.play.hosts.block import PlayedBlock
from async_wrappers.agents.play.hosts.engine import HostsFailed, Lost
from async_wrappers.agents.play.hosts.host import Plan
from async_wrappers.agents.play.hosts.hosts import OnHosts
from async_wrappers.agents.play.hosts.local import LocalHosts
from async_wrappers.agents.play.hosts.processes import ProcessHosts
from async_wrappers.agents.play.play import DifferentExperiment
from async_wrappers.batched import hosted
from tests.worlds.host_runs import AGENTS, make, state
from tests.worlds.plain_data import assert_identical


def journal(runner: Any) -> list[dict[str, Any]]:
    """The lines of a run's blocks, none of which was learnt twice."""
    path = runner.base_dir / "metrics" / host_rounds.JOURNAL
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    keys = Counter((line["host"], line["incarnation"], line["number"]) for line in lines)
    assert max(keys.values()) == 1
    return lines


@pytest.mark.parametrize("agent", AGENTS)
def test_one_host_with_blocks_of_a_decision_is_the_vector_run(tmp_path: Path, agent: str) -> None:
    one = make(tmp_path / "hosts", agent, "Hosts.num_hosts = 1", "Hosts.block_length = 1")
    one.run_experiment()
    vector = make(tmp_path / "vector", agent, schedule="vector")
    vector.run_experiment()
    assert vector.agent.updates > 3
    assert_identical(state(one), state(vector))


# What may differ between processes is how a block travels: with a core's state, and under a delay with several calls in
# a step. The other agents take seconds for the same.
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize(
    "agent", [pytest.param(agent, marks=[pytest.mark.slow] * (agent not in ("dqn", "vtrace"))) for agent in AGENTS]
)
def test_a_run_is_the_same_in_processes(tmp_path: Path, agent: str) -> None:
    local = make(tmp_path / "local", agent, "Hosts.block_length = 4")
    local.run_experiment()
    processes = make(tmp_path / "processes", agent, "Hosts.block_length = 4", "Hosts.engine = 'processes'")
    processes.run_experiment()
    assert local.agent.updates > 3
    assert {line["host"] for line in journal(processes)} == {0, 1}
    assert_identical(state(processes), state(local))


class TestResume:
    EXACT = ("Runner.exact_resume = True", "Hosts.block_length = 4")

    @pytest.mark.parametrize("agent", ["dqn", "vtrace"])
    def test_a_run_that_was_stopped_ends_as_one_that_was_not(self, tmp_path: Path, agent: str) -> None:
        whole = make(tmp_path / "whole", agent, *self.EXACT, "Runner.num_iterations = 3")
        whole.run_experiment()
        make(tmp_path / "parts", agent, *self.EXACT, "Runner.num_iterations = 1").run_experiment()
        parts = make(tmp_path / "parts", agent, *self.EXACT, "Runner.num_iterations = 3")
        parts.run_experiment()
        assert parts.counts.cut_frames > 0
        assert_identical(state(parts), state(whole))
        assert {line["incarnation"] for line in journal(parts)} == {0, 1}

    def test_a_run_goes_on_with_another_number_of_hosts_and_says_so(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(tmp_path, "dqn", *self.EXACT, "Runner.num_iterations = 1").run_experiment()
        more = make(tmp_path, "dqn", *self.EXACT, "Hosts.num_hosts = 4")
        more.run_experiment()
        assert "the run goes on with 4 hosts, and had 2 before" in caplog.text
        assert more.counts.frames >= 300
        assert {line["host"] for line in journal(more)} == {0, 1, 2, 3}

    def test_a_run_of_the_vector_runner_goes_on_hosts(self, tmp_path: Path) -> None:
        make(tmp_path, "dqn", "Runner.num_iterations = 1", schedule="vector").run_experiment()
        hosts = make(tmp_path, "dqn")
        hosts.run_experiment()
        assert hosts.counts.frames >= 300

    def test_another_number_of_environments_is_another_experiment(self, tmp_path: Path) -> None:
        make(tmp_path, "dqn", "Runner.num_iterations = 1").run_experiment()
        with pytest.raises(DifferentExperiment, match="environments: 4 there, 8 here"):
            make(tmp_path, "dqn", "VectorRunner.num_envs = 8").run_experiment()


def test_a_damaged_line_of_the_journal_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "blocks.jsonl"
    path.parent.mkdir()
    whole = [json.dumps({"host": host, "incarnation": 3}).encode() for host in (0, 1)]
    path.write_bytes(b"\n".join([whole[0], b'{"host": 7', b"\xff\x00", b"[]", whole[1], b'{"host": 2, "incarn']))
    with pytest.warns(RuntimeWarning, match=r"3 lines of .*blocks.jsonl are damaged and left out"):
        opened = host_rounds.Journal(tmp_path)
    opened.close()
    assert opened.incarnations == {0: 4, 1: 4}
    assert path.read_bytes().endswith(whole[1] + b"\n")  # the line that was being written is gone


def test_a_journal_that_does_not_fit_onto_the_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "blocks.jsonl"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    journal = host_rounds.Journal(tmp_path)
    block: Any = SimpleNamespace(host=0, incarnation=0, number=0, version=0, decisions=4)
    journal.note(block, 0, True)
    for write in (journal.flush, journal.close):
        with pytest.raises(OSError, match="No space left on device") as caught:
            write()
        assert caught.value.filename == str(path)


class TestFree:
    FREE = ("Hosts.mode = 'free'", "Hosts.block_length = 4")

    @pytest.mark.parametrize("agent", ["dqn", "vtrace"])
    def test_hosts_play_two_blocks_ahead(self, tmp_path: Path, agent: str) -> None:
        run = make(tmp_path, agent, *self.FREE)
        run.run_experiment()
        lines = journal(run)
        assert run.agent.updates > 5
        assert all(line["learnt"] for line in lines)
        assert (
            run.counts.frames >= sum(line["decisions"] for line in lines) - 2 * 4
        )  # under a delay a few are not applied

    def test_blocks_that_are_too_old_are_dropped_and_counted(self, tmp_path: Path) -> None:
        run = make(tmp_path, "dqn", *self.FREE, "Hosts.max_version_lag = 3", "Runner.training_steps = 400")
        run.run_experiment()
        lines = journal(run)
        dropped = [line for line in lines if not line["learnt"] and line["decisions"]]
        assert 0 < len(dropped) < len(lines) / 2
        assert run.play.worlds.dropped == len(dropped)
        assert all(line["updates"] - line["version"] <= 3 + 6 for line in lines if line["learnt"])
        # Each frame is of one episode: one that ended, one that was cut, or one that runs.
        iterations = read_iterations(tmp_path)
        ended = sum(sum(each["train_episode_lengths"]) for each in iterations)
        assert ended + run.counts.cut_frames + sum(run.agent.rows.state_dict()["cut"]) == run.counts.frames
        frames = [int(row["frames"]) for row in csv.DictReader((tmp_path / "episodes.csv").open())]
        assert min(frames) > 0 and max(frames) <= run.counts.frames

    def test_a_limit_that_no_block_keeps_ends_the_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(host_rounds, "_DROPPED", 2)
        run = make(tmp_path, "dqn", *self.FREE, "Hosts.max_version_lag = 0", "Runner.training_steps = 4_000")
        with pytest.raises(HostsFailed, match="max_version_lag must be larger than 0 updates: 2 blocks of host"):
            run.run_experiment()


class Dying(LocalHosts):
    """Host 1 dies when it is to play a block with decisions, a number of times."""

    deaths = 1

    def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
        played = super().collect(timeout)
        for each in played:
            if isinstance(each, PlayedBlock) and each.host == 1 and each.number == 2 and self.deaths:
                self.deaths -= 1
                self.kill(1, "was ended by the test")
                return self.collect(timeout)
        return played


@pytest.mark.parametrize(
    ("agent", "mode"), [("dqn", "rounds"), ("vtrace", "free"), ("r2d2", "rounds"), ("ppo", "rounds")]
)
def test_a_host_that_dies_is_replaced_and_its_games_are_cut(
    tmp_path: Path, agent: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnHosts, "make_engine", lambda self, plan: Dying(plan))
    run = make(tmp_path, agent, "Hosts.block_length = 4", f"Hosts.mode = {mode!r}")
    run.run_experiment()
    assert run.play.worlds.replaced == 1
    assert run.agent.updates > 3
    assert run.counts.cut_frames > 0
    assert {line["incarnation"] for line in journal(run) if line["host"] == 1} == {0, 1}


def test_a_host_that_dies_again_and_again_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class AlwaysDying(Dying):
        deaths = 100

        def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
            if any(host == 1 for host, *_ in self._orders):
                self.kill(1, "was ended by the test")
            return super().collect(timeout)

    monkeypatch.setattr(OnHosts, "make_engine", lambda self, plan: AlwaysDying(plan))
    with pytest.raises(HostsFailed, match="host 1 was ended by the test, 3 times without a block between"):
        make(tmp_path, "dqn").run_experiment()


@pytest.mark.usefixtures("fork_server")
def test_a_host_that_does_not_answer_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LocalHosts):
        silent = True

        def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
            if self.silent and self._orders and self._orders[0][0] == 1:
                self.silent = False
                self._orders.popleft()
                return []
            return super().collect(timeout)

    monkeypatch.setattr(OnHosts, "make_engine", lambda self, plan: Silent(plan))
    run = make(tmp_path, "dqn", "Hosts.host_timeout = 0.5", "Hosts.engine = 'processes'")
    run.run_experiment()
    assert run.play.worlds.replaced == 1


@pytest.mark.parametrize(
    "bindings",
    [("Hosts.mode = 'free'",), ("Hosts.inference = 'learner'", "VectorRunner.double_buffered = True")],
)
def test_a_host_in_this_process_is_not_late_after_a_long_evaluation(
    tmp_path: Path, bindings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(host_rounds, "time", clock)
    monkeypatch.setattr(hosted, "time", clock)
    run = make(tmp_path, "dqn", *bindings)
    train = run.play.train

    def train_later(length: Any, carried: Any) -> Any:
        now[0] += 1_000.0
        return train(length, carried)

    run.play.train = train_later
    run.run_experiment()
    assert now[0] > run.play.worlds.settings.host_timeout and run.play.worlds.replaced == 0


@pytest.mark.usefixtures("fork_server")
def test_a_killed_process_is_back_and_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    lost: list[Lost] = []

    class Killed(ProcessHosts):
        def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
            found = super().collect(timeout)
            lost.extend(each for each in found if isinstance(each, Lost))
            for each in found:
                if isinstance(each, PlayedBlock) and each.key == (1, 0, 2):
                    os.kill(self.pids[1], signal.SIGKILL)
            pids.extend(self.pids.values())
            return found

    def make_engine(self: Any, plan: Plan) -> ProcessHosts:
        return Killed(plan)

    monkeypatch.setattr(OnHosts, "make_engine", make_engine)
    run = make(tmp_path, "vtrace", "Hosts.block_length = 4", "Runner.num_iterations = 1")
    run.run_experiment()
    assert len(lost) == run.play.worlds.replaced == 1
    assert "was ended by SIGKILL" in lost[0].why
    lines = journal(run)
    assert {line["incarnation"] for line in lines if line["host"] == 1} == {0, 1}
    assert not [pid for pid in set(pids) if os.path.exists(f"/proc/{pid}")]


@pytest.mark.parametrize(
    ("agent", "binding", "sentence"),
    [
        ("dqn", "Runner.overlap = True", "Runner.overlap must be False where create_runner.schedule = 'hosts'"),
        ("dqn", "VectorRunner.act_devices = ('cpu',)", "VectorRunner.act_devices must be None where"),
        ("dqn", "Hosts.num_hosts = 3", "VectorRunner.num_envs must be a multiple of the 3 hosts, got 4"),
        ("dqn", "Hosts.max_version_lag = 3", "Hosts.max_version_lag must be None where Hosts.mode = 'rounds', got 3"),
        ("dqn", "Hosts.address = '10.0.0.1:6379'", "Hosts.address must be None where Hosts.engine = 'local'"),
        ("dqn", "Hosts.engine = 'threads'", "Hosts.engine must be"),
        ("ppo", "Hosts.mode = 'free'", "Hosts.mode must be 'rounds' with agent 'ppo'"),
        ("ppo", "Hosts.block_length = 5", "Hosts.block_length must divide the 8 decisions of each environment"),
    ],
)
def test_what_hosts_cannot_do_is_refused(tmp_path: Path, agent: str, binding: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, agent, binding)


def test_a_resume_that_is_exact_needs_rounds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Runner.exact_resume must be False where Hosts.mode = 'free'"):
        make(tmp_path, "dqn", "Hosts.mode = 'free'", "Runner.exact_resume = True")
