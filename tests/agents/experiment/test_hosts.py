"""Runs on hosts that act, on hosts that step, and on those of several learners: each is the vector runner's run."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.play.hosts import host_rounds
from async_wrappers.agents.play.hosts.engine import HostsFailed, Lost
from async_wrappers.agents.play.hosts.host_processes import ProcessHosts
from async_wrappers.agents.play.hosts.hosts import OnHosts
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.agents.play.hosts.played_block import PlayedBlock
from async_wrappers.agents.play.many.learners import LearnerFailed, check_sign, sign_directory
from async_wrappers.agents.play.play import DifferentExperiment, Phase
from async_wrappers.agents.replay.segments import read_index
from async_wrappers.batched import hosted
from async_wrappers.batched.hosted import HostedEnvs
from async_wrappers.batched.local import LocalEnvs
from tests.worlds import host_runs
from tests.worlds.host_runs import AGENTS, make
from tests.worlds.learners_in_threads import learners_in_threads
from tests.worlds.plain_data import assert_identical, differs

__all__ = ["learners_in_threads"]

BLOCKS, HERE, EXACT = "Hosts.block_length = 4", "Hosts.inference = 'learner'", "Runner.exact_resume = True"
TWO, FREE, PROCESSES = "VectorRunner.learners = 2", "Hosts.mode = 'free'", "Hosts.engine = 'processes'"
HALVES, FOUR = "VectorRunner.double_buffered = True", "Hosts.num_hosts = 4"
ONE_ITERATION, THREE = "Runner.num_iterations = 1", "Runner.num_iterations = 3"
DIES = pytest.mark.filterwarnings("ignore:host . (.* )?was ended")


def run(base_dir: Path, agent: str, *bindings: str, **how: Any) -> Any:
    """Run a small experiment to its end."""
    made = make(base_dir, agent, *bindings, **how)
    made.run_experiment()
    return made


def state(runner: Any) -> dict[str, Any]:
    """All that a run is, with what the other learner wrote into the last checkpoint."""
    return {**host_runs.state(runner), "shares": runner.play.others.states}


def journals(runner: Any) -> list[list[dict[str, Any]]]:
    """The lines of each learner's blocks, none of which was learnt twice over all."""
    paths = sorted((runner.base_dir / "metrics").glob("blocks*.jsonl"))  # the first learner's is named blocks alone
    lines = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    keys = Counter((line["host"], line["incarnation"], line["number"]) for each in lines for line in each)
    assert max(keys.values(), default=1) == 1
    return lines


def hosts_of(runner: Any) -> list[set[int]]:
    return [{line["host"] for line in each} for each in journals(runner)]


def assert_frames_add_up(runner: Any) -> None:
    """Each frame is of one episode: one that ended, one that was cut, or one that runs."""
    ended = sum(sum(line["train_episode_lengths"]) for line in read_iterations(runner.base_dir))
    rows = [runner.agent.rows.state_dict(), *(share["rows"] for share in runner.play.others.states)]
    assert ended + runner.counts.cut_frames + sum(sum(each["cut"]) for each in rows) == runner.counts.frames


# The vector runner's run.

ALIKE = {
    "a host with blocks of a decision": ("Hosts.num_hosts = 1", "Hosts.block_length = 1"),
    "hosts that step here": (HERE, FOUR),
    "hosts that step in processes": (HERE, PROCESSES),
}
ALIKE_OF_TWO = {"a host of each learner": (TWO, "Hosts.num_hosts = 2", "Hosts.block_length = 1")}


@pytest.mark.usefixtures("fork_server", "learners_in_threads")
@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_on_hosts_is_the_vector_run(tmp_path: Path, agent: str, learners: int) -> None:
    vector = run(tmp_path / "vector", agent, *[TWO] * (learners == 2), schedule="vector")
    assert vector.agent.updates > 3
    for name, bindings in (ALIKE if learners == 1 else ALIKE_OF_TWO).items():
        assert_identical(state(run(tmp_path / name, agent, *bindings)), state(vector), name)


