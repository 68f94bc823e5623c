"""Each frame that hosts have played is of one episode: one that ended, one that was cut, or one that runs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Set
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.play.actor import Ended
from async_wrappers.agents.play.hosts.engine import HostsFailed
from async_wrappers.agents.play.hosts.host import ActingPlan
from async_wrappers.agents.play.hosts.host_rounds import BlockLog, HostRounds
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.agents.play.hosts.played_block import PlayedBlock
from async_wrappers.agents.play.many.rounds import Trained
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Interruption, Length
from async_wrappers.envs import EpisodicLife
from tests.contracts.hosts_contract import HOSTS, SHARE, make_envs, plan_of
from tests.worlds.agents import hyperparameters
from tests.worlds.lives_env import LivesEnv
from tests.worlds.seeded_env import SeededEnv


class Dying(LocalHosts):
    """A host dies instead of giving some of the answers, by their numbers."""

    def __init__(self, plan: ActingPlan, deaths: Set[int]) -> None:
        super().__init__(plan)
        self._answers, self._deaths = 0, deaths

    def collect(self, timeout: float) -> list[Any]:
        found = super().collect(timeout)
        if found and isinstance(found[0], PlayedBlock):
            self._answers += 1
            if self._answers in self._deaths:
                self.kill(found[0].host, "was ended by the test")
                return []
        return found


def game_of_lives() -> EpisodicLife:
    return EpisodicLife(LivesEnv())


def plan_and_agent(block_length: int, lives: bool) -> tuple[ActingPlan, VectorAgent]:
    kind = game_of_lives if lives else partial(SeededEnv, longest=12)
    env: Any = kind()
    spec = DQN(env.observation_space, env.action_space, **hyperparameters(DQN, update_period=4))
    plan = replace(plan_of(), spec=spec, make_envs=partial(make_envs, kind), block_length=block_length)
    return plan, VectorAgent(spec, HOSTS * SHARE)


@settings(deadline=None, max_examples=10)
@given(
    free=st.booleans(),
    lives=st.booleans(),
    lag=st.none() | st.integers(2, 6),
    block_length=st.integers(1, 9),
    phases=st.lists(st.integers(1, 150), min_size=1, max_size=3),
    deaths=st.sets(st.integers(1, 30), max_size=2),
    due=st.sampled_from(Interruption),
)
def test_frames_and_episodes_add_up_at_the_end_of_a_phase_and_of_a_part_of_one(
    free: bool, lives: bool, lag: int | None, block_length: int, phases: list[int], deaths: set[int], due: Interruption
) -> None:
    plan, agent = plan_and_agent(block_length, lives)
    over: list[Ended] = []
    cut = 0

    def check(trained: Trained) -> None:
        rows = agent.rows.state_dict()
        ended = [*over, *trained.over]
        assert trained.frames == sum(rows["frames"])
        assert sum(each.frames for each in ended) + cut + trained.cut_frames + sum(rows["cut"]) == trained.frames
        by_env = Counter(each.env_id for each in ended)
        assert all(by_env[env_id] <= number for env_id, number in enumerate(rows["episodes"]))
        stamps = [each.training_frames for each in ended]
        assert all(stamps) and max(stamps, default=0) <= trained.frames

    with tempfile.TemporaryDirectory() as place:
        rounds = HostRounds(
            agent, Dying(plan, deaths), range(HOSTS), BlockLog(Path(place)), free, lag if free else None, None
        )
        with closing(rounds):
            for frames in phases:
                try:
                    trained = rounds.train(Length(frames, None), not free, due=lambda: due)
                except HostsFailed as error:
                    assert "max_version_lag must be larger" in str(error)  # each block was too old
                    return
                check(trained)
                over += trained.over
                cut += trained.cut_frames
