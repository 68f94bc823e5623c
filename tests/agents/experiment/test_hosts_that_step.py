"""Runs whose learner infers for hosts: the vector runner's runs, on every engine."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from async_wrappers.agents.experiment.metrics import read_iterations
from async_wrappers.agents.play.hosts.engine import HostPlan
from async_wrappers.agents.play.hosts.hosts import OnHosts
from async_wrappers.agents.play.hosts.local import LocalHosts
from async_wrappers.agents.play.hosts.processes import ProcessHosts
from async_wrappers.agents.play.play import Phase
from async_wrappers.batched.hosted import HostedEnvs
from async_wrappers.batched.local import LocalEnvs
from tests.worlds.host_runs import AGENTS, make, state
from tests.worlds.plain_data import assert_identical

HERE = "Hosts.inference = 'learner'"
EXACT = "Runner.exact_resume = True"


@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_is_the_vector_run_on_hosts_here_and_in_processes(tmp_path: Path, agent: str) -> None:
    vector = make(tmp_path / "vector", agent, schedule="vector")
    vector.run_experiment()
    assert vector.agent.updates > 3
    for engine, count in [("local", 4), ("processes", 2)][: 1 if agent == "apex" else 2]:
        hosts = make(tmp_path / engine, agent, HERE, f"Hosts.engine = {engine!r}", f"Hosts.num_hosts = {count}")
        hosts.run_experiment()
        assert_identical(state(hosts), state(vector))


@pytest.mark.usefixtures("fork_server")
def test_halves_take_the_same_turns_in_processes(tmp_path: Path) -> None:
    runs = []
    for engine in ("local", "processes"):
        binding = f"Hosts.engine = {engine!r}"
        runs.append(make(tmp_path / engine, "vtrace", HERE, binding, "VectorRunner.double_buffered = True"))
        runs[-1].run_experiment()
    one, other = map(state, runs)
    assert_identical(one, other)


@pytest.mark.parametrize(
    "binding",
    [
        "Runner.overlap = True",
        "VectorRunner.act_devices = ('cpu', 'cpu')",
        "VectorRunner.double_buffered = True",
        "VectorRunner.replay_ratio = 4.0",
    ],
)
def test_what_is_of_the_learner_works_as_in_the_vector_run(tmp_path: Path, binding: str) -> None:
    one_host = "Hosts.num_hosts = 1"  # whose halves are those of the vector
    hosts = make(tmp_path / "hosts", "dqn", HERE, one_host, binding)
    hosts.run_experiment()
    vector = make(tmp_path / "vector", "dqn", binding, schedule="vector")
    vector.run_experiment()
    assert_identical(state(hosts), state(vector))


@pytest.mark.parametrize("agent", ["dqn", "vtrace"])
@pytest.mark.parametrize("halves", [False, True])
def test_hosts_run_freely(tmp_path: Path, agent: str, halves: bool) -> None:
    free = make(tmp_path, agent, HERE, "Hosts.mode = 'free'", f"VectorRunner.double_buffered = {halves}")
    free.run_experiment()
    assert free.counts.frames >= 300
    assert free.agent.updates > 3


@pytest.mark.parametrize("agent", ["dqn", "vtrace"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, agent: str) -> None:
    whole = make(tmp_path / "whole", agent, HERE, EXACT)
    whole.run_experiment()
    make(tmp_path / "parts", agent, HERE, EXACT, "Runner.num_iterations = 1").run_experiment()
    parts = make(tmp_path / "parts", agent, HERE, EXACT)
    parts.run_experiment()
    assert parts.counts.cut_frames > 0
    assert_identical(state(parts), state(whole))


def test_a_run_goes_on_where_hosts_infer_and_the_other_way_round(tmp_path: Path) -> None:
    for number, bindings in enumerate([(HERE,), ("Hosts.block_length = 4",), (HERE, "Hosts.num_hosts = 4")], 1):
        run = make(tmp_path, "dqn", *bindings, f"Runner.num_iterations = {number}")
        run.run_experiment()
        assert run.counts.frames >= 150 * number


@pytest.mark.usefixtures("fork_server")
@pytest.mark.filterwarnings("ignore:host 1 .* was ended by SIGKILL")
def test_a_killed_process_is_back_and_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []

    class Killed(ProcessHosts):
        orders = 0

        def submit(self, host: int, order: Any = False) -> None:
            super().submit(host, order)
            self.orders += 1
            pids.extend(self.pids.values())
            if self.orders == 40:
                os.kill(self.pids[1], signal.SIGKILL)

    def make_engine(self: Any, plan: HostPlan) -> ProcessHosts:
        return Killed(plan)

    monkeypatch.setattr(OnHosts, "make_engine", make_engine)
    run = make(tmp_path, "vtrace", HERE)
    run.run_experiment()
    assert run.play.worlds.replaced == 1
    assert run.agent.updates > 3
    assert "hosts replaced" in run.play.table()
    assert not [pid for pid in set(pids) if os.path.exists(f"/proc/{pid}")]


@pytest.mark.filterwarnings("ignore:host 1 was ended")
@pytest.mark.parametrize("agent", ["r2d2", "ppo"])
def test_a_host_that_dies_is_replaced_and_its_games_are_cut(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(LocalHosts):
        orders = 0

        def submit(self, host: int, order: Any = False) -> None:
            super().submit(host, order)
            self.orders += 1
            if self.orders == 40:
                self.kill(1, "was ended by the test")

    monkeypatch.setattr(OnHosts, "make_engine", lambda self, plan: Dying(plan))
    run = make(tmp_path, agent, HERE)
    run.run_experiment()
    assert run.play.worlds.replaced == 1
    assert run.agent.updates > 3
    # Those of the two lost games are counted as cut, and no return is theirs.
    ended = sum(sum(line["train_episode_lengths"]) for line in read_iterations(tmp_path))
    rows = run.agent.rows.state_dict()
    assert run.counts.cut_frames > 0 and ended + run.counts.cut_frames + sum(rows["cut"]) == run.counts.frames


@pytest.mark.filterwarnings("ignore:host 1 was ended")
def test_an_episode_of_an_evaluation_that_is_lost_counts_for_nothing_and_another_one_is_played(tmp_path: Path) -> None:
    class Dying(LocalHosts):
        orders = 0

        def submit(self, host: int, order: Any = False) -> None:
            super().submit(host, order)
            self.orders += 1
            if self.orders == 16:
                self.kill(1, "was ended by the test")

    ended = ["Runner.evaluation_steps = 1", "Runner.evaluation_episodes = 8", "Runner.num_iterations = 1"]
    run = make(tmp_path, "dqn", HERE, "VectorRunner.evaluation_envs = 4", *ended)
    made: list[HostedEnvs] = []
    environments = run.play.environments
    make_envs = environments.make

    def on_hosts(phase: Phase, count: int, **other: Any) -> Any:
        if phase != Phase.EVAL:
            return make_envs(phase, count, **other)
        make_single = environments.arguments(phase)["make_env"]
        made.append(HostedEnvs(Dying, partial(LocalEnvs, make_single), count, 2))
        return made[0]

    environments.make = on_hosts
    run.run_experiment()
    [line] = read_iterations(tmp_path)
    assert made[0].lost_episodes == 2
    assert len(line["eval_episode_lengths"]) == 8 and min(line["eval_episode_lengths"]) > 7


@pytest.mark.parametrize(
    ("agent", "binding", "sentence"),
    [
        ("dqn", "Hosts.inference = 'gpu'", "Hosts.inference must be"),
        ("dqn", "Hosts.block_length = 4", "Hosts.block_length must be None where Hosts.inference = 'learner', whose h"),
        ("dqn", "Hosts.gpus_per_host = 1.0", "Hosts.gpus_per_host must be 0 where Hosts.inference = 'learner', whose"),
        (
            "dqn",
            "VectorRunner.learners = 2",
            "VectorRunner.learners must be 1 where Hosts.inference = 'learner', got 2: w",
        ),
        ("dqn", "Hosts.num_hosts = 3", "VectorRunner.num_envs must be a multiple of the 3 hosts, got 4"),
        ("ppo", "Hosts.mode = 'free'", "Hosts.mode must be 'rounds' with agent 'ppo'"),
    ],
)
def test_what_is_of_hosts_that_act_is_refused(tmp_path: Path, agent: str, binding: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, agent, *[HERE] * ("inference" not in binding), binding)


@pytest.mark.parametrize(
    ("binding", "sentence"),
    [
        ("Hosts.max_version_lag = 3", "Hosts.max_version_lag must be None where Hosts.inference = 'learner', which"),
        (EXACT, r"Runner.exact_resume must be False where Hosts.mode = 'free'"),
    ],
)
def test_what_is_not_of_free_running_is_refused(tmp_path: Path, binding: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, "dqn", HERE, "Hosts.mode = 'free'", binding)