@pytest.mark.parametrize(
    "bindings",
    [
        ("Runner.overlap = True", "VectorRunner.replay_ratio = 4.0"),
        ("VectorRunner.act_devices = ('cpu', 'cpu')", HALVES),
    ],
)
def test_what_is_of_the_learner_works_as_in_the_vector_run(tmp_path: Path, bindings: tuple[str, ...]) -> None:
    one_host = "Hosts.num_hosts = 1"  # whose halves are those of the vector
    hosts = run(tmp_path / "hosts", "dqn", HERE, one_host, *bindings)
    assert_identical(state(hosts), state(run(tmp_path / "vector", "dqn", *bindings, schedule="vector")))


# What may differ between processes is how a block travels: with a core's state, and under a delay with several calls in
# a step. The other agents take seconds for the same.
SENT = [
    *(("dqn", (BLOCKS,)), ("vtrace", (BLOCKS,)), ("vtrace", (BLOCKS, TWO)), ("vtrace", (HERE, HALVES))),
    *(pytest.param(agent, (BLOCKS, TWO), marks=pytest.mark.slow) for agent in AGENTS if agent != "vtrace"),
]


@pytest.mark.usefixtures("fork_server", "learners_in_threads")
@pytest.mark.parametrize(("agent", "bindings"), SENT)
def test_a_run_is_the_same_in_processes(tmp_path: Path, agent: str, bindings: tuple[str, ...]) -> None:
    local, processes = (run(tmp_path / str(len(more)), agent, *bindings, *more) for more in ((), (PROCESSES,)))
    assert local.agent.updates > 3
    assert_identical(state(processes), state(local))
    assert hosts_of(processes) == ([] if HERE in bindings else [{0}, {1}] if TWO in bindings else [{0, 1}])


# Resumed.

BESIDE_A_QUEUE = (
    "VTraceAgent.sources = [('queue', 0.5), ('elite', 0.5)]",
    "VTraceAgent.terms = (@PolicyCloning(), @KLMask())",
    "EliteReplay.capacity = 24",
    "EliteReplay.run_updates = 40",
)
STOPPED = [
    *(("dqn", (BLOCKS,)), ("vtrace", (BLOCKS,)), ("vtrace", (HERE,)), ("vtrace", (BLOCKS, TWO, *BESIDE_A_QUEUE))),
    ("vtrace", (BLOCKS, TWO, FOUR)),  # a learner stops between its hosts, too
    *(pytest.param(agent, (BLOCKS, TWO, FOUR), marks=pytest.mark.slow) for agent in AGENTS if agent != "vtrace"),
]


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(("agent", "bindings"), STOPPED)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, agent: str, bindings: tuple[str, ...]) -> None:
    whole = run(tmp_path / "whole", agent, EXACT, *bindings)
    run(tmp_path / "parts", agent, EXACT, *bindings, ONE_ITERATION)
    parts = run(tmp_path / "parts", agent, EXACT, *bindings)
    assert whole.agent.updates > 3 and parts.counts.cut_frames > 0
    assert_identical(state(parts), state(whole))
    assert all({line["incarnation"] for line in each} == {0, 1} for each in journals(parts))
    if BESIDE_A_QUEUE[0] in bindings:
        assert [source.facts()["capacity"] for source in whole.agent.learner.replay.sources][1] == 12


def test_a_run_goes_on_whoever_acts_and_with_another_number_of_hosts_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ways = (("vector", ()), ("hosts", (BLOCKS,)), ("hosts", (HERE,)), ("hosts", (BLOCKS, FOUR)))
    for number, (schedule, bindings) in enumerate(ways, 1):
        more = run(tmp_path, "dqn", *bindings, f"Runner.num_iterations = {number}", schedule=schedule)
        assert more.counts.frames >= 100 * number
    assert "the run goes on with 4 hosts, and had 2 before" in caplog.text
    assert hosts_of(more) == [{0, 1, 2, 3}]
    with pytest.raises(DifferentExperiment, match="environments: 4 there, 8 here"):
        run(tmp_path, "dqn", "VectorRunner.num_envs = 8")


