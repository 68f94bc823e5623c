"""Training on hosts: the vector runner's phases, whose environments are played by actors elsewhere.

The learner of `VectorRunner` stays in this process, with evaluation, checkpoints and all that is logged. A checkpoint
holds nothing of the hosts, so that a run goes on with another number of them.

Where hosts infer (IMPALA's shape), they play blocks, and `HostRounds` learns from them. Where the learner infers (SEED
RL's), hosts only step environments, which the vector runner's own loop plays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gin
from absl import logging

from async_wrappers.agents.experiment.host_rounds import HostRounds, Journal
from async_wrappers.agents.experiment.learners import Group, LearnersElsewhere, check_sign, sign_directory
from async_wrappers.agents.experiment.other_run import own_modules
from async_wrappers.agents.experiment.rounds import LearnerShare, Share
from async_wrappers.agents.experiment.vector_runner import VectorRunner
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.play.hosts.engine import HostEngine, HostPlan
from async_wrappers.agents.play.hosts.host import Plan
from async_wrappers.agents.play.hosts.local import LocalHosts
from async_wrappers.agents.play.hosts.processes import ProcessHosts
from async_wrappers.agents.play.many.seeds import Seeds
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Phase, Played
from async_wrappers.agents.settings import NOT_NEGATIVE, POSITIVE_FINITE, choice, must, number, runner, text, whole
from async_wrappers.agents.timing import PARTS
from async_wrappers.extras import extra

__all__ = ["Hosts"]

_BLOCK = 16  # decisions of each environment, for agents that learn from no unrolls


@runner
class Hosts(VectorRunner):
    """The iterations of `VectorRunner`, whose environments are played by hosts: processes, or actors on a Ray cluster.

    Its other parameters are bound as ``VectorRunner``'s and ``Runner``'s; ``VectorRunner.num_envs`` counts the
    environments of all hosts. Where hosts infer, a training phase ends with a round of blocks.

    Several learners (``VectorRunner.learners``) have an equal share of the hosts each: as processes of this machine or,
    with ``engine='ray'``, spread over the cluster. A phase then ends as soon as all have played its frames together.

    Refused with a ValueError are, where the learner infers, several learners and, where hosts infer, updates in
    parallel, devices that act, and agents whose learner is no `Learner`.

    Attributes:
        restarts: Hosts that died, or did not answer, and were replaced.
        dropped: Blocks that were dropped.
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
        "Where actions are computed. ``'hosts'``: each host has a copy of the policy, and sends blocks of transitions. "
        "``'learner'``: here, for all hosts at once, which only step environments; for hosts without the processor "
        "time for a network.",
        "hosts",
        "learner",
    )
    mode: str = choice(
        "rounds",
        "The order of things. ``'rounds'``: host h plays block b on the weights after its block b - 1, and blocks are "
        "learnt in the order of the hosts, so that a run is the same on every engine. ``'free'``: blocks are learnt as "
        "they come, so that no host waits, and no run is like another. Where the learner infers: it waits for the rows "
        "of all hosts, or takes those that have come.",
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
        "Updates by which the weights that played a block may be behind when it is learnt; older blocks are dropped, "
        "with the episodes that run in them, and counted. Of free running alone.",
        0,
        "updates",
        none="no limit",
    )
    host_timeout: float | None = number(
        300.0,
        "Seconds that a host is waited for: then it is ended, and replaced. A host in this process is never late.",
        POSITIVE_FINITE,
        none="no limit",
    )

    def set_up(self) -> None:
        """See `Runner`."""
        super().set_up()
        spec, free = self.agent.spec, self.mode == "free"
        if self.inference == "hosts":
            self._check_hosts_that_act()
        else:
            self._check_hosts_that_step()
        must(
            not (free and self.exact_resume),
            "Runner.exact_resume must be False where Hosts.mode = 'free', whose runs are never alike, got True",
        )
        must(
            free or self.max_version_lag is None,
            f"Hosts.max_version_lag must be None where Hosts.mode = 'rounds', got {self.max_version_lag}",
        )
        must(
            self.address is None or self.engine == "ray",
            f"Hosts.address must be None where Hosts.engine = {self.engine!r}, got {self.address!r}",
        )
        must(
            not self.gpus_per_learner or (self.engine == "ray" and self.learners > 1),
            f"Hosts.gpus_per_learner must be 0 where Hosts.engine = {self.engine!r} and VectorRunner.learners = "
            f"{self.learners}, got {self.gpus_per_learner}",
        )
        self._check_rounds(getattr(spec, "round_decisions", None), free)
        self._hosts: HostRounds | None = None
        self._stepped: Any = None  # environments on hosts, where the learner infers
        self._hosts_before: int | None = None  # of the checkpoint that the run goes on from

    def _check_shares(self) -> None:
        must(
            self.num_hosts % self.learners == 0,
            f"Hosts.num_hosts must be a multiple of the {self.learners} learners, got {self.num_hosts}",
        )
        super()._check_shares()

    def _check_hosts_that_act(self) -> None:
        """Refuse what is of the vector runner's own loop."""
        must(
            not self.overlap,
            "Runner.overlap must be False where create_runner.schedule = 'hosts', whose hosts play meanwhile, got True",
        )
        must(
            self.act_devices is None,
            "VectorRunner.act_devices must be None where create_runner.schedule = 'hosts', whose hosts act, got "
            f"{self.act_devices!r}",
        )
        must(
            isinstance(self.agent.learner, Learner),
            f"create_runner.schedule must not be 'hosts' with agent {self.agent.spec.name!r}, whose learner is no "
            "async_wrappers.agents.learning.learner.Learner",
        )

    def _check_hosts_that_step(self) -> None:
        """Refuse what is of hosts that act."""
        why = "must be {} where Hosts.inference = 'learner', {}, got {!r}"
        steps = "whose hosts play step by step and send no blocks"
        newest = "which acts on the newest weights"
        cpu = "whose hosts compute no network"
        must(
            self.learners == 1,
            f"VectorRunner.learners must be 1 where Hosts.inference = 'learner', got {self.learners}: with several "
            "learners bind Hosts.inference = 'hosts'",
        )
        must(self.block_length is None, "Hosts.block_length " + why.format(None, steps, self.block_length))
        must(self.max_version_lag is None, "Hosts.max_version_lag " + why.format(None, newest, self.max_version_lag))
        must(not self.gpus_per_host, "Hosts.gpus_per_host " + why.format(0, cpu, self.gpus_per_host))

    def _check_rounds(self, of_agent: int | None, free: bool) -> None:
        """Refuse blocks that do not fit an agent which learns from whole rounds."""
        if of_agent is None:
            return
        name, of_block = self.agent.spec.name, self._block_length * self.num_envs
        must(
            not free,
            f"Hosts.mode must be 'rounds' with agent {name!r}, which learns from whole rounds of all environments, got "
            "'free'",
        )
        must(
            self.inference == "learner" or of_agent % of_block == 0,
            f"Hosts.block_length must divide the {of_agent // self.num_envs} decisions of each environment in a round "
            f"of agent {name!r}, got {self._block_length}",
        )

    @property
    def _patience(self) -> float | None:
        """Seconds that a host is waited for; one in this process plays while the learner waits, and is never late."""
        return None if self.engine == "local" else self.host_timeout

    @property
    def _block_length(self) -> int:
        if self.block_length is not None:
            return self.block_length
        spec: Any = self.agent.spec
        if (of_round := getattr(spec, "round_decisions", None)) is not None:
            return max(1, int(of_round) // self.num_envs)
        return int(getattr(spec, "unroll_length", _BLOCK))

    @property
    def _shares_of_envs(self) -> tuple[int, str]:
        return self.num_hosts, "hosts"

    def _open_share(self, stack: ExitStack) -> LearnerShare:
        if self._hosts_before not in (None, self.num_hosts):
            logging.warning("the run goes on with %d hosts, and had %d before", self.num_hosts, self._hosts_before)
        return self._open_hosts_that_act(stack) if self.inference == "hosts" else self._open_hosts_that_step(stack)

    def _open_hosts_that_step(self, stack: ExitStack) -> Share:
        # Agents do not import environments: as that of all others, their class is found by its name in gin.
        envs = gin.get_configurable("HostedEnvs")(
            self._make_engine,
            self._portable_envs(),
            self.num_envs,
            self.num_hosts,
            free=self.mode == "free",
            double_buffered=self.double_buffered,
            timeout=self._patience,
        )
        self._stepped = stack.enter_context(closing(envs))
        seeds = Seeds(self.seed, Phase.TRAIN, self.create_vector_fn is not None, 0, self.num_envs)
        return Share(self.agent, self._checked(Phase.TRAIN, envs), seeds)

    def _open_hosts_that_act(self, stack: ExitStack) -> HostRounds:
        if self.learners > 1:
            if self.engine == "ray":
                stack.enter_context(self._connected())
            self._others = stack.enter_context(closing(self._start_learners()))
        group = None if self._others is None else self._others.group
        self._hosts = stack.enter_context(closing(self._hosting.share(self.agent, self._make_engine, group)))
        return self._hosts

    @property
    def _hosting(self) -> _Hosting:
        plan = Plan(
            self.agent.spec,
            self._portable_envs(),
            self._all_seeds(),
            self.num_envs,
            self.num_hosts,
            self._block_length,
            ("cuda" if self.gpus_per_host else "cpu") if hasattr(self.agent.spec, "on_device") else None,
        )
        free, lag, timeout = self.mode == "free", self.max_version_lag, self._patience
        return _Hosting(plan, self.learners, self.base_dir.absolute(), free, lag, timeout)

    def _share_elsewhere(self) -> tuple[Callable[[Group], LearnerShare], LearnersElsewhere | None]:
        make = partial(_make_share, self._make_agent, self._hosting, self._engine_maker)
        if self.engine != "ray":
            return make, None
        from async_wrappers.agents.experiment.learners_on_ray import LearnersOnRay

        elsewhere = LearnersOnRay(self.threads, self.gpus_per_learner, self.cpus_per_host * self.num_hosts)
        return partial(make, sign=sign_directory(self.base_dir)), elsewhere

    def _connected(self) -> AbstractContextManager[None]:
        """Return a connection to the cluster, for learners and hosts."""
        with extra("Hosts.engine = 'ray'", "ray"):
            from async_wrappers.ray_cluster import connected_to_ray
        cpus = self.cpus_per_host * self.num_hosts + self.threads * (self.learners - 1)
        return connected_to_ray(self.address, cpus, niceness=0)

    def _make_engine(self, plan: HostPlan) -> HostEngine:
        return self._engine_maker(plan)

    @property
    def _engine_maker(self) -> Callable[[HostPlan], HostEngine]:
        """Return what makes the engine of a learner, here or elsewhere."""
        if self.engine == "local":
            return LocalHosts
        threads = self.cpus_per_host
        if self.engine == "processes":
            return partial(ProcessHosts, modules=own_modules(), threads=threads)
        with extra("Hosts.engine = 'ray'", "ray"):
            from async_wrappers.agents.play.hosts.on_ray import RayHosts
        return partial(
            RayHosts,
            modules=own_modules(),
            threads=threads,
            address=self.address if self.learners == 1 else None,  # several are connected already
            num_hosts=self.num_hosts,
            cpus=threads,
            gpus=self.gpus_per_host,
        )

    @property
    def restarts(self) -> int:
        """See the class."""
        hosts = self._hosts or self._stepped
        return self._counted("replaced", 0 if hosts is None else int(hosts.restarts))

    @property
    def dropped(self) -> int:
        """See the class."""
        return self._counted("dropped", 0 if self._hosts is None else self._hosts.dropped)

    def _counted(self, name: str, here: int) -> int:
        """Return a count of all learners: of this one now, of the others at the end of the last phase."""
        return here + sum(int(getattr(each, name)) for each in self._trained[1:])

    # Checkpoints and reports.

    def _bundle(self, agent: Mapping[str, Any], done: int) -> dict[str, Any]:
        return {**super()._bundle(agent, done), "hosts": {"num_hosts": self.num_hosts}}

    def _take_counts(self, bundle: Mapping[str, Any]) -> None:
        super()._take_counts(bundle)
        self._hosts_before = bundle.get("hosts", {}).get("num_hosts")

    def _summarize(
        self, phase: Phase, played: Played, seconds: float, line: dict[str, Any], scalars: dict[str, float]
    ) -> None:
        super()._summarize(phase, played, seconds, line, scalars)
        if phase == Phase.TRAIN:
            line["hosts_replaced"] = self.restarts
            if self._hosts is not None:
                line["dropped_blocks"] = self.dropped

    def table(self) -> str:
        """Return the rates of all training in this process, and those of the hosts."""
        lines = [super().table(), f"{'hosts replaced':<38}{self.restarts:>12,}"]
        if self._stepped is not None:
            seconds, all_of_them = self._stepped.seconds, self._seconds * self.num_hosts
            share = seconds / max(all_of_them, 1e-9)
            return "\n".join([*lines, f"{'hosts: time of stepping':<38}{seconds:>12,.1f} s{share:>9.1%}"])
        if self.mode == "free":
            lines.append(f"{'blocks dropped as too old':<38}{self.dropped:>12,}")
        timings = {} if self._hosts is None else self._hosts.timings
        whole = max(timings.get("Block", 0.0), 1e-9)
        lines += [
            f"{f'hosts: time of {PARTS[name]}':<38}{timings[name]:>12,.1f} s{timings[name] / whole:>9.1%}"
            for name in PARTS
            if name in timings
        ]
        return "\n".join(lines)

    def facts(self) -> dict[str, str]:
        """Return the run's facts, in words, with the hosts."""
        what = "inference here" if self.inference == "learner" else f"blocks of {self._block_length} decisions"
        return {**super().facts(), "hosts": f"{self.num_hosts} hosts ({self.engine}, {self.mode}), {what}"}


@dataclass(frozen=True)
class _Hosting:
    """How hosts play for learners; it travels to other learners.

    Attributes:
        plan: Of all hosts.
        learners: How many share them.
        base_dir: The run's.
        free: As in `HostRounds`, like the others.
    """

    plan: Plan
    learners: int
    base_dir: Path
    free: bool
    max_version_lag: int | None
    timeout: float | None

    def share(
        self, agent: VectorAgent, make_engine: Callable[[HostPlan], HostEngine], group: Group | None
    ) -> HostRounds:
        """Make a learner's share of the run, with its share of the hosts."""
        number, count = (0 if group is None else group.number), self.plan.num_hosts // self.learners
        hosts = range(number * count, (number + 1) * count)
        engine = make_engine(replace(self.plan, first_env=hosts[0] * self.plan.share))
        journal = Journal(self.base_dir, number)
        return HostRounds(agent, engine, hosts, journal, self.free, self.max_version_lag, self.timeout, group)


def _make_share(
    make_agent: Callable[..., VectorAgent],
    hosting: _Hosting,
    make_engine: Callable[[HostPlan], HostEngine],
    group: Group,
    sign: str | None = None,
) -> HostRounds:
    """Make the share of a learner in its process."""
    if sign is not None:
        check_sign(hosting.base_dir, sign)
    return hosting.share(make_agent(number=group.number), make_engine, group)
