"""A host: the acting half of an agent of many environments, which plays blocks for a learner elsewhere."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import torch

from async_wrappers.agents.acting.decisions import RowsPolicy
from async_wrappers.agents.play.actor import Actor, ShownRows
from async_wrappers.agents.play.hosts.engine import HostsFailed, Player
from async_wrappers.agents.play.hosts.played_block import BlockOrder, BlockRecorder, PlayedBlock
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PartTimes
from async_wrappers.version import __version__
from async_wrappers.wrapper_statistics import give_statistics, statistics_of_envs

if TYPE_CHECKING:
    from async_wrappers.agents.play.hosts.engine import HostPlan


@dataclass(frozen=True)
class ActingPlan:
    """What a host is made from; it travels to other processes by cloudpickle.

    Attributes:
        spec: The agent's.
        make_envs: Makes environments (`BatchedEnvs`) from ``num_envs=``.
        seeds: Of each host, from the numbers of the episodes that begin to the seeds of its environments.
        num_envs: N, of all hosts together.
        num_hosts: H; each has N / H environments.
        block_length: Decisions of each environment in a block, T.
        device: Where the policy computes, such as ``"cpu"``; None where the spec says so itself.
        first_env: The environment that the learner counts as its first, where it is one of several.
        guide: A teacher's part in acting, where the agent is a student.
    """

    spec: Spec
    make_envs: Callable[..., Any]
    seeds: Sequence[Callable[[Sequence[int]], list[int]]]
    num_envs: int
    num_hosts: int
    block_length: int
    device: str | None
    first_env: int = 0
    guide: Any = None

    @property
    def share(self) -> int:
        """Environments of a host."""
        return self.num_envs // self.num_hosts

    def make_host(self, number: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> Host:
        return Host(self, number, incarnation, rows)


class Host:
    """Plays N / H environments, block by block.

    Args:
        plan: What it is made from.
        number: Which host it is.
        incarnation: How often it was started before.
        rows: The counts and statistics of its environments, as `RunningEpisodes.state_dict` has them.
    """

    def __init__(self, plan: ActingPlan, number: int, incarnation: int, rows: Mapping[str, Sequence[int]]) -> None:
        self._plan, self.number, self.incarnation = plan, number, incarnation
        spec: Any = plan.spec if plan.device is None else plan.spec.on_device(plan.device)  # type: ignore[attr-defined]
        first = number * plan.share
        self._recorder = BlockRecorder(first - plan.first_env)
        self._guide = None if plan.guide is None else plan.guide.apart()
        self._actor = Actor(spec, plan.share, self._recorder, first, plan.num_hosts, self._guide)
        self._actor.rows.load_state_dict(rows)
        self._weights = _Weights(spec)
        self._policy: RowsPolicy = spec.make_vector_policy(self._weights, plan.num_envs)
        self._envs = plan.make_envs(num_envs=plan.share)
        if any(self._actor.rows.statistics):
            give_statistics(self._envs, self._actor.rows.statistics)
        self._shown: ShownRows | None = None  # rows that wait for their actions
        self._blocks = 0
        self._ahead = 0  # decisions beyond those of whole blocks
        self.times = PartTimes()

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Act on copies of these tensors or arrays from now on, which have `version` updates."""
        if version != self._weights.version:
            self._weights.load(weights, version)

    def play(self, order: BlockOrder | bool = False) -> PlayedBlock:
        """Play a block.

        Where no episodes run, new ones begin, and the block ends before their first decisions, which the learner may
        want to be made on other weights.

        Args:
            order: Whether to cut, and with it, of a student, how far it is.
        """
        cut, progress = order if isinstance(order, BlockOrder) else BlockOrder(order)
        if self._guide is not None and progress is not None:
            self._guide.follow(progress)
        began, rows, decisions = time.perf_counter(), self._actor.rows, 0
        begins = self._shown is None and not cut
        if cut:
            if self._shown is not None:
                self._observe(self._envs.cut(), waits=False)
            self._shown = None
        elif begins:
            self._envs.begin(self._plan.seeds[self.number]((rows.episode + 1).tolist()))
            self._observe(self._envs.recv())
            self._ahead = 0
        else:
            # A call of `recv` may show some of the environments, so that blocks need not end evenly.
            wanted = self._plan.block_length * self._plan.share - self._ahead
            while decisions < wanted:
                decisions += self._decide()
            self._ahead = decisions - wanted
        self._blocks += 1
        rows.statistics = statistics_of_envs(self._envs)
        return PlayedBlock(
            host=self.number,
            incarnation=self.incarnation,
            number=self._blocks - 1,
            version=self._weights.version,
            decisions=decisions,
            begins=begins,
            cut=cut,
            **self._recorder.take(),
            rows=rows.counts(),
            timings={**self.times.take(), "Block": time.perf_counter() - began},
        )

    def _decide(self) -> int:
        """Decide on all rows that wait, and observe what comes next; return the number of decisions."""
        shown = self._shown
        assert shown is not None
        begin = time.perf_counter()
        action = self._actor.rows.decide(shown, self._policy)
        begin = self.times.add("Act", begin)
        self._envs.send(shown.env_ids, action)
        shown_next = self._envs.recv()
        self.times.add("Step", begin)
        self._observe(shown_next)
        return len(shown.env_ids)

    def _observe(self, shown: ShownRows, waits: bool = True) -> None:
        begin = time.perf_counter()
        ended = self._actor.observe(shown)
        frames = self._actor.rows.frames_of_all
        applied = int(shown.realtime["applied"].sum())
        self._recorder.step(len(shown.env_ids) if waits else 0, applied, frames, ended)
        self._shown = shown
        self.times.add("Store", begin)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()


class _Weights:
    """Stands for a learner, whose weights a policy reads in place.

    Attributes:
        network: What policies read.
        acting: The same.
        updates: As in `Learner`.
        version: The same.
    """

    def __init__(self, spec: Any) -> None:
        network = spec.make_network()
        self.network = self.acting = getattr(network, "acting", network).requires_grad_(False)
        self.updates = self.version = -1

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        # Copies: what came from elsewhere may be read-only, or begin anywhere in memory.
        self.network.load_state_dict({name: torch.tensor(np.asarray(each)) for name, each in weights.items()})
        self.updates = self.version = version

    def weights(self) -> Mapping[str, Any]:
        weights: Mapping[str, Any] = self.network.state_dict()
        return weights


def make_host(
    payload: bytes,
    modules: Sequence[str],
    threads: int,
    number: int,
    incarnation: int,
    rows: Mapping[str, Sequence[int]],
) -> Player:
    """Make a host in a process of its own.

    Args:
        payload: A pickled `HostPlan`.
        modules: What is imported first.
        threads: Intra-op threads of PyTorch.
        number: As in `Host`.
        incarnation: As in `Host`.
        rows: As in `Host`.

    Raises:
        HostsFailed: A module of the user's is not there.
    """
    torch.set_num_threads(threads)
    try:
        for module in modules:
            import_module(module)
        plan: HostPlan = cloudpickle.loads(payload)
    except ModuleNotFoundError as error:
        raise HostsFailed(
            f"host {number} ({platform.node()}) cannot import {error.name!r}: install the module there, or put it "
            "under the same path as here"
        ) from None
    player: Player = plan.make_host(number, incarnation, rows)
    return player


def versions() -> dict[str, str]:
    """Return the versions on which results depend: of the project, Python, NumPy and PyTorch."""
    return {
        "async_wrappers": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "PyTorch": torch.__version__,
    }
