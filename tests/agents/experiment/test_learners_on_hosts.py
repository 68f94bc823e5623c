"""Several learners, each with hosts of its own: the same on every engine, resumed alike, and none left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.play.hosts.block import PlayedBlock
from async_wrappers.agents.play.hosts.engine import Lost
from async_wrappers.agents.play.hosts.hosts import OnHosts
from async_wrappers.agents.play.hosts.local import LocalHosts
from async_wrappers.agents.play.many.learners import LearnerFailed, check_sign, sign_directory
from async_wrappers.agents.play.play import DifferentExperiment
from tests.worlds import host_runs
from tests.worlds.host_runs import AGENTS
from tests.worlds.learners_in_threads import learners_in_threads
from tests.worlds.plain_data import assert_identical, differs

__all__ = ["learners_in_threads"]

BLOCKS = "Hosts.block_length = 4"
EXACT = (BLOCKS, "Runner.exact_resume = True")


def make(base_dir: Path, agent: str, *bindings: str, schedule: str = "hosts") -> Any:
    return host_runs.make(base_dir, agent, "VectorRunner.learners = 2", *bindings, schedule=schedule)


def state(run: Any) -> dict[str, Any]:
    """All that a run is, with what the other learner wrote into the last checkpoint."""
    return {**host_runs.state(run), "shares": run.play.others.states}


def journals(run: Any) -> list[list[dict[str, Any]]]:
    """The lines of each learner's blocks, none of which was learnt twice over all."""
    paths = [run.base_dir / "metrics" / name for name in ("blocks.jsonl", "blocks_1.jsonl")]
    lines = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    keys = Counter((line["host"], line["incarnation"], line["number"]) for each in lines for line in each)
    assert max(keys.values()) == 1
    return lines


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_host_of_each_learner_with_blocks_of_a_decision_is_the_vector_run(tmp_path: Path, agent: str) -> None:
    hosts = make(tmp_path / "hosts", agent, "Hosts.num_hosts = 2", "Hosts.block_length = 1")
    hosts.run_experiment()
    vector = make(tmp_path / "vector", agent, schedule="vector")
    vector.run_experiment()
    assert vector.agent.updates > 3
    assert_identical(state(hosts), state(vector))


@pytest.mark.usefixtures("fork_server")
@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(
    "agent", [pytest.param(agent, marks=[pytest.mark.slow] * (agent != "vtrace")) for agent in AGENTS]
)
def test_a_run_is_the_same_in_processes(tmp_path: Path, agent: str) -> None:
    local = make(tmp_path / "local", agent, BLOCKS)
    local.run_experiment()
    processes = make(tmp_path / "processes", agent, BLOCKS, "Hosts.engine = 'processes'")
    processes.run_experiment()
    assert local.agent.updates > 3
    assert [{line["host"] for line in each} for each in journals(processes)] == [{0}, {1}]
    assert_identical(state(processes), state(local))


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(
    "agent", [pytest.param(agent, marks=[pytest.mark.slow] * (agent not in ("dqn", "vtrace"))) for agent in AGENTS]
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, agent: str) -> None:
    several = (*EXACT, "Hosts.num_hosts = 4")  # a learner stops between its hosts, too
    whole = make(tmp_path / "whole", agent, *several, "Runner.num_iterations = 3")
    whole.run_experiment()
    make(tmp_path / "parts", agent, *several, "Runner.num_iterations = 1").run_experiment()
    parts = make(tmp_path / "parts", agent, *several, "Runner.num_iterations = 3")
    parts.run_experiment()
    assert whole.agent.updates > 3 and parts.counts.cut_frames > 0
    assert_identical(state(parts), state(whole))
    assert [{line["host"] for line in each} for each in journals(parts)] == [{0, 1}, {2, 3}]
    assert {line["incarnation"] for each in journals(parts) for line in each} == {0, 1}


@pytest.mark.usefixtures("learners_in_threads")
def test_replays_beside_a_queue_are_shared_out_and_resumed(tmp_path: Path) -> None:
    bindings = (
        *EXACT,
        "VTraceAgent.sources = [('queue', 0.5), ('elite', 0.5)]",
        "VTraceAgent.terms = (@PolicyCloning(), @KLMask())",
        "EliteReplay.capacity = 24",
        "EliteReplay.run_updates = 40",
    )
    whole = make(tmp_path / "whole", "vtrace", *bindings)
    whole.run_experiment()
    make(tmp_path / "parts", "vtrace", *bindings, "Runner.num_iterations = 1").run_experiment()
    parts = make(tmp_path / "parts", "vtrace", *bindings)
    parts.run_experiment()
    assert whole.agent.updates > 3
    assert [source.facts()["capacity"] for source in whole.agent.learner.replay.sources][1] == 12
    assert_identical(state(parts), state(whole))


