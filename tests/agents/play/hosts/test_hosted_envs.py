"""Environments on hosts keep the contract of `BatchedEnvs`, on every engine, and outlive the death of a host."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import RealtimeDelay
from async_wrappers.agents.play.hosts.engine import HostsFailed
from async_wrappers.agents.play.hosts.host_processes import ProcessHosts
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.batched.factory import create_batched_envs
from async_wrappers.batched.hosted import EnvsPlan, HostedEnvs
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.testing.batched import BatchedEnvsContract
from tests.worlds.plain_data import assert_identical
from tests.worlds.seeded_env import SeededEnv


def make_envs(make: Callable[[], gym.Env[Any, Any]], double_buffered: bool, num_envs: int) -> Any:
    return create_batched_envs(make, num_envs, double_buffered=double_buffered)


class OnHosts(BatchedEnvsContract):
    """Two hosts of this process, with two environments each."""

    calls = 16
    make_engine: Any = LocalHosts
    free = double_buffered = False
    make: Any = partial(SeededEnv, "dict")

    def make_environment(self) -> gym.Env[Any, Any]:
        env: gym.Env[Any, Any] = self.make()
        return env

    def make_batched(self) -> HostedEnvs:
        halves = self.double_buffered
        return HostedEnvs(
            self.make_engine, partial(make_envs, self.make, halves), 4, 2, free=self.free, double_buffered=halves
        )


class TestInRounds(OnHosts):
    pass


class TestFree(OnHosts):
    free = True


class TestDoubleBuffered(OnHosts):
    double_buffered = True


class TestDoubleBufferedFree(OnHosts):
    free = double_buffered = True


def delayed() -> gym.Env[Any, Any]:
    return RealtimeDelay(SeededEnv("tuple"), delay=2, noops=1)


class TestDelayed(OnHosts):
    make = staticmethod(delayed)


@pytest.mark.usefixtures("fork_server")
class TestInProcesses(OnHosts):
    make_engine = ProcessHosts
    double_buffered = True


class Dying(LocalHosts):
    """Hosts of this process, which die of some orders: ``{1: ["send 3"]}`` is the third order to host 1 to send."""

    def __init__(self, plan: EnvsPlan, dies: Mapping[int, Sequence[str]]) -> None:
        super().__init__(plan)
        self.dies, self.given = dies, Counter[tuple[int, str]]()

    def submit(self, host: int, order: Any = False) -> None:
        super().submit(host, order)
        self.given[host, order[0]] += 1
        if f"{order[0]} {self.given[host, order[0]]}" in self.dies.get(host, ()):
            self.kill(host, "was ended by the test")


def dying(dies: Mapping[int, Sequence[str]], **other: Any) -> HostedEnvs:
    make = partial(make_envs, SeededEnv, other.get("double_buffered", False))
    return HostedEnvs(lambda plan: Dying(plan, dies), make, 4, 2, **other)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("double_buffered", [False, True])
@pytest.mark.filterwarnings("ignore:host 1 was ended")
def test_the_episodes_of_a_host_that_dies_are_cut_where_they_were_shown_last(free: bool, double_buffered: bool) -> None:
    with closing(dying({1: ["send 3"]}, free=free, double_buffered=double_buffered)) as envs:
        envs.begin([1, 2, 3, 4])
        seen: dict[int, Any] = {}
        cut: set[int] = set()
        for _ in range(12):
            shown = envs.recv()
            for place, i in enumerate(shown.env_ids.tolist()):
                times = shown.info.get(i, {}).get("realtime", {})
                if i >= 2 and i not in cut and times.get("interval") == 0:
                    cut.add(i)
                    assert (shown.truncated[place], shown.first[place], shown.terminal[place]) == (True, True, False)
                    assert (shown.reward[place], shown.realtime["applied"][place]) == (0.0, False)
                    assert_identical(shown.final[i], seen[i])
                seen[i] = shown.observation[place].copy()
            envs.send(shown.env_ids, np.ones(len(shown.env_ids), int))
        assert cut == {2, 3}
        assert (envs.restarts, envs.lost_episodes) == (1, 2)


@pytest.mark.filterwarnings("ignore:host 0 was ended")
def test_the_environments_of_other_hosts_play_on_as_if_none_had_died() -> None:
    def played(envs: HostedEnvs) -> list[Any]:
        rows = []
        with closing(envs):
            envs.begin([1, 2, 3, 4])
            for _ in range(8):
                shown = envs.recv()
                rows.append((shown.observation[2:], shown.reward[2:], shown.first[2:]))
                envs.send(shown.env_ids, np.ones(4, int))
        return rows

    assert_identical(played(dying({0: ["send 2", "begin 2"]})), played(dying({})))


@pytest.mark.parametrize("word", ["begin", "send", "cut"])
@pytest.mark.filterwarnings("ignore:host 1 was ended")
def test_a_host_may_die_at_any_order_and_all_can_be_cut(word: str) -> None:
    with closing(dying({1: [f"{word} 1"]})) as envs:
        envs.begin([1, 2, 3, 4])
        shown = envs.recv()
        envs.send(shown.env_ids, np.ones(4, int))
        cut = envs.cut()
        assert (cut.terminal | cut.truncated).all()
        assert set(cut.final) == set(cut.info) == {0, 1, 2, 3}
        assert_identical({i: cut.final[i] for i in range(4)}, dict(enumerate(cut.observation)))
        if word != "begin":
            assert cut.reward[2:].tolist() == [0.0, 0.0]
            assert_identical(cut.observation[2:], shown.observation[2:])
        envs.begin([1, 2, 3, 4])
        assert len(envs.recv().env_ids) == 4


@pytest.mark.filterwarnings("ignore:host 1 was ended")
def test_a_host_that_dies_again_and_again_is_an_error() -> None:
    with closing(dying({1: [f"begin {number}" for number in range(1, 9)]})) as envs:
        envs.begin([1, 2, 3, 4])
        with pytest.raises(RunFailed, match="host 1 was ended by the test, 5 times without a step between: look"):
            envs.recv()


class Silent(LocalHosts):
    """Hosts of this process that do not answer the order number `silent`."""

    silent = 5

    def collect(self, timeout: float) -> list[Any]:
        self.silent -= 1
        if self._orders and not self.silent:
            self._orders.popleft()
        return super().collect(timeout)


def test_a_host_that_does_not_answer_is_replaced() -> None:
    with closing(HostedEnvs(Silent, partial(make_envs, SeededEnv, False), 4, 2, timeout=0.05)) as envs:
        envs.begin([1, 2, 3, 4])
        shown = envs.recv()
        envs.send(shown.env_ids, np.ones(4, int))
        with pytest.warns(RuntimeWarning, match="host 0 has not answered for 0.05 s, and was ended: another one takes"):
            shown = envs.recv()
        assert shown.truncated[:2].all()
        assert envs.restarts == 1


class Pids(ProcessHosts):
    """Hosts in processes whose ids can be looked up."""

    made: Pids

    def __init__(self, plan: EnvsPlan) -> None:
        super().__init__(plan)
        Pids.made = self


@pytest.mark.usefixtures("fork_server")
@pytest.mark.filterwarnings("ignore:host 1 .* was ended by SIGKILL")
def test_a_process_that_is_killed_is_back_and_none_is_left() -> None:
    envs = HostedEnvs(Pids, partial(make_envs, SeededEnv, False), 4, 2)
    envs.begin([1, 2, 3, 4])
    shown, before = envs.recv(), Pids.made.pids
    os.kill(before[1], signal.SIGKILL)
    envs.send(shown.env_ids, np.ones(4, int))
    again = envs.recv()
    assert again.truncated[2:].all()
    assert_identical([again.final[i] for i in (2, 3)], [*shown.observation[2:]])
    after = Pids.made.pids
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)
    envs.close()
    assert not [pid for pid in {*before.values(), *after.values()} if os.path.exists(f"/proc/{pid}")]


class Leaving(SeededEnv):
    """Exits in its third step, unless a file says that one has."""

    def __init__(self, once: Path) -> None:
        super().__init__()
        self._once, self._steps = once, 0

    def step(self, action: Any) -> Any:
        self._steps += 1
        if self._steps == 3 and not self._once.exists():
            self._once.touch()
            sys.exit(0)
        return super().step(action)

    def close(self) -> None:
        time.sleep(0.2)
        with self._once.open("a") as file:
            file.write("closed\n")


@pytest.mark.usefixtures("fork_server")
def test_a_host_in_a_process_that_exits_is_replaced_and_counted(tmp_path: Path) -> None:
    with closing(HostedEnvs(Pids, partial(make_envs, partial(Leaving, tmp_path / "left"), False), 2, 1)) as envs:
        envs.begin([1, 2])
        with pytest.warns(
            RuntimeWarning, match=r"^host 0 \(process \d+\) raised SystemExit\(0\): another one takes its"
        ):
            for _ in range(4):
                shown = envs.recv()
                envs.send(shown.env_ids, np.ones(2, int))
        assert (envs.restarts, envs.lost_episodes) == (1, 2)
        assert (tmp_path / "left").read_text() == "closed\n" * 2


def rows_of_each(envs: HostedEnvs, at_least: int) -> list[list[Any]]:
    """What each environment shows, until every one has shown `at_least` rows."""
    rows: list[list[Any]] = [[] for _ in range(envs.num_envs)]
    with closing(envs):
        envs.begin([1, 2, 3, 4])
        while min(map(len, rows)) < at_least:
            shown = envs.recv()
            for place, i in enumerate(shown.env_ids.tolist()):
                rows[i].append((shown.observation[place].copy(), shown.reward[place], shown.first[place]))
            envs.send(shown.env_ids, np.ones(len(shown.env_ids), int))
    return rows


@pytest.mark.usefixtures("fork_server")
def test_processes_that_run_freely_show_what_they_show_in_rounds() -> None:
    make = partial(make_envs, SeededEnv, False)
    free = rows_of_each(HostedEnvs(ProcessHosts, make, 4, 2, free=True), 10)
    in_rounds = rows_of_each(HostedEnvs(LocalHosts, make, 4, 2), max(map(len, free)))
    for of_it, expected in zip(free, in_rounds, strict=True):
        assert_identical(of_it, expected[: len(of_it)])


class FailingEnv(SeededEnv):
    def step(self, action: Any) -> Any:
        raise ValueError("the sky has fallen")


def test_an_exception_of_an_environment_is_passed_on() -> None:
    with closing(HostedEnvs(LocalHosts, partial(make_envs, FailingEnv, False), 4, 2)) as envs:
        envs.begin([1, 2, 3, 4])
        shown = envs.recv()
        envs.send(shown.env_ids, np.ones(4, int))
        with pytest.raises(HostsFailed, match="host 0 raised ValueError: the sky has fallen"):
            envs.recv()


def test_hosts_with_other_spaces_are_refused() -> None:
    forms = iter(["array", "number"])

    def make(num_envs: int) -> LocalEnvs:
        return LocalEnvs(partial(SeededEnv, next(forms)), num_envs)

    with pytest.raises(ValueError, match=r"hosts must make environments with the same spaces, got .* of host 1"):
        HostedEnvs(LocalHosts, make, 4, 2)


def test_environments_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(ValueError, match="num_envs must be a multiple of the 3 hosts, got 4"):
        HostedEnvs(LocalHosts, partial(make_envs, SeededEnv, False), 4, 3)
