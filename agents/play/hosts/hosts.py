"""Training on hosts: many environments that are played by actors elsewhere.

The learner stays in this process, with evaluation, checkpoints and all that is logged. A checkpoint
holds nothing of the hosts, so that a run goes on with another number of them.

Where hosts infer (IMPALA's shape), they play blocks, and `HostRounds` learns from them. Where the learner infers (SEED
RL's), hosts only step environments, which the loop of many environments plays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gin
from absl import logging

from async_wrappers.agents.config.config import own_modules
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE_FINITE, choice, must, number, part, text, whole
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.hosts.engine import HostEngine
from async_wrappers.agents.play.hosts.host import ActingPlan
from async_wrappers.agents.play.hosts.host_processes import ProcessHosts
from async_wrappers.agents.play.hosts.host_rounds import BlockLog, HostRounds
from async_wrappers.agents.play.hosts.local_hosts import LocalHosts
from async_wrappers.agents.play.many.environments import VectorRunner
from async_wrappers.agents.play.many.learners import Group, LearnersElsewhere, check_sign, sign_directory
from async_wrappers.agents.play.many.many import Many
from async_wrappers.agents.play.many.rounds import LearnerShare, Share, Trained
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Phase
from async_wrappers.agents.timing import PARTS
from async_wrappers.extras import extra

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Run

_BLOCK = 16  # decisions of each environment, for agents that learn from no unrolls


@part
class Hosts:
    """Hosts that play the environments of `VectorRunner`: processes, or actors on a Ray cluster.

    Its other parameters are bound as ``VectorRunner``'s and ``Runner``'s; ``VectorRunner.num_envs`` counts the
    environments of all hosts. Where hosts infer, a training phase ends with a round of blocks.

    Several learners (``VectorRunner.learners``) have an equal share of the hosts each: as processes of this machine or,
    with ``engine='ray'``, spread over the cluster. A phase then ends as soon as all have played its frames together.

    Refused with a ValueError are, where the learner infers, several learners and, where hosts infer, updates in
    parallel, devices that act, and agents whose learner is no `Learner`.
    """

    engine: str = choice(
        "processes",
        "Where hosts run: ``'local'`` in this process, one after another; ``'processes'`` on this machine; ``'ray'``.",
        "local",
        "processes",
        "ray",
    )
    address: str | None = text("The Ray cluster's, such as ``'10.0.0.1:6379'``.", "a Ray of its own on this machine")
    cpus_per_host: int = whole(1, "CPUs of a host, and PyTorch's threads there.", 1, "CPU")
    gpus_per_host: float = number(
        0.0, "GPUs of a host, or a part of one, on which its policy computes; 0 computes on the CPU.", NOT_NEGATIVE
    )
    gpus_per_learner: float = number(
        0.0,
        "GPUs of each learner but the first on a Ray cluster, or a part of one. Each has ``Runner.threads`` CPUs "
        "there.",
        NOT_NEGATIVE,
    )
    num_hosts: int = whole(2, "Hosts, each with an equal share of ``VectorRunner.num_envs``.", 1, "host")
    inference: str = choice(
        "hosts",
        "Where actions are computed. ``'hosts'``: each host has a copy of the policy, and sends blocks of "
        "transitions. ``'learner'``: the learner's process computes those of all hosts at once, and hosts only step "
        "environments; this suits hosts that are too slow for a network.",
        "hosts",
        "learner",
    )
    mode: str = choice(
        "rounds",
        "In which order blocks are learnt. ``'rounds'``: in the order of the hosts, and host h plays block b on the "
        "weights after its block b - 1, so that a run is the same on every engine. ``'free'``: as they come, so that "
        "no host waits, and no two runs are alike. With ``inference = 'learner'`` the learner waits for the rows of "
        "all hosts (``'rounds'``), or takes those that have come (``'free'``).",
        "rounds",
        "free",
    )
    block_length: int | None = whole(
        None,
        "Decisions of each environment in a block.",
        1,
        "decision",
        none="the agent's unroll, or 16 where it learns from none",
    )
    max_version_lag: int | None = whole(
        None,
        "With ``mode = 'free'``: greatest number of updates by which the weights that played a block are behind when "
        "it is learnt. Older blocks are dropped and counted, with the episodes that run in them.",
        0,
        "updates",
        none="no limit",
    )
    host_timeout: float | None = number(
        300.0,
        "Seconds that a host may take to answer; a slower one is ended and replaced. A host in this process is never "
        "late.",
        POSITIVE_FINITE,
        none="no limit",
    )


class OnHosts:
    """Environments that hosts play, in the place of `async_wrappers.agents.play.many.many.Here`.

    Args:
        hosts: Settings of the hosts.
        settings: Of the environments.
        run: The experiment.

    Attributes:
        settings: Of the hosts.
        replaced: Hosts that died, or did not answer, and were replaced.
        dropped: Blocks that were dropped.
    """

    restarts = 0  # each host counts those of its own processes

    def __init__(self, hosts: Hosts, settings: VectorRunner, run: Run) -> None:
        self.settings, self._many, self._run = hosts, settings, run
        must(
            hosts.num_hosts % settings.learners == 0,
            f"Hosts.num_hosts must be a multiple of the {settings.learners} learners, got {hosts.num_hosts}",
        )
        self.shares = hosts.num_hosts, "hosts"
        self._block_length = 1  # decisions, once the agent is known
        self._hosts: HostRounds | None = None
        self._stepped: Any = None  # environments on hosts, where the learner infers
        self._before: int | None = None  # hosts of the checkpoint that the run goes on from
        self._trained: Sequence[Trained] = ()  # of all learners, in the last phase

    def check(self, agent: VectorAgent) -> None:
        spec: Any = agent.spec
        self._block_length = self.settings.block_length or _block_of(spec, self._many.num_envs)
        each, many, steps = self.settings, self._many, self.settings.inference == "learner"
        must(
            steps or isinstance(agent.learner, Learner),
            f"create_runner.schedule must not be 'hosts' with agent {spec.name!r}, whose learner is no "
            "async_wrappers.agents.learning.learner.Learner",
        )
        of_round = getattr(spec, "round_decisions", None)
        there = {
            "hosts that step": steps,
            "hosts that act": not steps,
            "free hosts": each.mode == "free",
            "hosts in rounds": each.mode == "rounds",
            "no Ray": each.engine != "ray",
            "no learners on Ray": each.engine != "ray" or many.learners == 1,
            "hosts, an agent of rounds": of_round is not None,
        }
        words = {"agent": spec.name, "engine": each.engine, "learners": many.learners}
        refuse(there, bound(self._run.settings, many, each), **words)
        must(
            steps or of_round is None or of_round % (self._block_length * many.num_envs) == 0,
            f"Hosts.block_length must divide the {(of_round or 0) // many.num_envs} decisions of each environment in a "
            f"round of agent {spec.name!r}, got {self._block_length}",
        )

    @property
    def _patience(self) -> float | None:
        """Seconds that a host is waited for; one in this process plays while the learner waits, and is never late."""
        return None if self.settings.engine == "local" else self.settings.host_timeout

    def open(self, stack: ExitStack, many: Many) -> LearnerShare:
        now = self.settings.num_hosts
        if self._before not in (None, now):
            logging.warning("the run goes on with %d hosts, and had %d before", now, self._before)
        if self.settings.inference == "learner":
            return self._open_hosts_that_step(stack, many)
        hosting, group = self._hosting(many), None
        if many.others.number:
            if self.settings.engine == "ray":
                stack.enter_context(self._connected())
            group = many.others.start(stack, *self._share_elsewhere(many, hosting))
        self._hosts = stack.enter_context(closing(hosting.share(many.agent, self.make_engine, group)))
        return self._hosts

    def _open_hosts_that_step(self, stack: ExitStack, many: Many) -> Share:
        # Agents do not import environments: as that of all others, their class is found by its name in gin.
        envs = gin.get_configurable("HostedEnvs")(
            self.make_engine,
            many.environments.portable(),
            self._many.num_envs,
            self.settings.num_hosts,
            free=self.settings.mode == "free",
            double_buffered=self._many.double_buffered,
            timeout=self._patience,
        )
        self._stepped = stack.enter_context(closing(envs))
        seeds = many.environments.seeds_of(Phase.TRAIN, self._many.num_envs)
        return Share(many.agent, many.environments.checked(Phase.TRAIN, envs), seeds)

    def _hosting(self, many: Many) -> _Hosting:
        each, spec = self.settings, many.agent.spec
        plan = ActingPlan(
            spec,
            many.environments.portable(),
            many.environments.all_seeds(),
            self._many.num_envs,
            each.num_hosts,
            self._block_length,
            ("cuda" if each.gpus_per_host else "cpu") if hasattr(spec, "on_device") else None,
            guide=None if many.agent.lessons is None else many.agent.lessons.guide,
        )
        free, lag = each.mode == "free", each.max_version_lag
        return _Hosting(plan, self._many.learners, self._run.base_dir.absolute(), free, lag, self._patience)

    def _share_elsewhere(
        self, many: Many, hosting: _Hosting
    ) -> tuple[Callable[[Group], LearnerShare], LearnersElsewhere | None]:
        """Return what makes another learner's share, and where it runs; None is this machine."""
        make = partial(_make_share, many.make_agent, hosting, self.engine_maker)
        if self.settings.engine != "ray":
            return make, None
        from async_wrappers.agents.play.hosts.on_ray import learners_on_ray

        each, threads = self.settings, self._run.settings.threads
        others, of_hosts = self._many.learners - 1, each.cpus_per_host * each.num_hosts
        elsewhere = learners_on_ray(others, threads, each.gpus_per_learner, of_hosts)
        return partial(make, sign=sign_directory(self._run.base_dir)), elsewhere

    def _connected(self) -> AbstractContextManager[None]:
        """Return a connection to the cluster, for learners and hosts."""
        with extra("Hosts.engine = 'ray'", "ray"):
            from async_wrappers.ray_cluster import connected_to_ray
        of_hosts = self.settings.cpus_per_host * self.settings.num_hosts
        cpus = of_hosts + self._run.settings.threads * (self._many.learners - 1)
        return connected_to_ray(self.settings.address, cpus, niceness=0)

    def make_engine(self, plan: ActingPlan) -> HostEngine:
        """Make the engine that runs this learner's hosts."""
        return self.engine_maker(plan)

    @property
    def engine_maker(self) -> Callable[[ActingPlan], HostEngine]:
        """Return what makes the engine of a learner, here or elsewhere."""
        each = self.settings
        if each.engine == "local":
            return LocalHosts
        threads = each.cpus_per_host
        if each.engine == "processes":
            return partial(ProcessHosts, modules=own_modules(), threads=threads)
        with extra("Hosts.engine = 'ray'", "ray"):
            from async_wrappers.agents.play.hosts.on_ray import RayHosts
        return partial(
            RayHosts,
            modules=own_modules(),
            threads=threads,
            address=each.address if self._many.learners == 1 else None,  # several are connected already
            num_hosts=each.num_hosts,
            cpus=threads,
            gpus=each.gpus_per_host,
        )

    def note(self, trained: Sequence[Trained]) -> None:
        self._trained = trained

    @property
    def replaced(self) -> int:
        """Of this learner now, of the others at the end of the last phase."""
        hosts = self._hosts or self._stepped
        here = 0 if hosts is None else int(hosts.restarts)
        return here + sum(each.replaced for each in self._trained[1:])

    @property
    def dropped(self) -> int:
        here = 0 if self._hosts is None else self._hosts.dropped
        return here + sum(each.dropped for each in self._trained[1:])

    def state(self) -> dict[str, Any]:
        return {"hosts": {"num_hosts": self.settings.num_hosts}}

    def load_state(self, bundle: Mapping[str, Any]) -> None:
        self._before = bundle.get("hosts", {}).get("num_hosts")

    def facts(self) -> dict[str, str]:
        each = self.settings
        what = "inference here" if each.inference == "learner" else f"blocks of {self._block_length} decisions"
        return {"hosts": f"{each.num_hosts} hosts ({each.engine}, {each.mode}), {what}"}

    def statistics(self) -> dict[str, Any]:
        dropped = {} if self._hosts is None else {"dropped_blocks": self.dropped}
        return {"hosts_replaced": self.replaced, **dropped}

    def table(self, seconds: float) -> list[str]:
        each, lines = self.settings, [f"{'hosts replaced':<38}{self.replaced:>12,}"]
        if self._stepped is not None:
            took, of_all = self._stepped.seconds, seconds * each.num_hosts
            return [*lines, f"{'hosts: time of stepping':<38}{took:>12,.1f} s{took / max(of_all, 1e-9):>9.1%}"]
        if each.mode == "free":
            lines.append(f"{'blocks dropped as too old':<38}{self.dropped:>12,}")
        timings = {} if self._hosts is None else self._hosts.timings
        whole = max(timings.get("Block", 0.0), 1e-9)
        return lines + [
            f"{f'hosts: time of {PARTS[name]}':<38}{timings[name]:>12,.1f} s{timings[name] / whole:>9.1%}"
            for name in PARTS
            if name in timings
        ]


