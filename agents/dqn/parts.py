"""DQN's hyperparameters, and the parts that they make: policies without a learner, learners without a policy."""

from __future__ import annotations

import copy
import inspect
import math
import numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import torch
from torch import nn

from agents.baselines import discrete_actions
from agents.compute import Compute
from agents.dqn.learner import DQNLearner
from agents.dqn.policy import DQNPolicy
from agents.epsilon_greedy import EpsilonGreedyPolicy
from agents.exploration import Epsilon, has_warmup, linearly_decaying_epsilon
from agents.gin_values import with_gin_values
from agents.learner import Learner, Replay
from agents.networks.check import check_fit
from agents.networks.q_network import create_network
from agents.observations import Reader
from agents.optimizers import create_optimizer
from agents.replay import ReservoirReplay, RingReplay, create_replay
from agents.worker_policy import WorkerPolicy

__all__ = ["DQN", "check_count", "check_flags", "check_numbers"]


@gin.configurable("DQNAgent", module="agents", denylist=["decision_interval"])
class DQN:
    """The hyperparameters of DQN (Mnih et al. 2015), ``DQNAgent`` in gin; the defaults are Dopamine's for Atari.

    Those of the other agents are subclasses: they add their own, and override what is another network, policy or
    learner. What is bound to ``DQNAgent`` holds for them too, unless they bind it under their own name.

    It pickles (with cloudpickle where a callable is a lambda), all values of gin resolved, so that another process
    makes the same parts of it with an empty gin. A *step* is one decision; epsilon counts frames, which are the same
    without delay.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of these.
        action_space: Discrete.
        stack_size: Observations of the last k decisions that the network sees, k.
        network: From (observation shape [k, *shape], number of actions) to a module that gives Q-values [B, A].
        gamma: Discount.
        discount_by: ``"decision"``: gamma per decision, as in the paper; ``"frame"``: gamma ** interval.
        update_horizon: n of the n-step return, in decisions.
        min_replay_history: Transitions observed before the first update.
        update_period: Decisions between two updates.
        target_update_period: Decisions between two copies into the target network.
        epsilon_fn: From (decay period, frame, warm-up, final epsilon) to epsilon in training.
        epsilon_train: Final epsilon in training.
        epsilon_eval: Epsilon in evaluation.
        epsilon_decay_period: Frames.
        epsilon_warmup: Frames before epsilon falls; None means until learning begins, ``min_replay_history *
            decision_interval``, and is refused where these vary.
        replay_scheme: ``"uniform"``, or ``"prioritized"`` (Schaul et al. 2016): a transition's priority is its loss.
        priority_exponent: alpha of the priorities; Dopamine's square root of the loss is 0.5.
        importance_exponent: beta of the weights that undo the bias.
        priority_epsilon: Added to the loss to make the priority.
        replay_capacity: Observations kept.
        replay_eviction: What goes when the replay is full: the ``"oldest"``, or a random transition (``"reservoir"``,
            for stacks of one and without priorities).
        batch_size: Transitions per update.
        optimizer: From parameters to an optimiser.
        loss_type: ``"huber"`` or ``"mse"``.
        double_dqn: The double Q-learning target (van Hasselt et al. 2016).
        one_step_loss: Add to the loss of each n-step return that of its first step alone.
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images in the channels-last memory format (faster on a CPU: benchmarks/README.md).
        bf16: Forward passes in bfloat16.
        compile: Compile the networks with ``torch.compile``; needs a C++ compiler (docs/dqn.md says what it is worth).
        summary_writing_frequency: Updates between two reports of the loss.
        diverged_dir: Where the batch goes whose loss is not finite, which ends the run; None for the run's base_dir,
            the working directory where there is none.
        decision_interval: Frames from one decision to the next, the environment's; None where they vary (random
            latencies, a real clock). gin does not bind it.
        seed: Of the weights, the exploration and the replay.

    Raises:
        ValueError: A space that DQN cannot use, an argument out of range, or no `epsilon_warmup` where
            `min_replay_history` decisions are no fixed number of frames.
    """

    name = "dqn"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        stack_size: int = 4,
        network: Callable[..., nn.Module] = create_network,
        gamma: float = 0.99,
        discount_by: str = "decision",
        update_horizon: int = 1,
        min_replay_history: int = 20_000,
        update_period: int = 4,
        target_update_period: int = 8_000,
        epsilon_fn: Callable[[int, int, int, float], float] = linearly_decaying_epsilon,
        epsilon_train: float = 0.01,
        epsilon_eval: float = 0.001,
        epsilon_decay_period: int = 250_000,
        epsilon_warmup: int | None = None,
        replay_scheme: str = "uniform",
        priority_exponent: float = 0.5,
        importance_exponent: float = 0.5,
        priority_epsilon: float = 1e-10,
        replay_capacity: int = 1_000_000,
        replay_eviction: str = "oldest",
        batch_size: int = 32,
        optimizer: Callable[..., torch.optim.Optimizer] = create_optimizer,
        loss_type: str = "huber",
        double_dqn: bool = False,
        one_step_loss: bool = False,
        max_gradient_norm: float | None = None,
        device: str = "auto",
        channels_last: bool = True,
        bf16: bool = False,
        compile: bool = False,
        summary_writing_frequency: int = 500,
        diverged_dir: str | None = None,
        decision_interval: int | None = 1,
        seed: int = 0,
    ) -> None:
        """See the class."""
        check_numbers(gamma=gamma, epsilon_train=epsilon_train, epsilon_eval=epsilon_eval)
        check_numbers(priority_exponent=priority_exponent, importance_exponent=importance_exponent)
        check_numbers(priority_epsilon=priority_epsilon)
        if max_gradient_norm is not None:
            check_numbers(max_gradient_norm=max_gradient_norm)
        check_flags(double_dqn=double_dqn, one_step_loss=one_step_loss, channels_last=channels_last, bf16=bf16)
        check_flags(compile=compile)
        if not isinstance(replay_eviction, str) or replay_eviction not in ("oldest", "reservoir"):
            raise ValueError(f"replay_eviction must be 'oldest' or 'reservoir', got {replay_eviction!r}")
        for name, text in (("discount_by", discount_by), ("loss_type", loss_type), ("device", device)):
            if not isinstance(text, str):
                raise ValueError(f"{name} must be text, got {text!r}")
        if diverged_dir is not None and not isinstance(diverged_dir, str | Path):
            raise ValueError(f"diverged_dir must be a path, or None for the run's base_dir, got {diverged_dir!r}")
        _at_least("stack_size", stack_size, 1, "observation")
        if stack_size > _LONGEST_STACK:
            raise ValueError(f"stack_size must be <= {_LONGEST_STACK:,} observations, got {stack_size}")
        _at_least("update_horizon", update_horizon, 1, "decision")
        _at_least("batch_size", batch_size, 1, "transition")
        _at_least("seed", seed, 0, "or more")
        _at_least("update_period", update_period, 1, "decision")
        _at_least("target_update_period", target_update_period, 1, "decision")
        _at_least("min_replay_history", min_replay_history, 0, "transitions")
        _at_least("replay_capacity", replay_capacity, 1, "observation")
        _at_least("summary_writing_frequency", summary_writing_frequency, 1, "update")
        _at_least("epsilon_decay_period", epsilon_decay_period, 0, "frames")
        if epsilon_warmup is not None:
            _at_least("epsilon_warmup", epsilon_warmup, 0, "frames")
        if decision_interval is not None:
            _at_least("decision_interval", decision_interval, 1, "frame")
        for name, value in (("epsilon_train", epsilon_train), ("epsilon_eval", epsilon_eval)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {value}")
        if max_gradient_norm is not None and not max_gradient_norm > 0:
            raise ValueError(f"max_gradient_norm must be > 0, or None for no clipping, got {max_gradient_norm}")
        if not isinstance(replay_scheme, str) or replay_scheme not in ("uniform", "prioritized"):
            raise ValueError(f"replay_scheme must be 'uniform' or 'prioritized', got {replay_scheme!r}")
        if one_step_loss and replay_eviction != "oldest":
            raise ValueError(f"replay_eviction must be 'oldest' where one_step_loss=True, got {replay_eviction!r}")
        for name, factory, example in (
            ("network", network, "@create_network"),
            ("epsilon_fn", epsilon_fn, "@linearly_decaying_epsilon"),
            ("optimizer", optimizer, "@create_optimizer"),
        ):
            if not callable(factory):
                raise ValueError(f"DQNAgent.{name} must be a function or a class, such as {example}, got {factory!r}")
        if not 0 <= priority_epsilon < float("inf"):
            raise ValueError(f"priority_epsilon must be >= 0 and finite, got {priority_epsilon}")
        self.first_action, self.num_actions = discrete_actions(action_space, self.name)
        self.observation_space = observation_space
        self.stack_size = stack_size
        self.update_period = update_period
        self.summary_writing_frequency = summary_writing_frequency
        self.compute = Compute(device, channels_last, bf16, compile)
        self.reader = _reader(observation_space, stack_size, self.compute, self.name)
        self._network = network
        self._replay: dict[str, Any] = {
            "stack_size": stack_size,
            "update_horizon": update_horizon,
            "gamma": gamma,
            "discount_by": discount_by,
            "batch_size": batch_size,
            "eviction": replay_eviction,
        }
        if replay_scheme == "prioritized":
            exponents = {"priority_exponent": priority_exponent, "importance_exponent": importance_exponent}
            self._replay |= {"prioritized": True, **exponents}
        self._replay_capacity = replay_capacity
        self._min_replay_history = min_replay_history
        self._warmup_unset = epsilon_warmup is None and min_replay_history > 0 and has_warmup(epsilon_fn)
        if decision_interval is None:
            self.check_warmup()
            decision_interval = 1
        warmup = min_replay_history * decision_interval if epsilon_warmup is None else epsilon_warmup
        self._per_actor = "actor" in inspect.signature(epsilon_fn).parameters
        self._epsilon: tuple[Any, ...] = (epsilon_fn, epsilon_decay_period, warmup, epsilon_train, epsilon_eval)
        self._optimizer = optimizer
        self._loss_type = loss_type
        self._learning: dict[str, Any] = {
            "target_update_period": max(1, round(target_update_period / update_period)),
            "double": double_dqn,
            "max_gradient_norm": max_gradient_norm,
            "one_step_loss": one_step_loss,
            "priority_epsilon": priority_epsilon,
            "diverged_dir": diverged_dir,
            "compute": self.compute,
            "first_action": self.first_action,
            "read": self.reader,
        }
        seeds = [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(4)]
        self._weights_seed, self._replay_seed, self._exploration_seed, self._learning_seed = seeds

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Let learners put the batch whose loss is not finite into a run's directory, if no other one was given."""
        if self._learning["diverged_dir"] is None:
            self._learning["diverged_dir"] = str(directory)

    @property
    def observation_shape(self) -> Any:
        """Shape of what the network reads, [k, *shape], or a dict of such."""
        return self.reader.shape

    def check_warmup(self) -> None:
        """Check that epsilon's warm-up is known in frames, though the frames between two decisions vary.

        Raises:
            ValueError: It is not set, and epsilon depends on it.
        """
        if self._warmup_unset:
            raise ValueError(
                "DQNAgent.epsilon_warmup must be bound, in frames, where the frames between two decisions vary (a "
                f"latency, or live play), got None, which stands for min_replay_history = {self._min_replay_history} "
                f"decisions: bind DQNAgent.epsilon_warmup = {self._min_replay_history} for an action on every frame, "
                "and more for fewer"
            )

    def make_policy(self, number: int = 0, workers: int = 1) -> WorkerPolicy:
        """Make the policy of worker `number` of `workers`, with weights of its own: no replay, optimiser or target.

        All are the same function, unless `epsilon_fn` is one that takes the number of the ``actor``.

        Raises:
            ValueError: `stack_size` is more than 1.
        """
        if self.stack_size > 1:
            raise ValueError(
                f"stack_size must be 1 for a policy that reads one observation at a time, got {self.stack_size}"
            )
        network = self.make_network().requires_grad_(False)
        return WorkerPolicy(self.policy_of(network, actor=number, actors=workers))

    def make_learner(self, number: int = 0, learners: int = 1) -> Learner:
        """Make learner `number` of `learners`, which share the replay capacity and the history equally: no policy.

        All begin with the same weights, those of every policy.

        Raises:
            ValueError: `number` is not one of them, or an argument is out of range.
        """
        if not 0 <= number < learners:
            raise ValueError(f"number must lie in [0, {learners}), one for each learner, got {number}")
        return self.learner_of(
            self.make_network(),
            self.make_replay(self._replay_capacity // learners, _own_seed(self._replay_seed, number)),
            optimizer=self._optimizer,
            min_replay_history=self._min_replay_history // learners,
            seed=_own_seed(self._learning_seed, number),
            **self._learning,
        )

    def make_network(self) -> nn.Module:
        """Make the network with its first weights, where it computes.

        Raises:
            ValueError: The network does not fit the observations, or gives what the agent cannot use.
        """
        if isinstance(self._network, _ReadyMade):
            return self.compute.place(self._network())
        with _seeded(self._weights_seed):
            network = self.build_network(self._network)
            blank = Reader(self.observation_space, self.stack_size, Compute("cpu"))(self.reader.blank_stacks())
            check_fit(network, self.network_inputs(blank), self.output_shape, self.name)
        return self.compute.place(network)

    def make_replay(self, capacity: int, seed: int) -> RingReplay | ReservoirReplay:
        """Make the replay memory."""
        return create_replay(self.observation_space, capacity=capacity, seed=seed, **self._replay)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Call the factory for the agent's network; its weights are drawn from torch's generator."""
        return network(self.observation_shape, self.num_actions)

    def network_inputs(self, observation: Any) -> tuple[Any, ...]:
        """Return what the network is called with for observations [B, k, *shape]."""
        return (observation,)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of what the network gives for one observation."""
        return (self.num_actions,)

    def learner_of(self, network: nn.Module, replay: Replay, **arguments: Any) -> Learner:
        """Make a learner that updates `network` in place."""
        return DQNLearner(network, replay, loss_type=self._loss_type, **arguments)

    def policy_of(self, network: nn.Module, **actor: int) -> EpsilonGreedyPolicy:
        """Make a policy that reads `network` in place; `actor` are the arguments of `acting`."""
        return DQNPolicy(network, **self.acting(**actor))

    def acting(self, actor: int = 0, actors: int = 1) -> dict[str, Any]:
        """Return the arguments of a policy besides its network."""
        schedule, *numbers = self._epsilon
        if self._per_actor:
            schedule = partial(schedule, actor=actor, actors=actors)
        return {
            "num_actions": self.num_actions,
            "epsilon": Epsilon(schedule, *numbers),
            "seed": self._exploration_seed,
            "compute": self.compute,
            "first_action": self.first_action,
            "read": self.reader,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, where gin is empty: plain values, and the network as it was made."""
        schedule, *numbers = self._epsilon
        return {
            **self.__dict__,
            "_network": _ReadyMade(self.make_network().cpu()),
            "_optimizer": with_gin_values(self._optimizer),
            "_epsilon": (with_gin_values(schedule), *numbers),
        }


@dataclass(frozen=True)
class _ReadyMade:
    """A network that was made where gin had its values."""

    network: nn.Module

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self.network)


def _own_seed(seed: int, number: int) -> int:
    """Return the seed of learner `number`; the first one's is that of an agent with one learner."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0]) if number else seed


def _reader(space: gym.Space[Any], stack_size: int, compute: Compute, agent: str) -> Reader:
    try:
        return Reader(space, stack_size, compute)
    except ValueError as error:
        raise ValueError(f"agent {agent!r}: {error}") from None


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside, and leave torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def check_numbers(**numbers_by_name: Any) -> None:
    """Refuse what is no number, by its argument's name; whether it is in range is another question."""
    for name, value in numbers_by_name.items():
        huge = isinstance(value, int | float) and _LARGEST < abs(value) < math.inf  # what is infinite is told of later
        if huge or not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ValueError(f"{name} must be a number, of at most {_LARGEST:g}, got {value!r}")


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no size of a layer, by its argument's name."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _WIDEST:
        raise ValueError(f"{name} must be a whole number >= {least}, and at most {_WIDEST:,}, got {value!r}")


def check_flags(**flags: Any) -> None:
    """Refuse what is neither True nor False, by its argument's name."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {value!r}")


_LARGEST = 1e30  # what a hyperparameter may be: float32 ends at 3e38
_LONGEST_STACK = 1000
_WIDEST = 10**6  # layer
_MOST = 10**12  # of observations, decisions, transitions or frames


def _at_least(name: str, value: int, least: int, unit: str) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number ({unit}), got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be >= {least} {unit}, got {value}")
    if value > _MOST and name != "seed":
        raise ValueError(f"{name} must be <= {_MOST:,} ({unit}), got {value}")
