"""Hosts on Ray: two nodes on one machine and a learner on neither, reached by address.

Each host is a process that imports PyTorch, so all but one of these tests are marked as slow. Ray is an extra, which
the development tools do not bring: `pip install -e '.[dev,ray]' -c constraints.txt`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from async_wrappers.agents.play.hosts.engine import HostsFailed, Lost
from async_wrappers.agents.play.hosts.host import ActingPlan
from async_wrappers.agents.play.hosts.played_block import PlayedBlock
from async_wrappers.agents.play.many.learners import LearnerFailed
from async_wrappers.batched.hosted import EnvsPlan, HostedEnvs
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.ray_cluster import Exits, NoCluster, exits_told, python_path
from tests.contracts.hosts_contract import HostsContract, collected, make_envs, nothing_played, plan_of, weights_of
from tests.worlds.host_runs import AGENTS, make, state
from tests.worlds.plain_data import assert_identical
from tests.worlds.seeded_env import SeededEnv

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

from ray.cluster_utils import Cluster  # noqa: E402  # of the extra

from async_wrappers.agents.play.hosts import on_ray  # noqa: E402


class EndingEnv(SeededEnv):
    """An environment that raises what ends programs."""

    def __init__(self, ends: BaseException) -> None:
        super().__init__()
        self._raises = ends

    def step(self, action: Any) -> Any:
        raise self._raises


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """A cluster of two nodes with hosts' CPUs, and a head without any, where the learner is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # Ray's workers give way to all other processes of a busy machine
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            cluster.add_node(num_cpus=1)
    env = {"env_vars": {"PYTHONPATH": python_path()}}
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR", runtime_env=env)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def address(nodes: Cluster) -> str:
    return str(nodes.address)


@pytest.mark.slow
@pytest.mark.usefixtures("address")
class TestRayHosts(HostsContract):
    def make_engine(self, plan: ActingPlan) -> on_ray.RayHosts:
        return on_ray.RayHosts(plan, num_hosts=2)

    @pytest.mark.parametrize("ends", [SystemExit("no licence"), KeyboardInterrupt()], ids=repr)
    def test_an_environment_that_ends_its_program_is_a_lost_host_in_its_words(self, ends: BaseException) -> None:
        plan = replace(plan_of(), make_envs=partial(make_envs, partial(EndingEnv, ends)))
        with closing(self.make_engine(plan)) as engine:
            engine.publish(weights_of(plan, 0), 0)
            engine.start(0, 0, nothing_played(plan))
            for _ in range(2):
                engine.submit(0)
            block, lost = collected(engine, 2)
            assert isinstance(block, PlayedBlock)
            assert lost == Lost(0, 0, f"raised {ends!r}")


@pytest.mark.slow
@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_is_the_same_on_ray(tmp_path: Path, agent: str) -> None:
    bindings = "Hosts.block_length = 4", "Runner.num_iterations = 1"
    local = make(tmp_path / "local", agent, *bindings)
    local.run_experiment()
    on_cluster = make(tmp_path / "ray", agent, *bindings, "Hosts.engine = 'ray'")
    on_cluster.run_experiment()
    assert local.agent.updates >= 3
    assert_identical(state(on_cluster), state(local))


