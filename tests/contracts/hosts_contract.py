"""What every engine of hosts keeps: subclass `HostsContract` and give it `make_engine`.

class TestMyHosts(HostsContract):
    def make_engine(self, plan):
        return MyHosts(plan)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
import torch

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.actor import RunningEpisodes
from async_wrappers.agents.play.hosts.engine import HostEngine, HostsFailed, Lost
from async_wrappers.agents.play.hosts.host import ActingPlan
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.agents.play.hosts.played_block import PlayedBlock
from async_wrappers.agents.play.many.environments import NumberedEpisodes, Seeds
from async_wrappers.agents.play.play import Phase
from async_wrappers.batched.local import LocalEnvs
from tests.worlds.agents import hyperparameters
from tests.worlds.plain_data import assert_identical
from tests.worlds.seeded_env import SeededEnv

__all__ = ["HostsContract", "plan_of"]

HOSTS, SHARE = 2, 3
PATIENCE = 240.0  # seconds, on a busy machine


class FailingEnv(SeededEnv):
    """An environment that raises an exception after some frames."""

    def step(self, action: Any) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps > 5:
            raise ValueError("the sky has fallen")
        return super().step(action)


def make_envs(kind: Callable[[], gym.Env[Any, Any]], num_envs: int) -> LocalEnvs:
    return LocalEnvs(lambda: NumberedEpisodes(kind(), 7, Phase.TRAIN, HOSTS * SHARE, None), num_envs)


def short_episodes() -> SeededEnv:
    return SeededEnv(longest=4)


def plan_of() -> ActingPlan:
    env = SeededEnv()
    spec = DQN(
        env.observation_space,
        env.action_space,
        **hyperparameters(DQN, actor_priorities=True, replay_scheme="prioritized"),
    )
    seeds = [Seeds(7, Phase.TRAIN, False, host * SHARE, HOSTS * SHARE) for host in range(HOSTS)]
    return ActingPlan(spec, partial(make_envs, short_episodes), seeds, HOSTS * SHARE, HOSTS, 4, None)


def weights_of(plan: ActingPlan, number: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(number)
    network: Any = plan.spec.make_network()  # type: ignore[attr-defined]
    return {name: torch.randn_like(weight) for name, weight in network.state_dict().items()}


def nothing_played(plan: ActingPlan) -> Mapping[str, Any]:
    return RunningEpisodes(plan.spec, plan.share, False).state_dict()


def timeless(block: PlayedBlock) -> PlayedBlock:
    return block._replace(timings={})


def collected(engine: HostEngine, number: int) -> list[PlayedBlock | Lost]:
    """Wait for a number of things."""
    found: list[PlayedBlock | Lost] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < number:
        assert time.monotonic() < deadline, f"only {found} came"
        found += engine.collect(0.5)
    return found


class HostsContract:
    def make_engine(self, plan: ActingPlan) -> HostEngine:
        raise NotImplementedError

    @pytest.fixture
    def plan(self) -> ActingPlan:
        return plan_of()

    @pytest.fixture
    def engine(self, plan: ActingPlan) -> Iterator[HostEngine]:
        with closing(self.make_engine(plan)) as engine:
            yield engine

    def test_hosts_play_what_they_play_in_one_process(self, plan: ActingPlan, engine: HostEngine) -> None:
        def played(hosts: HostEngine) -> list[Any]:
            for host in range(HOSTS):
                hosts.start(host, 0, nothing_played(plan))
            by_host: dict[int, list[Any]] = {host: [] for host in range(HOSTS)}
            for number, cut in enumerate([False, False, False, True, False, False]):
                if number != 2:
                    hosts.publish(weights_of(plan, number), number)
                for host in range(HOSTS):
                    hosts.submit(host, cut)
                if number != 1:  # two orders in flight
                    for block in collected(hosts, HOSTS * (1 + (number == 2))):
                        assert isinstance(block, PlayedBlock)
                        by_host[block.host].append(timeless(block))
            return list(by_host.values())

        with closing(LocalHosts(plan)) as local:
            expected = played(local)
        assert [block.number for block in expected[0]] == list(range(6))
        assert [block.version for block in expected[0]] == [0, 1, 1, 3, 4, 5]
        assert [block.decisions for block in expected[0]] == [0, 12, 12, 0, 0, 12]
        assert sum(len(block.ended) for block in expected[1]) > 3
        assert_identical(played(engine), expected)

    def test_another_incarnation_takes_the_place_of_a_host_that_was_ended(
        self, plan: ActingPlan, engine: HostEngine
    ) -> None:
        engine.publish(weights_of(plan, 0), 0)
        for host in range(HOSTS):
            engine.start(host, 0, nothing_played(plan))
            engine.submit(host)
        blocks = collected(engine, HOSTS)
        assert {block.host for block in blocks} == {0, 1}
        engine.kill(1, "was ended by the test")
        engine.submit(0)
        found = collected(engine, 2)
        (lost,) = [each for each in found if isinstance(each, Lost)]
        assert (lost.host, lost.incarnation, lost.why) == (1, 0, "was ended by the test")
        engine.start(1, 1, nothing_played(plan))
        engine.submit(1)
        (block,) = collected(engine, 1)
        assert isinstance(block, PlayedBlock)
        assert (block.host, block.incarnation, block.number, block.begins) == (1, 1, 0, True)

    def test_an_exception_of_an_environment_is_passed_on(self) -> None:
        plan = replace(plan_of(), make_envs=partial(make_envs, FailingEnv))
        with closing(self.make_engine(plan)) as engine:
            engine.publish(weights_of(plan, 0), 0)
            engine.start(0, 0, nothing_played(plan))
            with pytest.raises(HostsFailed, match=r"host 0 raised ValueError: the sky has fallen"):
                for _ in range(3):
                    engine.submit(0)
                    collected(engine, 1)
            engine.close()  # may be called twice
