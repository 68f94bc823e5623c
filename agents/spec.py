"""The interface of an agent: a `Spec` makes the agent's policies and its learners.

An agent is a `Spec`: its hyperparameters, from which policies are made without a learner and learners without a policy.
Turn-based play (`turn_based.TurnBasedAgent`), live runs and sweeps depend on `Spec` alone, so an agent of a
user's own is a subclass with two methods, `make_policy` and `make_learner`, that gin names. An agent that is a
network (`network_agent.NetworkAgent`) states its learning in the place of the second, and `making` makes its learners::

    # mine.gin, beside mine.py with `class TableQ(Spec)` under @gin.configurable
    import mine
    create_agent.agent_name = @mine.TableQ

Policies and learners are pickled for other processes, together with the values that gin binds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from torch import nn

from async_wrappers.agents.acting.decisions import OneRow, RowsPolicy
from async_wrappers.agents.hyperparameters import with_gin_values
from async_wrappers.agents.needs_and_offers import FAST, refuse
from async_wrappers.agents.spaces.compute import Compute, Reader
from async_wrappers.agents.spaces.schema import blank_observation, effect_space
from async_wrappers.needs import Words
from async_wrappers.policy import Policy


class LearnerInterface:
    """The interface of a learner: a subclass writes the methods that raise here.

    They are `observe`, `update`, `weights`, `state_dict` and `load_state_dict`.

    The other methods have defaults for a learner that keeps no replay on disk. For several learners of a live run see
    the runner's own `LiveLearner` protocol.

    Attributes:
        updates: Updates done: `update` adds 1, and policies load the weights again when it changes.
    """

    updates: int = 0

    @property
    def ready(self) -> bool:
        """Whether there is enough to learn from."""
        return True

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition: observation, action, reward, interval, terminal, truncated, next_observation."""
        raise NotImplementedError

    def update(self) -> Mapping[str, Any]:
        """Learn once; return scalars by name."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, Any]:
        """Return the arrays or tensors that policies load."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return weights and counts: tensors and plain data."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        raise NotImplementedError

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Load the part of a `state_dict` that acting needs; by default all of it."""
        self.load_state_dict(state)

    def policy_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a `state_dict` that `load_policy` reads, which a shipped file holds; by default all."""
        return state

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another kind of learner with a ValueError, before anything is changed."""

    def check_replay(self, directory: Path, iteration: int) -> None:
        """Refuse files that `load_replay` cannot use, with an OSError or a ValueError."""

    def save_replay(self, directory: Path, iteration: int) -> None:
        """Write the replay, which `state_dict` leaves out, for `load_replay` with the same iteration."""

    def load_replay(self, directory: Path, iteration: int) -> None:
        """Restore what `save_replay` wrote."""

    def forget_replays(self, directory: Path, keep: set[int]) -> None:
        """Delete the files that no iteration in `keep` needs."""

    def close(self) -> None:
        """Release resources, such as threads and files."""


class Spec:
    """An agent's hyperparameters; a subclass gives `make_policy` and `make_learner`.

    Args:
        observation_space: The environment's.
        action_space: The environment's.
        decision_interval: Frames from one decision to the next; None where they vary (random latencies, a real clock).
        seed: Of the weights, the exploration and the replay.

    Attributes:
        name: The agent's name in error messages.
        stack_size: Observations of the last k decisions that the policy reads; above 1 `make_policy_of` must be
            overridden.
        whole_stacks: Whether observations are stacks [k, *shape] already, as `of_stacks` makes it.
        update_period: Decisions between two rounds of updates.
        num_updates_per_train_step: Updates in a round; 1 in live runs.
        batch_size: Rows of an update's batch: transitions, or the sequences of an agent with memory.
        summary_writing_frequency: Updates between two reports of the scalars.
        in_flight: Largest number of an environment's decisions in flight when another one starts; None without a limit.
        learns_once: Whether the learner takes its batches from a queue, so that each step is learnt from once, or
            `replay_coefficient` times.
        replay_coefficient: How often each batch of that queue is learnt from.
        extras: Dict space of the arrays that the policy returns for the learner beside its action; None without any.
        needs_effect: Whether the learner reads, beside the observation on which a decision started, the one on which
            its action landed: a transition's observation is then a dict of both (`agents.acting.frames_read`).
        draws_labels: Whether a student's labels are made when a batch is drawn, by its learner.
        fast_age: How old the observation is that the policy's fast path reads when its action is due, in frames; None
            where the policy has none. It stands in the place of the effect's, and `needs_effect` is True.
        learns_from: Which action a transition holds where another one was sent than the policy drew (limits, a
            machine's driver), and which one the policy reads as its last one: ``"sent"``, or ``"drawn"`` for a learner
            that needs the density of the policy's own.
        chunk_mean: `Chunk.mean` of the delay; None where the newest chunk wins, as it must where the agent learns.
        features: Space of the features that a worker's `encode` passes to `release`, for an agent with memory
            (`async_wrappers.policy.SplitPolicy`); None where `make_policy` makes a policy with `act`.
    """

    name: ClassVar[str] = "agent"
    stack_size: int = 1
    whole_stacks: bool = False
    update_period: int = 1
    num_updates_per_train_step: int = 1
    batch_size: int = 1
    summary_writing_frequency: int = 500
    learns_once: bool = False
    replay_coefficient: int = 1
    in_flight: int | None = 0
    extras: gym.spaces.Dict | None = None
    features: gym.Space[Any] | None = None
    learns_from: str = "sent"
    chunk_mean: Any = None
    needs_effect: bool = False
    draws_labels: bool = False
    fast_age: int | None = None

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        decision_interval: int | None = 1,
        seed: int = 0,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.seed = seed

    @property
    def needs(self) -> Mapping[str, Any]:
        """What a way of playing must offer, by the settings that need it (`async_wrappers.agents.needs_and_offers`)."""
        at_effect = self.needs_effect and self.fast_age is None
        return {
            "stack_size": self.stack_size,
            "num_updates_per_train_step": self.num_updates_per_train_step,
            "critic_at": "effect" if at_effect else "start",
            "fast": None if self.fast_age is None else FAST,
        }

    @property
    def update_every(self) -> int:
        """Decisions between two moments at which an update is looked for."""
        return self.update_period

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.batch_size

    def make_policy(self, number: int = 0, workers: int = 1) -> Policy:
        """Make the policy of worker `number` of `workers`, with weights of its own."""
        raise TypeError(f"{type(self).__name__} must have a method make_policy(number, workers)")

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        """Make learner `number` of `learners`, a `LearnerInterface`; all begin with the same weights."""
        raise TypeError(f"{type(self).__name__} must have a method make_learner(number, learners)")

    def make_policy_of(self, learner: Any) -> RowsPolicy:
        """Make the policy of a turn-based agent, which acts on the learner's weights.

        Raises:
            ValueError: `stack_size` is more than 1, and this method is not overridden.
        """
        self.check_one_at_a_time()
        return _Following(self.make_policy(), learner)

    def of_stacks(self) -> Any:
        """Return the same agent for an asynchronous runner whose observations are stacks [k, *shape], with k > 1.

        Its `make_policy` reads such a stack, and its learner stores it as the transition's observation.

        Raises:
            ValueError: This method is not overridden.
        """
        needs = {"stack_size": Words(self.stack_size)}
        refuse("a real clock", needs, agent=self.name, kind=type(self).__name__)

    @property
    def stored_space(self) -> gym.Space[Any]:
        """The space of a transition's observation: of a single one, or with `of_stacks` of a stack.

        With `needs_effect` it is a Dict of two such, ``"start"`` and ``"effect"``.
        """
        space = batch_space(self.observation_space, self.stack_size) if self.whole_stacks else self.observation_space
        return effect_space(space) if self.needs_effect else space

    def check_one_at_a_time(self) -> None:
        """Refuse stacks where observations come one at a time, with a ValueError."""
        if self.stack_size > 1 and not self.whole_stacks:
            raise ValueError(
                f"stack_size must be 1 for a policy that reads one observation at a time, got {self.stack_size}: take "
                f"of_stacks(), and give AsyncRunner stack_size={self.stack_size}"
            )

    def make_vector_learner(self, num_envs: int) -> Any:
        """Make a learner for `num_envs` environments.

        It is a `LearnerInterface` with two further methods. ``extend(block)`` stores transitions of several
        environments, columns [R] by name as `Replay.extend` takes them, which are views: copy what is kept;
        ``cut(observation, env_id)`` ends an episode that is under way.

        For several learners of a run the method takes two further arguments, ``number`` and ``learners``: it then
        returns learner `number`, a `Learner` with its share of a batch and of the replay, for its own `num_envs`
        environments.

        Raises:
            ValueError: This method is not overridden.
        """
        raise ValueError(self._one_environment())

    def make_vector_policy(self, learner: Any, num_envs: int) -> RowsPolicy:
        """Make the policy of `num_envs` environments, which acts on R rows at a time on the learner's weights.

        Raises:
            ValueError: This method is not overridden.
        """
        raise ValueError(self._one_environment())

    def make_device_policy(self, learner: Any, num_envs: int, device: str) -> RowsPolicy:
        """Make the policy of `make_vector_policy` with a copy of the learner's weights on a device, as ``"cuda:1"``.

        Raises:
            ValueError: This method is not overridden.
        """
        raise ValueError(
            f"agent {self.name!r} acts on the learner's device: give {type(self).__name__} the method "
            "make_device_policy(learner, num_envs, device), or bind VectorRunner.act_devices = None"
        )

    def _one_environment(self) -> str:
        return (
            f"agent {self.name!r} plays one environment at a time: give {type(self).__name__} the methods "
            "make_vector_learner(num_envs) and make_vector_policy(learner, num_envs), or bind another "
            "create_runner.schedule than 'vector'"
        )

    def identity(self, learner: Any) -> dict[str, Any]:
        """Return plain facts that two runs must share to continue one another."""
        shapes = {name: list(weight.shape) for name, weight in learner.weights().items()}
        return {"agent": type(self).__name__, "network": shapes}

    def blank(self) -> Any:
        """Return the observation that stands before an episode's first."""
        return blank_observation(self.observation_space)

    def without_tuples(self, observation: Any) -> Any:
        """Return an observation as the turn-based policy and the learner take it: by default as it is.

        An agent that reads Tuple spaces overrides this, since a tuple would be taken for one array.
        """
        return observation

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; functions that gin binds come with their values, for a process whose gin is empty."""
        return {name: with_gin_values(value) for name, value in self.__dict__.items()}

    def check_delay(self, delay: int | None, decision_interval: int | None) -> None:
        """Refuse a delay that the agent cannot play under, with a ValueError.

        Args:
            delay: Frames from a decision's start to its effect; None where they vary.
            decision_interval: Frames from one decision to the next; None where they vary.
        """

    def check_chunks(self) -> None:
        """Refuse to learn from chunks of which a mean is applied, with a ValueError."""
        refuse("learning", {"Chunk.mean": self.chunk_mean}, agent=self.name)

    def check_alone(self) -> None:
        """Refuse to learn without a teacher, with a ValueError, as students do."""

    def lessons(self, agent: Any, number: int, learners: int) -> Any:
        """Return a teacher's part in an agent of this spec, as students have one; None for none.

        Args:
            agent: A `LearningAgent`.
            number: Which of several learners it is.
            learners: How many there are.
        """

    def check_warmup(self) -> None:
        """Refuse settings that need a fixed number of frames per decision, with a ValueError."""

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Let learners write the batch of a loss that is not finite into a run's directory."""


class _Following(OneRow):
    """Loads the learner's weights before a decision if the learner has made an update since."""

    def __init__(self, policy: Policy, learner: Any) -> None:
        super().__init__(policy)
        self._learner, self._updates = learner, -1

    def act(self, inputs: Any, state: Any, decisions: Any) -> Any:
        if self._updates != self._learner.updates:
            self._updates = self._learner.updates
            self._policy.load_weights(self._learner.weights(), self._updates)
        return super().act(inputs, state, decisions)


# Helpers with which a spec makes networks and readers.


@dataclass(frozen=True)
class ReadyMade:
    """A network that was made while gin had its bindings."""

    network: nn.Module

    def __call__(self) -> nn.Module:
        """Return a copy."""
        return copy.deepcopy(self.network)


def own_seed(seed: int, number: int) -> int:
    """Return the seed of learner `number`; the first one's is that of an agent with one learner."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0]) if number else seed


def reader_of(space: gym.Space[Any], stack_size: int, compute: Compute, agent: str) -> Reader:
    """Return the reader of a space; a ValueError names the agent that cannot use it."""
    try:
        return Reader(space, stack_size, compute)
    except ValueError as error:
        raise ValueError(f"agent {agent!r}: {error}") from None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside, and leave torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