@pytest.mark.slow
@pytest.mark.usefixtures("address")
class TestSeveralLearners:
    """The second learner is an actor on a node, with a host of its own, and the first is on the head."""

    BINDINGS = "VectorRunner.learners = 2", "Hosts.block_length = 4", "Runner.exact_resume = True"
    ON_RAY = "Hosts.engine = 'ray'", "Hosts.num_hosts = 2"

    @pytest.fixture(autouse=True)
    def third_node(self, nodes: Cluster) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_worker_niceness", "0")
            node = nodes.add_node(num_cpus=1)
        yield
        nodes.remove_node(node)

    @pytest.mark.parametrize("agent", AGENTS)
    def test_a_run_is_the_same_on_ray(self, tmp_path: Path, agent: str) -> None:
        local = make(tmp_path / "local", agent, *self.BINDINGS, "Runner.num_iterations = 1")
        local.run_experiment()
        on_cluster = make(tmp_path / "ray", agent, *self.BINDINGS, *self.ON_RAY, "Runner.num_iterations = 1")
        on_cluster.run_experiment()
        assert local.agent.updates >= 3
        assert_identical(
            {**state(on_cluster), "shares": on_cluster.play.others.states},
            {**state(local), "shares": local.play.others.states},
        )

    def test_a_learner_that_is_killed_ends_the_run_which_goes_on(self, tmp_path: Path) -> None:
        whole = make(tmp_path / "whole", "vtrace", *self.BINDINGS)
        whole.run_experiment()
        stopped = make(tmp_path / "parts", "vtrace", *self.BINDINGS, *self.ON_RAY)
        train_once, phases = stopped.play.train, []

        def kill_in_the_second_iteration(length: object) -> object:
            phases.append(length)
            if len(phases) == 2:
                (place,) = stopped.play.others.running.places
                os.kill(int(place.split()[1]), signal.SIGKILL)
            return train_once(length)

        stopped.play.train = kill_in_the_second_iteration
        with pytest.raises(
            LearnerFailed, match=r"learner 1 of 2 \(process \d+ on .*\) has died \(.*\), and the others cannot go on"
        ):
            stopped.run_experiment()
        resumed = make(tmp_path / "parts", "vtrace", *self.BINDINGS, *self.ON_RAY)
        resumed.run_experiment()
        assert_identical(state(resumed), state(whole))

    def test_too_few_cpus(self, tmp_path: Path) -> None:
        run = make(tmp_path, "vtrace", *self.BINDINGS, *self.ON_RAY, "Runner.threads = 2")
        with pytest.raises(
            LearnerFailed, match=r"the cluster must have 4 CPUs, 2 for all hosts and 2 for each learner"
        ):
            run.run_experiment()


@pytest.mark.slow
@pytest.mark.usefixtures("address")
def test_another_actor_takes_the_place_of_one_that_was_killed() -> None:
    plan = plan_of()
    engine = on_ray.RayHosts(plan, num_hosts=2)
    engine.publish(weights_of(plan, 0), 0)
    for host in range(2):
        engine.start(host, 0, nothing_played(plan))
        engine.submit(host)
    collected(engine, 2)
    pid = ray.get(engine._actors[0].process_id.remote())
    os.kill(pid, signal.SIGKILL)
    engine.submit(0)
    (lost,) = collected(engine, 1)
    assert isinstance(lost, Lost)
    assert (lost.host, lost.incarnation) == (0, 0)
    engine.start(0, 1, nothing_played(plan))
    engine.submit(0)
    (block,) = collected(engine, 1)
    assert (block.host, block.incarnation) == (0, 1)
    engine.close()


@pytest.mark.slow
@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("agent", ["dqn", "vtrace", "r2d2", "ppo"])
def test_a_run_whose_learner_infers_is_the_vector_run(tmp_path: Path, agent: str) -> None:
    vector = make(tmp_path / "vector", agent, schedule="vector")
    vector.run_experiment()
    on_cluster = make(tmp_path / "ray", agent, "Hosts.inference = 'learner'", "Hosts.engine = 'ray'")
    on_cluster.run_experiment()
    assert vector.agent.updates > 3
    assert_identical(state(on_cluster), state(vector))


