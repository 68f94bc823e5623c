"""What a gin file chooses by name: the agent, or a user's own one by a reference, and the runner of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gin
import gymnasium as gym

from async_wrappers.agents.experiment.experiment import Experiment, NoTeaching
from async_wrappers.agents.experiment.run import Run
from async_wrappers.agents.families.actor_critic.impact import Impact
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.families.value_based.c51 import C51
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.families.value_based.quantile import ImplicitQuantile, Quantile
from async_wrappers.agents.families.value_based.r2d2 import R2D2
from async_wrappers.agents.families.value_based.rainbow import FullRainbow, Rainbow
from async_wrappers.agents.play.hosts.hosts import Hosts, on_hosts
from async_wrappers.agents.play.live import Live, LiveRunner
from async_wrappers.agents.play.many.environments import VectorRunner
from async_wrappers.agents.play.many.many import Many
from async_wrappers.agents.play.run_settings import Runner, TrainRunner
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.baselines import NoopAgent, RandomAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.play.turns.turns import Turns
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.teaching.methods.dqfd import DQfD
from async_wrappers.agents.teaching.methods.jsrl import JSRL
from async_wrappers.agents.teaching.methods.pretrained import PretrainedDQN
from async_wrappers.agents.teaching.methods.qdagger import QDaggerDQN, QDaggerRainbow
from async_wrappers.agents.teaching.methods.reloaded import ReloadedDQN
from async_wrappers.agents.teaching.methods.sequence_students import KickstartingPPO, KickstartingVTrace, QDaggerR2D2
from async_wrappers.agents.teaching.student import Student
from async_wrappers.agents.teaching.student_progress import without_teacher
from async_wrappers.agents.teaching.teaching import Reincarnation, RunnerWithTeacher

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Play

AGENTS: Mapping[str, type[Spec]] = {
    "dqn": DQN,
    "c51": C51,
    "rainbow": Rainbow,
    "full_rainbow": FullRainbow,
    "quantile": Quantile,
    "implicit_quantile": ImplicitQuantile,
    "r2d2": R2D2,
    "vtrace": VTrace,
    "impact": Impact,
    "sac": SAC,
    "ppo": PPO,
    "qdagger_dqn": QDaggerDQN,
    "qdagger_rainbow": QDaggerRainbow,
    "qdagger_r2d2": QDaggerR2D2,
    "kickstarting_vtrace": KickstartingVTrace,
    "kickstarting_ppo": KickstartingPPO,
    "dqfd_dqn": DQfD,
    "jsrl_dqn": JSRL,
    "pretrained_dqn": PretrainedDQN,
    "reloaded_dqn": ReloadedDQN,
}
BASELINES: Mapping[str, Callable[..., Agent]] = {"noop": NoopAgent, "random": RandomAgent}


def taught_if_student(run: Run) -> NoTeaching | Reincarnation:
    """Make the part of a student's teacher, with what gin binds; none for other agents."""
    spec = getattr(run.play.agent, "spec", None)
    return Reincarnation(RunnerWithTeacher(), run) if isinstance(spec, Student) else NoTeaching(run)


@dataclass(frozen=True)
class WayOfPlaying:
    """The parts of an experiment, with the records of their settings, which gin binds.

    Attributes:
        play: Makes the way of playing, from its records and the run.
        of_play: Its records.
        teaching: Makes a teacher's part, from its records and the run.
        of_teaching: Its records.
        evaluates: Whether there are evaluation phases.
        others: Records without settings.
    """

    play: Callable[..., Play] = Turns
    of_play: tuple[type, ...] = ()
    teaching: Callable[..., NoTeaching | Reincarnation] = NoTeaching
    of_teaching: tuple[type, ...] = ()
    evaluates: bool = True
    others: tuple[type, ...] = ()

    @property
    def records(self) -> tuple[type, ...]:
        """All records that gin binds for this way."""
        return (*self.others, *self.of_teaching, *self.of_play, Runner)

    def experiment(self, base_dir: str | Path) -> Experiment:
        """Make the experiment, with what gin binds."""
        for kind in self.others:
            kind()  # gin notes its name
        teaching = partial(self.teaching, *(kind() for kind in self.of_teaching))
        play = partial(self.play, *(kind() for kind in self.of_play))
        return Experiment(base_dir, Runner(), play, teaching, self.evaluates)