@pytest.mark.usefixtures("learners_in_threads")
def test_a_run_goes_on_with_another_number_of_hosts_and_not_of_learners(tmp_path: Path) -> None:
    run(tmp_path, "vtrace", TWO, BLOCKS, FOUR, ONE_ITERATION)
    more = run(tmp_path, "vtrace", TWO, BLOCKS, "Hosts.num_hosts = 2")
    assert more.counts.frames >= 200
    # Host 1 was the first learner's, and is the second one's.
    assert {line["incarnation"] for line in journals(more)[1] if line["host"] == 1} == {1}
    with pytest.raises(DifferentExperiment, match="learners: 2 there, None here"):
        make(tmp_path, "vtrace", BLOCKS).resume()


INTERRUPTED = [
    *(("dqn", (BLOCKS,)), ("vtrace", (HERE,)), ("dqn", (BLOCKS, TWO))),
    ("vtrace", (TWO, "Hosts.block_length = 40")),  # blocks of 40 may take the whole phase
]


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(("agent", "bindings"), INTERRUPTED)
def test_a_run_that_was_interrupted_ends_as_one_that_was_cut_at_the_same_block(
    tmp_path: Path, agent: str, bindings: tuple[str, ...]
) -> None:
    here = make(tmp_path / "here", agent, *bindings)

    def due() -> bool:
        if here.agent.updates >= 3 and here.saved.number < 0:
            here.ending.ask(KeyboardInterrupt())
        return False

    here.saved.is_late = due
    with pytest.raises(KeyboardInterrupt):
        here.run_experiment()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = make(tmp_path / "there", agent, *bindings)
    assert there.resume() and there.agent.updates == here.agent.updates >= 3
    assert there.counts.frames == here.counts.frames > 0
    for runner in (here, there):
        runner.run_experiment()
    assert_identical(state(there), state(here))
    assert there.counts.frames >= 200
    assert_frames_add_up(there)
    assert all(line["learnt"] for each in journals(there) for line in each)


@pytest.mark.usefixtures("learners_in_threads")
def test_a_damaged_replay_of_another_learner_leads_to_the_checkpoint_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = run(tmp_path / "whole", "dqn", EXACT, BLOCKS, TWO, THREE)
    run(tmp_path / "parts", "dqn", EXACT, BLOCKS, TWO)
    replay = tmp_path / "parts" / "checkpoints" / "replay_1"
    path = replay / read_index(replay, 1)[0][-1].name
    content = bytearray(path.read_bytes())
    content[content.index(b"\n", content.index(b"NUMPY")) + 1] ^= 255
    path.write_bytes(content)
    parts = run(tmp_path / "parts", "dqn", EXACT, BLOCKS, TWO, THREE)
    assert f"checkpoint 1 is not used: {path.name} in " in caplog.text
    assert "the run goes on from checkpoint 0, the newest one that loads" in caplog.text
    assert_identical(state(parts), state(whole))


def test_checkpoints_by_the_clock_change_nothing_of_a_run(tmp_path: Path) -> None:
    often, seldom = (make(tmp_path / name, "dqn", BLOCKS) for name in ("often", "seldom"))
    often.saved.is_late = lambda: True
    for runner in (often, seldom):
        runner.run_experiment()
    assert often.saved.number > seldom.saved.number == 1
    assert_identical(state(often), state(seldom))


# The journal.


def test_a_damaged_line_of_the_journal_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "blocks.jsonl"
    path.parent.mkdir()
    whole = [json.dumps({"host": host, "incarnation": 3}).encode() for host in (0, 1)]
    path.write_bytes(b"\n".join([whole[0], b'{"host": 7', b"\xff\x00", b"[]", whole[1], b'{"host": 2, "incarn']))
    with pytest.warns(RuntimeWarning, match=r"3 lines of .*blocks.jsonl are damaged and left out"):
        opened = host_rounds.BlockLog(tmp_path)
    opened.close()
    assert opened.incarnations == {0: 4, 1: 4}
    assert path.read_bytes().endswith(whole[1] + b"\n")  # the line that was being written is gone


def test_a_journal_that_does_not_fit_onto_the_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "blocks.jsonl"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    journal = host_rounds.BlockLog(tmp_path)
    block: Any = SimpleNamespace(host=0, incarnation=0, number=0, version=0, decisions=4)
    journal.note(block, 0, True)
    for write in (journal.flush, journal.close):
        with pytest.raises(OSError, match="No space left on device") as caught:
            write()
        assert caught.value.filename == str(path)


# Running freely.