def on_hosts(hosts: Hosts, settings: VectorRunner, run: Run) -> Many:
    """Make the way of playing many environments on hosts."""
    return Many(settings, run, partial(OnHosts, hosts))


def _block_of(spec: Any, num_envs: int) -> int:
    """Return the decisions of a block that suit an agent."""
    if (of_round := getattr(spec, "round_decisions", None)) is not None:
        return max(1, int(of_round) // num_envs)
    return int(getattr(spec, "unroll_length", _BLOCK))


@dataclass(frozen=True)
class _Hosting:
    """How hosts play for learners; it travels to other learners.

    Attributes:
        plan: Of all hosts.
        learners: How many share them.
        base_dir: The run's.
        free: As in `HostRounds`, like the others.
    """

    plan: ActingPlan
    learners: int
    base_dir: Path
    free: bool
    max_version_lag: int | None
    timeout: float | None

    def share(
        self, agent: VectorAgent, make_engine: Callable[[ActingPlan], HostEngine], group: Group | None
    ) -> HostRounds:
        """Make a learner's share of the run, with its share of the hosts."""
        number, count = (0 if group is None else group.number), self.plan.num_hosts // self.learners
        hosts = range(number * count, (number + 1) * count)
        engine = make_engine(replace(self.plan, first_env=hosts[0] * self.plan.share))
        journal = BlockLog(self.base_dir, number)
        return HostRounds(agent, engine, hosts, journal, self.free, self.max_version_lag, self.timeout, group)


def _make_share(
    make_agent: Callable[..., VectorAgent],
    hosting: _Hosting,
    make_engine: Callable[[ActingPlan], HostEngine],
    group: Group,
    sign: str | None = None,
) -> HostRounds:
    """Make the share of a learner in its process."""
    if sign is not None:
        check_sign(hosting.base_dir, sign)
    return hosting.share(make_agent(number=group.number), make_engine, group)