# By the words of `create_runner.schedule`.
WAYS_OF_PLAYING: Mapping[str, WayOfPlaying] = {
    "continuous_train_and_eval": WayOfPlaying(),
    "continuous_train": WayOfPlaying(evaluates=False, others=(TrainRunner,)),
    "realtime": WayOfPlaying(Live, (LiveRunner,), taught_if_student),
    "vector": WayOfPlaying(Many, (VectorRunner,), taught_if_student),
    "hosts": WayOfPlaying(on_hosts, (Hosts, VectorRunner), taught_if_student),
    "reincarnation": WayOfPlaying(teaching=Reincarnation, of_teaching=(RunnerWithTeacher,)),
}


@gin.configurable(module="agents")
def create_agent(environment: gym.Env[Any, Any], agent_name: Any = "dqn", *, seed: int = 0) -> Agent:
    """Make an agent for an environment.

    Args:
        environment: Its spaces are read.
        agent_name: One of `AGENTS` or `BASELINES`, such as ``"dqn"`` or ``"random"``; or a subclass of
            `async_wrappers.agents.spec.Spec`, as the reference ``@MyAgent`` in gin.
        seed: Of the agent.

    Raises:
        ValueError: An unknown name, or an environment that the agent cannot play.
    """
    if isinstance(agent_name, str) and agent_name in BASELINES:
        return BASELINES[agent_name](environment, seed=seed)
    return TurnBasedAgent.playing(spec_of(agent_name), environment, seed=seed)


def create_spec(observation_space: gym.Space[Any], action_space: gym.Space[Any], *, seed: int = 0) -> Spec:
    """Return the spec of the agent that gin binds to ``create_agent.agent_name``: it makes policies and learners.

    It pickles (cloudpickle) together with all values that gin binds, for processes whose gin is empty.

    Args:
        observation_space: The environment's.
        action_space: The environment's.
        seed: Of the agent.

    Raises:
        ValueError: An unknown name, an agent that does not learn, a space that the agent cannot use, or no
            `epsilon_warmup` where epsilon needs one: against a clock, the frames between two decisions vary.
    """
    agent_name = gin.get_bindings(create_agent).get("agent_name", "dqn")
    if isinstance(agent_name, str) and agent_name in BASELINES:
        raise ValueError(f"create_agent.agent_name must be of an agent with policy and learner, got {agent_name!r}")
    kind = spec_of(agent_name)
    if issubclass(kind, Student):
        raise ValueError(without_teacher(kind.name))
    return kind(observation_space, action_space, decision_interval=None, seed=seed)


def spec_of(agent_name: Any) -> type[Spec]:
    """Return the spec's class by an agent's name; a class is returned as it is.

    Raises:
        ValueError: An unknown name, or a class that makes no policies and learners.
    """
    if isinstance(agent_name, type) and issubclass(agent_name, Spec):
        return agent_name
    if isinstance(agent_name, str) and agent_name in AGENTS:
        return AGENTS[agent_name]
    known = (*AGENTS, *BASELINES)
    name = agent_name if isinstance(agent_name, str) else getattr(agent_name, "name", "")
    close = get_close_matches(name.removeprefix("jax_"), known, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {close[0]!r}?" if close else ""
    hint += " (docs/reference/dopamine_names.md)" if isinstance(name, str) and name.startswith("jax_") else ""
    raise ValueError(
        f"create_agent.agent_name must be one of {', '.join(map(repr, known))}, or a subclass of "
        f"async_wrappers.agents.spec.Spec such as @MyAgent (without brackets), got {agent_name!r}{hint}"
    )


@gin.configurable(module="agents")
def create_runner(base_dir: str | Path, schedule: str = "continuous_train_and_eval") -> Experiment:
    """Make the experiment of a schedule.

    Args:
        base_dir: Where checkpoints and metrics go.
        schedule: ``"continuous_train_and_eval"`` (`Runner`), ``"continuous_train"`` (`TrainRunner`), ``"realtime"``
            (`LiveRunner`), ``"vector"`` (`VectorRunner`), ``"hosts"`` (`Hosts`) or ``"reincarnation"``
            (`RunnerWithTeacher`).

    Raises:
        ValueError: An unknown schedule.
    """
    if not isinstance(schedule, str) or schedule not in WAYS_OF_PLAYING:
        known = ", ".join(map(repr, WAYS_OF_PLAYING))
        raise ValueError(f"create_runner.schedule must be one of {known}, got {schedule!r}")
    return WAYS_OF_PLAYING[schedule].experiment(base_dir)