@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(
    ("agent", "bindings"),
    [
        *(("dqn", (BLOCKS,)), ("dqn", (HERE, HALVES)), ("vtrace", (HERE,)), ("vtrace", (BLOCKS, TWO, FOUR))),
        ("impact", (BLOCKS, TWO, FOUR)),
    ],
)
def test_hosts_run_freely(tmp_path: Path, agent: str, bindings: tuple[str, ...]) -> None:
    free = run(tmp_path, agent, FREE, *bindings)
    lines = [line for each in journals(free) for line in each]
    assert free.agent.updates > 3
    assert all(line["learnt"] for line in lines)
    # Two blocks are played ahead, and under a delay a few decisions are not applied.
    assert free.counts.frames >= max(200, sum(line["decisions"] for line in lines) - 2 * 4)
    if TWO in bindings:
        assert [len(each) for each in hosts_of(free)] == [2, 2]


def test_blocks_that_are_too_old_are_dropped_and_counted(tmp_path: Path) -> None:
    free = run(tmp_path, "dqn", FREE, BLOCKS, "Hosts.max_version_lag = 3", "Runner.training_steps = 400")
    (lines,) = journals(free)
    dropped = [line for line in lines if not line["learnt"] and line["decisions"]]
    assert 0 < len(dropped) < len(lines) / 2
    assert free.play.worlds.dropped == len(dropped)
    assert all(line["updates"] - line["version"] <= 3 + 6 for line in lines if line["learnt"])
    assert_frames_add_up(free)
    frames = [int(row["frames"]) for row in csv.DictReader((tmp_path / "episodes.csv").open())]
    assert min(frames) > 0 and max(frames) <= free.counts.frames


def test_a_limit_that_no_block_keeps_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_rounds, "_DROPPED", 2)
    with pytest.raises(HostsFailed, match="max_version_lag must be larger than 0 updates: 2 blocks of host"):
        run(tmp_path, "dqn", FREE, BLOCKS, "Hosts.max_version_lag = 0", "Runner.training_steps = 4_000")


# Hosts that die.


class Dying(LocalHosts):
    """Hosts 1 and 3 die once: where each has played two blocks, or with the 40th order to hosts that step."""

    orders = 0

    def submit(self, host: int, order: Any = False) -> None:
        super().submit(host, order)
        self.orders += 1
        if self.orders == 40 and not isinstance(order, bool):
            self.kill(1, "was ended by the test")

    def collect(self, timeout: float) -> list[Any]:
        played = super().collect(timeout)
        for each in played:
            if isinstance(each, PlayedBlock) and each.host % 2 and each.key[1:] == (0, 2):
                self.kill(each.host, "was ended by the test")
                return self.collect(timeout)
        return played


@DIES
@pytest.mark.usefixtures("learners_in_threads")
@pytest.mark.parametrize(
    ("agent", "bindings"),
    [
        *(("r2d2", (BLOCKS,)), ("ppo", (BLOCKS,)), ("vtrace", (BLOCKS, FREE)), ("r2d2", (HERE,)), ("ppo", (HERE,))),
        *(("dqn", (BLOCKS, TWO, FOUR)), ("vtrace", (BLOCKS, TWO, FOUR, FREE))),
    ],
)
def test_a_host_that_dies_is_replaced_and_its_games_are_cut(
    tmp_path: Path, agent: str, bindings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnHosts, "engine_maker", Dying)
    lived = run(tmp_path, agent, *bindings)
    assert lived.play.worlds.replaced == 1 + (FOUR in bindings)
    assert lived.agent.updates > 3 and lived.counts.cut_frames > 0
    assert_frames_add_up(lived)
    for each in journals(lived):
        assert {line["host"]: line["incarnation"] for line in each} == {line["host"]: line["host"] % 2 for line in each}