@pytest.mark.usefixtures("learners_in_threads")
def test_a_run_goes_on_with_another_number_of_hosts_and_not_of_learners(tmp_path: Path) -> None:
    make(tmp_path, "vtrace", BLOCKS, "Hosts.num_hosts = 4", "Runner.num_iterations = 1").run_experiment()
    more = make(tmp_path, "vtrace", BLOCKS, "Hosts.num_hosts = 2")
    more.run_experiment()
    assert more.counts.frames >= 300
    # Host 1 was the first learner's, and is the second one's.
    assert {line["incarnation"] for line in journals(more)[1] if line["host"] == 1} == {1}
    with pytest.raises(DifferentExperiment, match="learners: 2 there, None here"):
        host_runs.make(tmp_path, "vtrace", BLOCKS).resume()


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize("agent", ["dqn", "vtrace"])
@pytest.mark.parametrize("length", [4, 40])  # decisions of a block, of which some take the whole phase
def test_a_run_that_is_asked_to_end_amid_an_iteration_keeps_what_all_learners_did(
    tmp_path: Path, agent: str, length: int
) -> None:
    blocks = f"Hosts.block_length = {length}"
    stopped = make(tmp_path, agent, blocks)

    def due() -> bool:
        stopped.ending.asked = stopped.agent.updates >= 3
        return False

    stopped.saved.is_late = due
    with pytest.raises(KeyboardInterrupt):
        stopped.run_experiment()
    resumed = make(tmp_path, agent, blocks)
    assert resumed.resume() and resumed.agent.updates == stopped.agent.updates >= 3
    assert resumed.counts.frames == stopped.counts.frames > 0
    resumed.run_experiment()
    assert resumed.counts.frames >= 300
    # Each frame is of one episode: one that ended, one that was cut, or one that runs.
    ended = sum(sum(line["train_episode_lengths"]) for line in read_iterations(tmp_path))
    rows = [resumed.agent.rows.state_dict(), *(share["rows"] for share in resumed.play.others.states)]
    assert ended + resumed.counts.cut_frames + sum(sum(each["cut"]) for each in rows) == resumed.counts.frames
    assert all(line["learnt"] for each in journals(resumed) for line in each)


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize("agent", ["dqn", "vtrace"])
def test_hosts_of_several_learners_run_freely(tmp_path: Path, agent: str) -> None:
    run = make(tmp_path, agent, BLOCKS, "Hosts.mode = 'free'", "Hosts.num_hosts = 4")
    run.run_experiment()
    lines = journals(run)
    assert run.agent.updates > 3 and run.counts.frames >= 300
    assert all(line["learnt"] for each in lines for line in each)
    assert [len({line["host"] for line in each}) for each in lines] == [2, 2]


class Dying(LocalHosts):
    """Hosts 1 and 3 die once, where each has played two blocks."""

    def collect(self, timeout: float) -> list[PlayedBlock | Lost]:
        played = super().collect(timeout)
        for each in played:
            if isinstance(each, PlayedBlock) and each.host in (1, 3) and each.key[1:] == (0, 2):
                self.kill(each.host, "was ended by the test")
                return self.collect(timeout)
        return played


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(("agent", "mode"), [("dqn", "rounds"), ("vtrace", "rounds"), ("vtrace", "free")])
def test_a_host_of_any_learner_that_dies_is_replaced(
    tmp_path: Path, agent: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnHosts, "engine_maker", Dying)
    run = make(tmp_path, agent, BLOCKS, f"Hosts.mode = {mode!r}", "Hosts.num_hosts = 4")
    run.run_experiment()
    assert run.play.worlds.replaced == 2 and run.counts.cut_frames > 0 and run.agent.updates > 3
    for number, each in enumerate(journals(run)):
        incarnations = {line["host"]: line["incarnation"] for line in each}
        assert incarnations == {2 * number: 0, 2 * number + 1: 1}


@pytest.mark.parametrize(
    ("agent", "bindings", "sentence"),
    [
        ("dqn", ("Hosts.num_hosts = 1",), "Hosts.num_hosts must be a multiple of the 2 learners, got 1"),
        (
            "dqn",
            ("Hosts.gpus_per_learner = 1.0",),
            "Hosts.gpus_per_learner must be 0 where Hosts.engine = 'local' and VectorRunner.learners = 2, got 1.0",
        ),
        ("ppo", ("PPOAgent.batch_size = 1",), "batch_size must be"),
        ("vtrace", ("VTraceAgent.batch_size = 3",), "batch_size must be a multiple of the 2 learners, got 3"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    tmp_path: Path, agent: str, bindings: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, agent, *bindings)


def test_a_directory_that_is_not_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = sign_directory(tmp_path)
    check_sign(tmp_path, sign)
    monkeypatch.setattr("async_wrappers.agents.play.many.learners._GRACE", 0.1)
    with pytest.raises(LearnerFailed, match=r"does not see the .* of the first learner: .*, so --base_dir must lie on"):
        check_sign(tmp_path, "of another run")


def learners_that_live() -> list[Any]:
    """Processes of learners; those of other tests may take a moment to end."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("learner ")]


@pytest.mark.usefixtures("fork_server")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_learner_that_dies_ends_the_run_which_goes_on_from_its_checkpoint(tmp_path: Path, engine: str) -> None:
    bindings = *EXACT, f"Hosts.engine = {engine!r}", "Runner.num_iterations = 3"
    whole = make(tmp_path / "whole", "vtrace", *bindings)
    whole.run_experiment()
    stopped = make(tmp_path / "parts", "vtrace", *bindings)
    train_once, phases = stopped.play.train, list[Any]()

    def kill_in_the_last_iteration(length: Any, carried: Any) -> Any:
        phases.append(length)
        if len(phases) == 3:
            [child] = learners_that_live()
            os.kill(child.pid, signal.SIGKILL)
        return train_once(length, carried)

    stopped.play.train = kill_in_the_last_iteration
    with pytest.raises(LearnerFailed, match=r"learner 1 of 2 \(process \d+\) was ended by SIGKILL, and the others .*"):
        stopped.run_experiment()
    assert not learners_that_live()
    resumed = make(tmp_path / "parts", "vtrace", *bindings)
    resumed.run_experiment()
    assert_identical(state(resumed), state(whole))
    assert differs(state(stopped)["learner"], state(whole)["learner"])
    assert not learners_that_live()