@pytest.mark.slow
@pytest.mark.usefixtures("address")
@pytest.mark.filterwarnings("ignore:host 1 has died")
@pytest.mark.parametrize("free", [False, True])
def test_a_host_that_only_steps_is_replaced_and_its_episodes_are_cut(free: bool) -> None:
    engines: list[on_ray.RayHosts] = []

    def make_engine(plan: EnvsPlan) -> on_ray.RayHosts:
        engines.append(on_ray.RayHosts(plan, num_hosts=2))
        return engines[0]

    with closing(HostedEnvs(make_engine, partial(LocalEnvs, SeededEnv), 4, 2, free=free)) as envs:
        envs.begin([1, 2, 3, 4])
        pid = ray.get(engines[0]._actors[1].process_id.remote())
        truncated: set[int] = set()
        for call in range(20_000):
            shown = envs.recv()
            if call == 5:
                os.kill(pid, signal.SIGKILL)
            truncated |= {i for i, info in shown.info.items() if info["realtime"]["interval"] == 0}
            if truncated:
                break
            envs.send(shown.env_ids, np.ones(len(shown.env_ids), int))
        assert truncated == {2, 3}
        assert (envs.restarts, envs.lost_episodes) == (1, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("address")
class TestRefusals:
    def test_hosts_that_no_node_has_room_for(self) -> None:
        with pytest.raises(HostsFailed, match=r"num_hosts must be <= 2, as many as the cluster's nodes have 1 CPUs"):
            on_ray.RayHosts(plan_of(), num_hosts=3)

    def test_another_version_of_a_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(on_ray, "versions", lambda: {"PyTorch": "1.0"})
        engine = on_ray.RayHosts(plan_of(), num_hosts=1)
        engine.start(0, 0, nothing_played(plan_of()))
        with pytest.raises(HostsFailed, match=r"host 0 \(.*\) has PyTorch .*, and the learner has 1.0: install"):
            collected(engine, 1)
        engine.close()

    def test_a_module_that_the_hosts_do_not_have(self) -> None:
        engine = on_ray.RayHosts(plan_of(), ["a_game_of_my_own"], num_hosts=1)
        engine.start(0, 0, nothing_played(plan_of()))
        with pytest.raises(HostsFailed, match=r"host 0 \(.*\) cannot import 'a_game_of_my_own': install"):
            collected(engine, 1)
        engine.close()


def test_an_address_where_no_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(NoCluster, match=r"address 127\.0\.0\.1:1: no Ray cluster answers there"):
        on_ray.RayHosts(plan_of(), address="127.0.0.1:1")


def test_an_object_store_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(value: object) -> None:
        raise ray.exceptions.ObjectStoreFullError("no room for 7 MB.")

    monkeypatch.setattr(ray, "put", full)
    engine = object.__new__(on_ray.RayHosts)
    with pytest.raises(HostsFailed, match=r"Ray's object store is full \(.*\): bind a smaller Hosts.block_length"):
        engine.publish({}, 1)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> on_ray.RayHosts:
    """An engine whose Ray has not answered for host 0 yet, and has one CPU left."""
    engine = object.__new__(on_ray.RayHosts)
    engine._wants, engine._has_begun, engine._lost = {"CPU": 2.0, "GPU": 0.0}, False, []
    host = on_ray._RayHost(0, 0)
    engine._hosts, engine._pending = {0: host}, {"versions": host, "play": host}
    engine._actors = on_ray.Actors(SimpleNamespace, num_cpus=2)
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 1.0})
    return engine


NO_ROOM = "is late: Ray had not started it; it needs 2 CPUs and 0 GPUs, and of the cluster 1 CPUs and 0 GPUs are free"


def test_a_cluster_without_room_ends_the_run_at_the_first_timeout(engine: on_ray.RayHosts) -> None:
    with pytest.raises(HostsFailed, match=f"^host 0 {NO_ROOM}$"):
        engine.kill(0, "is late")


def test_a_host_for_which_there_is_no_room_any_more_is_lost_for_that_reason(
    engine: on_ray.RayHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Any = on_ray.NodeVersions("node", on_ray.versions())
    monkeypatch.setattr(ray, "get", lambda reference: answer)
    engine._got("versions of another one", on_ray._RayHost(1, 0))
    engine.kill(0, "is late")
    assert engine.collect(0) == [Lost(0, 0, NO_ROOM)]


@pytest.mark.parametrize("ends", [SystemExit(0), KeyboardInterrupt()], ids=repr)
def test_what_ends_a_program_is_a_loss_in_its_words(
    engine: on_ray.RayHosts, monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    def get(reference: object) -> None:
        with exits_told():
            raise ends

    def of_task(reference: object) -> None:
        try:
            get(reference)
        except Exits as error:
            raise ray.exceptions.RayTaskError("play", "traceback", error) from None

    monkeypatch.setattr(ray, "get", of_task)
    assert engine._got("play", engine._hosts[0]) == [Lost(0, 0, f"raised {ends!r}")]
    assert not engine._pending