@DIES
def test_an_episode_of_an_evaluation_that_is_lost_counts_for_nothing_and_another_one_is_played(tmp_path: Path) -> None:
    class DyingEarly(LocalHosts):
        orders = 0

        def submit(self, host: int, order: Any = False) -> None:
            super().submit(host, order)
            self.orders += 1
            if self.orders == 16:
                self.kill(1, "was ended by the test")

    ended = ["Runner.evaluation_steps = 1", "Runner.evaluation_episodes = 8", ONE_ITERATION]
    made = make(tmp_path, "dqn", HERE, "VectorRunner.evaluation_envs = 4", *ended)
    opened: list[HostedEnvs] = []
    environments = made.play.environments
    make_envs = environments.make

    def on_hosts(phase: Phase, count: int, **other: Any) -> Any:
        if phase != Phase.EVAL:
            return make_envs(phase, count, **other)
        make_single = environments.arguments(phase)["make_env"]
        opened.append(HostedEnvs(DyingEarly, partial(LocalEnvs, make_single), count, 2))
        return opened[0]

    environments.make = on_hosts
    made.run_experiment()
    [line] = read_iterations(tmp_path)
    assert opened[0].lost_episodes == 2
    assert len(line["eval_episode_lengths"]) == 8 and min(line["eval_episode_lengths"]) > 7


def test_a_host_that_dies_again_and_again_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class AlwaysDying(LocalHosts):
        def collect(self, timeout: float) -> list[Any]:
            if any(host == 1 for host, *_ in self._orders):
                self.kill(1, "was ended by the test")
            return super().collect(timeout)

    monkeypatch.setattr(OnHosts, "engine_maker", AlwaysDying)
    with pytest.raises(HostsFailed, match="host 1 was ended by the test, 3 times without a block between"):
        run(tmp_path, "dqn")


@pytest.mark.usefixtures("fork_server")
def test_a_host_that_does_not_answer_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LocalHosts):
        silent = True

        def collect(self, timeout: float) -> list[Any]:
            if self.silent and self._orders and self._orders[0][0] == 1:
                self.silent = False
                self._orders.popleft()
                return []
            return super().collect(timeout)

    monkeypatch.setattr(OnHosts, "engine_maker", Silent)
    assert run(tmp_path, "dqn", "Hosts.host_timeout = 0.5", PROCESSES).play.worlds.replaced == 1


@pytest.mark.parametrize("bindings", [(FREE,), (HERE, HALVES)])
def test_a_host_in_this_process_is_not_late_after_a_long_evaluation(
    tmp_path: Path, bindings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(host_rounds, "time", clock)
    monkeypatch.setattr(hosted, "time", clock)
    made = make(tmp_path, "dqn", *bindings)
    train = made.play.train

    def train_later(length: Any) -> Any:
        now[0] += 1_000.0
        return train(length)

    made.play.train = train_later
    made.run_experiment()
    assert now[0] > made.play.worlds.settings.host_timeout and made.play.worlds.replaced == 0


@DIES
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("how", [BLOCKS, HERE])
def test_a_killed_process_is_back_and_none_is_left(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    lost: list[Lost] = []

    class Killed(ProcessHosts):
        orders = 0

        def submit(self, host: int, order: Any = False) -> None:
            super().submit(host, order)
            self.orders += host == 1
            pids.extend(self.pids.values())
            if host == 1 and self.orders == 6:
                os.kill(self.pids[1], signal.SIGKILL)

        def collect(self, timeout: float) -> list[Any]:
            found = super().collect(timeout)
            lost.extend(each for each in found if isinstance(each, Lost))
            return found

    monkeypatch.setattr(OnHosts, "engine_maker", Killed)
    made = run(tmp_path, "vtrace", how, "Hosts.engine = 'processes'")
    assert len(lost) == made.play.worlds.replaced == 1
    assert "was ended by SIGKILL" in lost[0].why and "hosts replaced" in made.play.table()
    assert made.agent.updates > 3
    assert all({line["incarnation"] for line in each if line["host"] == 1} == {0, 1} for each in journals(made))
    assert not [pid for pid in set(pids) if os.path.exists(f"/proc/{pid}")]


def learners_that_live() -> list[Any]:
    """Processes of learners; those of other tests may take a moment to end."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("learner ")]


@pytest.mark.usefixtures("fork_server")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_learner_that_dies_ends_the_run_which_goes_on_from_its_checkpoint(tmp_path: Path, engine: str) -> None:
    bindings = TWO, BLOCKS, EXACT, THREE, f"Hosts.engine = {engine!r}"
    whole = run(tmp_path / "whole", "vtrace", *bindings)
    stopped = make(tmp_path / "parts", "vtrace", *bindings)
    train_once, phases = stopped.play.train, list[Any]()

    def kill_in_the_last_iteration(length: Any) -> Any:
        phases.append(length)
        if len(phases) == 3:
            [child] = learners_that_live()
            os.kill(child.pid, signal.SIGKILL)
        return train_once(length)

    stopped.play.train = kill_in_the_last_iteration
    with pytest.raises(LearnerFailed, match=r"learner 1 of 2 \(process \d+\) was ended by SIGKILL, and the others .*"):
        stopped.run_experiment()
    assert not learners_that_live()
    resumed = run(tmp_path / "parts", "vtrace", *bindings)
    assert_identical(state(resumed), state(whole))
    assert differs(state(stopped)["learner"], state(whole)["learner"])
    assert not learners_that_live()


# What is refused.


@pytest.mark.parametrize(
    ("agent", "bindings", "sentence"),
    [
        ("dqn", ("Runner.overlap = True",), "Runner.overlap must be False where create_runner.schedule = 'hosts'"),
        ("dqn", ("VectorRunner.act_devices = ('cpu',)",), "VectorRunner.act_devices must be None where"),
        ("dqn", ("Hosts.num_hosts = 3",), "VectorRunner.num_envs must be a multiple of the 3 hosts, got 4"),
        ("dqn", ("Hosts.max_version_lag = 3",), "max_version_lag must be None where Hosts.mode = 'rounds', got 3"),
        ("dqn", ("Hosts.address = '10.0.0.1:6379'",), "Hosts.address must be None where Hosts.engine = 'local'"),
        ("dqn", ("Hosts.engine = 'threads'",), "Hosts.engine must be"),
        ("dqn", (FREE, EXACT), "Runner.exact_resume must be False where Hosts.mode = 'free'"),
        ("ppo", (FREE,), "Hosts.mode must be 'rounds' with agent 'ppo'"),
        ("ppo", ("Hosts.block_length = 5",), "Hosts.block_length must divide the 8 decisions of each environment"),
        # with a learner that infers
        ("dqn", ("Hosts.inference = 'gpu'",), "Hosts.inference must be"),
        ("dqn", (HERE, BLOCKS), "Hosts.block_length must be None where Hosts.inference = 'learner', whose h"),
        (
            "dqn",
            (HERE, "Hosts.gpus_per_host = 1.0"),
            "gpus_per_host must be 0 where Hosts.inference = 'learner', ",
        ),
        ("dqn", (HERE, TWO), "VectorRunner.learners must be 1 where Hosts.inference = 'learner', got 2: w"),
        ("dqn", (HERE, "Hosts.num_hosts = 3"), "VectorRunner.num_envs must be a multiple of the 3 hosts, got 4"),
        ("ppo", (HERE, FREE), "Hosts.mode must be 'rounds' with agent 'ppo'"),
        ("dqn", (HERE, FREE, "Hosts.max_version_lag = 3"), "max_version_lag must be None where Hosts.inference = 'lea"),
        ("dqn", (HERE, FREE, EXACT), r"Runner.exact_resume must be False where Hosts.mode = 'free'"),
        # with several learners
        ("dqn", (TWO, "Hosts.num_hosts = 1"), "Hosts.num_hosts must be a multiple of the 2 learners, got 1"),
        (
            "dqn",
            (TWO, "Hosts.gpus_per_learner = 1.0"),
            "gpus_per_learner must be 0 where Hosts.engine = 'local' and VectorRunner.learners = 2, got 1.0",
        ),
        ("ppo", (TWO, "PPOAgent.batch_size = 1"), "batch_size must be"),
        ("vtrace", (TWO, "VTraceAgent.batch_size = 3"), "batch_size must be a multiple of the 2 learners, got 3"),
    ],
)
def test_what_hosts_cannot_do_is_refused(tmp_path: Path, agent: str, bindings: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, agent, *bindings)


def test_a_directory_that_is_not_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = sign_directory(tmp_path)
    check_sign(tmp_path, sign)
    monkeypatch.setattr("async_wrappers.agents.play.many.learners._SEEN", 0.1)
    with pytest.raises(LearnerFailed, match=r"does not see the .* of the first learner: .*, so --base_dir must lie on"):
        check_sign(tmp_path, "of another run")
