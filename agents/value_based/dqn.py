"""DQN (Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.learner import (
    Batch,
    Learner,
    LossOutput,
    Monitor,
    Networks,
    create_optimizer,
    learning_rate_decaying,
)
from async_wrappers.agents.losses import values as losses
from async_wrappers.agents.networks.q_network import check_fit, create_network
from async_wrappers.agents.policy import (
    Epsilon,
    EpsilonGreedyPolicy,
    Policy,
    WorkerPolicy,
    has_warmup,
    is_per_actor,
    linearly_decaying_epsilon,
)
from async_wrappers.agents.replay.entering import ActorPriorities
from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.agents.replay.selectors import SELECTORS, Selector
from async_wrappers.agents.schema import Compute, Reader, each_array, whole_stacks
from async_wrappers.agents.spec import (
    ReadyMade,
    Spec,
    check_at_least,
    check_choice,
    check_factories,
    check_flags,
    check_numbers,
    check_shares,
    discrete_actions,
    own_seed,
    reader_of,
    seeded,
    with_gin_values,
)

__all__ = ["DQN", "refuse_loss_type"]

LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {"huber": losses.huber, "mse": losses.squared}
_LONGEST_STACK = 1000


@gin.configurable("DQNAgent", module="agents", denylist=["decision_interval"])
class DQN(Spec):
    """DQN (Mnih et al. 2015), ``DQNAgent`` in gin; the defaults are Dopamine's for Atari.

    The other agents of values are subclasses: each adds its hyperparameters, its values and its loss. What is bound to
    ``DQNAgent`` holds for them too, unless they bind it under their own name.

    It pickles (with cloudpickle where a callable is a lambda) with all values of gin written down, so that another
    process, whose gin is empty, makes the same policies and learners. A *step* is one decision; epsilon counts frames,
    which are the same without delay.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.
        action_space: Discrete.
        stack_size: Observations of the last k decisions that the network sees, k.
        network: From (observation shape [k, *shape], number of actions) to a module that gives Q-values [B, A].
        gamma: Discount.
        discount_by: ``"decision"``: gamma per decision, as in the paper; ``"frame"``: gamma ** interval.
        update_horizon: n of the n-step return, in decisions.
        min_replay_history: Transitions observed before the first update.
        update_period: Decisions between two rounds of updates.
        num_updates_per_train_step: Updates of a round (Dopamine's name), each of a batch of its own: with `batch_size`
            times this by `update_period`, so many transitions are learnt from for each one lived (the replay ratio).
            Live, where learners update whenever they can, it is 1.
        target_update_period: Decisions between two copies into the target network.
        epsilon_fn: From (decay period, frame, warm-up, final epsilon) to epsilon in training.
        epsilon_train: Final epsilon in training.
        epsilon_eval: Epsilon in evaluation.
        epsilon_decay_period: Frames.
        epsilon_warmup: Frames before epsilon falls; None means until learning begins, ``min_replay_history *
            decision_interval``, and is refused where these vary.
        replay_scheme: ``"uniform"``, or ``"prioritized"`` (Schaul et al. 2016): a transition's priority is its loss; or
            a selector of your own, ``@MySelector`` in gin.
        priority_exponent: alpha of the priorities; Dopamine's square root of the loss is 0.5.
        importance_exponent: beta of the weights that undo the bias.
        priority: What makes a transition's priority: its ``"loss"``, or its ``"error"``, the size of the
            temporal-difference error (Schaul et al. 2016, equation 1 with proportional priorities), for agents whose
            network gives one value for an action.
        priority_epsilon: Added to that to make the priority.
        actor_priorities: Let transitions enter with the priority that the values show which the policy computed to act
            (Horgan et al. 2018, Ape-X, section 3), not with the largest one. Without effect where one environment is
            played in turn or live; for agents whose network gives one value for an action.
        replay_capacity: Observations kept; None for 1,000,000, or for what `replay_bytes` holds.
        replay_bytes: Memory of the replay in the place of `replay_capacity`, in bytes: as many observations as fit with
            all that is stored beside them (`Replay.nbytes`); None for `replay_capacity`, and where observations are
            packed.
        replay_eviction: What goes when the replay is full: the ``"oldest"``, or a random transition (``"reservoir"``,
            for stacks of one and without priorities).
        replay_compression: ``"lz4"`` keeps observations packed (needs the extra ``lz4``); None as they are.
        batch_size: Transitions per update.
        optimizer: From parameters to an optimiser.
        learning_rate_decay: Updates over which the learning rate falls, to 0 unless `learning_rate_end` is given; None
            keeps it.
        learning_rate_power: Of the fall: 1 for a line, 2 for a parabola, as in TensorFlow's ``PolynomialDecay``.
        learning_rate_end: Share of the learning rate that is left after `learning_rate_decay` updates, in [0, 1].
        loss_type: ``"huber"`` or ``"mse"``.
        double_dqn: The double Q-learning target (van Hasselt et al. 2016).
        one_step_loss: Add to the loss of each n-step return that of its first step alone.
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images in the channels-last memory format (faster on a CPU: benchmarks/README.md).
        bf16: Forward passes in bfloat16; ``"auto"``: where the processor or GPU computes in it itself, as the run's
            first line says; a run that goes on keeps what it began with.
        compile: Compile the networks with ``torch.compile``; needs a C++ compiler (what it is worth:
            docs/how_to/faster_learning.md).
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

    name: ClassVar[str] = "dqn"
    learner_kind: str = "DQNLearner"  # names the loss in a state, as older checkpoints do
    values_draw: ClassVar[bool] = False  # whether `values` draws from its generator
    outputs: tuple[int, ...] = ()  # of the network per action, such as atoms; none where it gives one value

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
        num_updates_per_train_step: int = 1,
        target_update_period: int = 8_000,
        epsilon_fn: Callable[[int, int, int, float], float] = linearly_decaying_epsilon,
        epsilon_train: float = 0.01,
        epsilon_eval: float = 0.001,
        epsilon_decay_period: int = 250_000,
        epsilon_warmup: int | None = None,
        replay_scheme: str | Callable[..., Selector] = "uniform",
        priority_exponent: float = 0.5,
        importance_exponent: float = 0.5,
        priority: str = "loss",
        priority_epsilon: float = 1e-10,
        actor_priorities: bool = False,
        replay_capacity: int | None = None,
        replay_bytes: int | None = None,
        replay_eviction: str = "oldest",
        replay_compression: str | None = None,
        batch_size: int = 32,
        optimizer: Callable[..., torch.optim.Optimizer] = create_optimizer,
        learning_rate_decay: int | None = None,
        learning_rate_power: float = 1.0,
        learning_rate_end: float = 0.0,
        loss_type: str = "huber",
        double_dqn: bool = False,
        one_step_loss: bool = False,
        max_gradient_norm: float | None = None,
        device: str = "auto",
        channels_last: bool = True,
        bf16: bool | str = False,
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
        check_flags(double_dqn=double_dqn, one_step_loss=one_step_loss, channels_last=channels_last)
        check_flags(compile=compile, actor_priorities=actor_priorities)
        check_choice("priority", priority, ("loss", "error"))
        check_choice("replay_eviction", replay_eviction, ("oldest", "reservoir"))
        for argument, text in (("discount_by", discount_by), ("loss_type", loss_type), ("device", device)):
            if not isinstance(text, str):
                raise ValueError(f"{argument} must be text, got {text!r}")
        if diverged_dir is not None and not isinstance(diverged_dir, str | Path):
            raise ValueError(f"diverged_dir must be a path, or None for the run's base_dir, got {diverged_dir!r}")
        check_at_least("stack_size", stack_size, 1, "observation")
        if stack_size > _LONGEST_STACK:
            raise ValueError(f"stack_size must be <= {_LONGEST_STACK:,} observations, got {stack_size}")
        check_at_least("update_horizon", update_horizon, 1, "decision")
        check_at_least("batch_size", batch_size, 1, "transition")
        check_at_least("seed", seed, 0, "or more")
        check_at_least("update_period", update_period, 1, "decision")
        check_at_least("num_updates_per_train_step", num_updates_per_train_step, 1, "update")
        check_at_least("target_update_period", target_update_period, 1, "decision")
        check_at_least("min_replay_history", min_replay_history, 0, "transitions")
        if replay_capacity is not None:
            check_at_least("replay_capacity", replay_capacity, 1, "observation")
        if replay_bytes is not None:
            check_at_least("replay_bytes", replay_bytes, 1, "byte")
        check_at_least("summary_writing_frequency", summary_writing_frequency, 1, "update")
        check_at_least("epsilon_decay_period", epsilon_decay_period, 0, "frames")
        if epsilon_warmup is not None:
            check_at_least("epsilon_warmup", epsilon_warmup, 0, "frames")
        if decision_interval is not None:
            check_at_least("decision_interval", decision_interval, 1, "frame")
        check_shares(epsilon_train=epsilon_train, epsilon_eval=epsilon_eval)
        if max_gradient_norm is not None and not max_gradient_norm > 0:
            raise ValueError(f"max_gradient_norm must be > 0, or None for no clipping, got {max_gradient_norm}")
        if not callable(replay_scheme) and not (isinstance(replay_scheme, str) and replay_scheme in SELECTORS):
            raise ValueError(
                f"replay_scheme must be {' or '.join(map(repr, SELECTORS))}, or the class of a selector such as "
                f"@MySelector, got {replay_scheme!r}"
            )
        if replay_eviction != "oldest" and replay_scheme != "uniform":
            raise ValueError(
                f"replay_eviction must be 'oldest' where replay_scheme={replay_scheme!r}, got {replay_eviction!r}"
            )
        if replay_compression is not None and not (isinstance(replay_compression, str) and replay_compression == "lz4"):
            raise ValueError(f"replay_compression must be 'lz4' or None, got {replay_compression!r}")
        if replay_bytes is not None and replay_capacity is not None:
            raise ValueError(
                f"replay_capacity must be None where replay_bytes={replay_bytes}, got {replay_capacity}: bind one of "
                "the two"
            )
        if replay_bytes is not None and replay_compression is not None:
            raise ValueError(
                f"replay_bytes must be None where replay_compression={replay_compression!r}, as packed observations "
                f"have no fixed size, got {replay_bytes}: bind replay_capacity"
            )
        if replay_eviction != "oldest" and replay_compression is not None:
            raise ValueError(
                f"replay_compression must be None where replay_eviction={replay_eviction!r}, got {replay_compression!r}"
            )
        if one_step_loss and replay_eviction != "oldest":
            raise ValueError(f"replay_eviction must be 'oldest' where one_step_loss=True, got {replay_eviction!r}")
        check_factories(
            "DQNAgent",
            network=(network, "@create_network"),
            epsilon_fn=(epsilon_fn, "@linearly_decaying_epsilon"),
            optimizer=(optimizer, "@create_optimizer"),
        )
        if actor_priorities and replay_scheme == "uniform":
            raise ValueError("actor_priorities must be False where replay_scheme='uniform', which has no priorities")
        if not 0 <= priority_epsilon < float("inf"):
            raise ValueError(f"priority_epsilon must be >= 0 and finite, got {priority_epsilon}")
        super().__init__(observation_space, action_space, decision_interval=decision_interval, seed=seed)
        self.first_action, self.num_actions = discrete_actions(action_space, self.name)
        self.stack_size = stack_size
        self.update_period, self.num_updates_per_train_step = update_period, num_updates_per_train_step
        self.batch_size = batch_size
        self.summary_writing_frequency = summary_writing_frequency
        self.gamma, self.discount_by = gamma, discount_by
        self.double_dqn = double_dqn
        self.compute = Compute(device, channels_last, bf16, compile)
        self.reader = reader_of(observation_space, stack_size, self.compute, self.name)
        self._network, self._optimizer, self._loss_type = network, optimizer, loss_type
        self._priority, self._actor_priorities = priority, actor_priorities
        self._replay: dict[str, Any] = {
            "stack_size": stack_size,
            "update_horizon": update_horizon,
            "gamma": gamma,
            "discount_by": discount_by,
            "batch_size": batch_size,
            "replay_bytes": replay_bytes,
            "eviction": replay_eviction,
            "compression": replay_compression,
            "selector": replay_scheme,
        }
        self._exponents = {"priority_exponent": priority_exponent, "importance_exponent": importance_exponent}
        if replay_scheme == "prioritized":
            self._replay |= self._exponents
        self._replay_capacity = replay_capacity
        self._min_replay_history = min_replay_history
        self._warmup_unset = epsilon_warmup is None and min_replay_history > 0 and has_warmup(epsilon_fn)
        if decision_interval is None:
            self.check_warmup()
            decision_interval = 1
        warmup = min_replay_history * decision_interval if epsilon_warmup is None else epsilon_warmup
        per_actor = is_per_actor(epsilon_fn)
        self._epsilon = Epsilon(epsilon_fn, epsilon_decay_period, warmup, epsilon_train, epsilon_eval, per_actor)
        self._learning: dict[str, Any] = {
            "target_update_period": max(1, round(target_update_period * num_updates_per_train_step / update_period)),
            "max_gradient_norm": max_gradient_norm,
            "one_step_loss": one_step_loss,
            "priority_epsilon": priority_epsilon,
            "diverged_dir": diverged_dir,
            **learning_rate_decaying(learning_rate_decay, learning_rate_power, learning_rate_end),
        }
        seeds = [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(4)]
        self._weights_seed, self._replay_seed, self._exploration_seed, self._learning_seed = seeds

    # The algorithm. Subclasses override these two, and what the network is.

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A] of observations [B, k, *shape]; what is drawn is drawn from `rng`."""
        return network(observation)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the loss of ``r + discount max_a Q_target(o', a) - Q(o, a)`` (Mnih et al. 2015, Algorithm 1).

        With `double_dqn` the online network chooses the action (van Hasselt et al. 2016, eq. 4).
        """
        with torch.no_grad():
            q_t = networks.target(batch["next_observation"])
            q_t_selector = networks.online(batch["next_observation"]) if self.double_dqn else None
        q_tm1 = networks.online(batch["observation"])
        step = (q_tm1, batch["action"], batch["reward"], batch["discount"])
        if q_t_selector is None:
            td_error = losses.td_error_q_learning(*step, q_t)
        else:
            td_error = losses.td_error_double_q_learning(*step, q_t, q_t_selector)
        loss = LOSSES[self._loss_type](td_error)
        return LossOutput(loss, priority=loss if self._priority == "loss" else td_error.abs())

    def priority_of_error(self, td_error: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the priorities that the learner would give transitions of these temporal-difference errors, [B]."""
        if self._priority == "error":
            worth = np.abs(td_error)
        else:
            worth = LOSSES[self._loss_type](torch.from_numpy(td_error)).numpy()
        return worth + float(self._learning["priority_epsilon"])

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Call the factory for the agent's network; its weights are drawn from torch's generator."""
        return network(self.observation_shape, self.num_actions, *self.outputs)

    def network_inputs(self, observation: Any) -> tuple[Any, ...]:
        """Return the inputs of the network for observations [B, k, *shape]."""
        return (observation,)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output for one observation."""
        return (self.num_actions, *self.outputs)

    @property
    def batch_tensors(self) -> Callable[[Mapping[str, Any]], Batch] | None:
        """What turns a batch's arrays into tensors; None for batches of transitions."""
        return None

    def make_monitor(self) -> Monitor | None:
        """Make what watches the transitions of one environment."""
        return None

    # Policies, learners, networks and replays.

    def make_policy(self, number: int = 0, workers: int = 1) -> WorkerPolicy:
        """Make the policy of worker `number` of `workers`, with weights of its own: no replay, optimiser or target.

        All are the same function, unless `epsilon_fn` is one that takes the number of the ``actor``.

        Raises:
            ValueError: `stack_size` is more than 1, and it is not made by `of_stacks`.
        """
        self.check_one_at_a_time()
        network = self.make_network().requires_grad_(False)
        policy = self.make_policy_for(network, actor=number, actors=workers)
        return WorkerPolicy(policy, self.reader.without_tuples, self.whole_stacks)

    def of_stacks(self) -> Any:
        """Return the same agent for observations that are stacks; see `Spec.of_stacks`."""
        other = copy.copy(self)
        other.whole_stacks, other._replay = True, {**other._replay, "stack_size": 1}
        return other

    def make_policy_of(self, learner: Any) -> Policy:
        """Make the policy of a turn-based agent, which reads the learner's network in place."""
        return self.make_policy_for(learner.network)

    def make_policy_for(self, network: nn.Module, actor: int = 0, actors: int = 1) -> Policy:
        """Make a policy that reads `network` in place."""
        return self._make_policy(network, self._epsilon.of_actor(actor, actors))

    def make_vector_policy(self, learner: Any, num_envs: int) -> Policy:
        """Make the policy of many environments, each of which is an actor for an `epsilon_fn` that takes one."""
        return self._make_policy(
            learner.network, self._epsilon.of_environments(num_envs), leaves_values=self._actor_priorities
        )

    def make_device_policy(self, learner: Any, num_envs: int, device: str) -> EpsilonGreedyPolicy:
        """Make the policy of many environments with a copy of the learner's network on a device.

        Raises:
            ValueError: There is no such device.
        """
        there = self.on_device(device)
        network = there.compute.place(copy.deepcopy(learner.network)).requires_grad_(False)
        policy: EpsilonGreedyPolicy = there.make_vector_policy(_Acting(network), num_envs)
        return policy

    def on_device(self, device: str) -> Any:
        """Return the same agent with another device to compute on.

        Raises:
            ValueError: There is no such device.
        """
        there = copy.copy(self)  # which leaves out what lies on a device, as pickling does
        there.compute = replace(self.compute, device=device)
        there.reader = reader_of(self.observation_space, self.stack_size, there.compute, self.name)
        return there

    def make_actor_priorities(self, num_envs: int) -> ActorPriorities | None:
        """Make what gives transitions their first priorities, where they are not to enter with the largest one."""
        if not self._actor_priorities:
            return None
        of_replay = {name: self._replay[name] for name in ("update_horizon", "gamma", "discount_by")}
        return ActorPriorities(num_envs, self.priority_of_error, **of_replay)

    def _make_policy(self, network: nn.Module, epsilon: Epsilon, leaves_values: bool = False) -> Policy:
        return EpsilonGreedyPolicy(
            network,
            self.values,
            num_actions=self.num_actions,
            epsilon=epsilon,
            seed=self._exploration_seed,
            compute=self.compute,
            first_action=self.first_action,
            read=self.reader,
            values_draw=self.values_draw,
            leaves_values=leaves_values,
        )

    def make_learner(self, number: int = 0, learners: int = 1) -> Learner:
        """Make learner `number` of `learners`: no policy.

        All begin with the same weights, those of every policy. Each observes every transition into a replay of the full
        capacity, and draws batches of its own: together they are the paper's learners of one buffer, and take the
        memory of as many replays.

        Raises:
            ValueError: `number` is not one of them, or an argument is out of range.
        """
        if not 0 <= number < learners:
            raise ValueError(f"number must lie in [0, {learners}), one for each learner, got {number}")
        return self._make_learner(number)

    def make_vector_learner(self, num_envs: int, number: int = 0, learners: int = 1) -> Learner:
        """Make the learner of many environments, whose replay has a lane for each: together they have the capacity.

        Of several learners, each with its own environments, it is learner `number`: a part of each batch, of the
        capacity and of the history before the first update is its own.

        Raises:
            ValueError: An argument is out of range, or `batch_size` is no multiple of `learners`.
        """
        one = self if learners == 1 else self._one_of(learners)
        return one._make_learner(number, num_envs)

    def _one_of(self, learners: int) -> DQN:
        """Return what one of several learners is made of."""
        batch_size = self._replay["batch_size"]
        if batch_size % learners:
            raise ValueError(f"batch_size must be a multiple of the {learners} learners, got {batch_size}")
        one = copy.copy(self)
        one._replay = {**self._replay, "batch_size": batch_size // learners}
        if (replay_bytes := self._replay.get("replay_bytes")) is None:
            one._replay_capacity = (self._replay_capacity or 1_000_000) // learners
        else:
            one._replay["replay_bytes"] = replay_bytes // learners
        one._min_replay_history = self._min_replay_history // learners
        return one

    def _make_learner(self, number: int, num_envs: int = 1) -> Learner:
        if self._loss_type not in LOSSES:
            raise ValueError(f"loss_type must be one of {', '.join(map(repr, LOSSES))}, got {self._loss_type!r}")
        if self.outputs and (self._priority == "error" or self._actor_priorities):
            raise ValueError(
                f"priority must be 'loss' and actor_priorities False with agent {self.name!r}, whose loss is not a "
                f"function of one error, got {self._priority!r} and {self._actor_priorities}"
            )
        return Learner(
            self.make_network(),
            self.loss,
            self._replay_that_fits(number, num_envs),
            kind=self.learner_kind,
            optimizer=self._optimizer,
            min_replay_history=self._min_replay_history,
            compute=self.compute,
            first_action=self.first_action,
            read=whole_stacks(self.reader) if self.whole_stacks else self.reader,
            tensors=self.batch_tensors,
            monitors=[monitor for _ in range(num_envs) if (monitor := self.make_monitor()) is not None],
            seed=own_seed(self._learning_seed, number),
            **self._learning,
        )

    def _replay_that_fits(self, number: int, num_envs: int) -> Replay:
        try:
            return self.make_replay(self._replay_capacity, own_seed(self._replay_seed, number), num_envs)
        except MemoryError as error:
            name = "replay_capacity" if self._replay_capacity is not None else "replay_bytes"
            given = self._replay_capacity or self._replay.get("replay_bytes") or 1_000_000
            unit = "bytes" if self._replay.get("replay_bytes") else "observations"
            what = str(error).splitlines()[0]
            raise ValueError(
                f"{name} must be what memory holds, got {given:,} {unit} ({what}): bind a smaller one"
            ) from None

    def make_network(self) -> nn.Module:
        """Make the network with its first weights, where it computes.

        Raises:
            ValueError: The network does not fit the observations, or gives what the agent cannot use.
        """
        if isinstance(self._network, ReadyMade):
            return self.compute.place(self._network())
        with seeded(self._weights_seed):
            network = self.build_network(self._network)
            self.check_network(network, Reader(self.observation_space, self.stack_size, Compute("cpu")))
        return self.compute.place(network)

    def check_network(self, network: nn.Module, read: Reader) -> None:
        """Refuse a network that does not fit the observations, or gives what the agent cannot use: a ValueError."""
        check_fit(network, self.network_inputs(read(self.reader.blank_stacks())), self.output_shape, self.name)

    def make_replay(self, capacity: int | None, seed: int, num_envs: int = 1) -> Replay:
        """Make the replay memory, with a lane for each environment."""
        return create_replay(
            self.stored_space,
            capacity=capacity,
            seed=seed,
            extras=self.extras,
            num_envs=num_envs,
            **self._replay,
        )

    # For the agent's surroundings: the runner, checkpoints, other processes.

    @property
    def observation_shape(self) -> Any:
        """Shape of what the network reads, [k, *shape], or a dict of such."""
        return self.reader.shape

    def identity(self, learner: Learner) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its replay's facts and its optimiser's name."""
        return {
            "agent": f"{type(self).__name__}Agent",
            "observation_shape": each_array(list, self.observation_shape),
            "actions": self.num_actions,
            "network": {name: list(weight.shape) for name, weight in learner.network.named_parameters()},
            "replay": learner.replay.facts(),
            "optimizer": learner.optimizer_name,
        }

    def blank(self) -> Any:
        """Return the observation that stands before an episode's first: zeros."""
        return self.reader.blank()

    def without_tuples(self, observation: Any) -> Any:
        """Return an observation with a dict by position for each tuple of a Tuple space."""
        return self.reader.without_tuples(observation)

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Let learners put the batch whose loss is not finite into a run's directory, if no other one was given."""
        if self._learning["diverged_dir"] is None:
            self._learning["diverged_dir"] = str(directory)

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

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, where gin is empty: plain values, and the network as it was made."""
        return {
            **self.__dict__,
            "_network": ReadyMade(self.make_network().cpu()),
            "_optimizer": with_gin_values(self._optimizer),
            "_replay": {
                name: with_gin_values(value) if callable(value) else value for name, value in self._replay.items()
            },
            "_epsilon": self._epsilon.map_schedule(with_gin_values),
        }


def refuse_loss_type(agent: str, shared: Mapping[str, Any]) -> None:
    """Refuse a `loss_type` that is bound to an agent whose loss is another one: it would have no effect."""
    if "loss_type" in shared:
        raise ValueError(
            f"loss_type must not be bound with agent {agent!r}, whose loss is of distributions and not of one error, "
            f"got {shared['loss_type']!r}"
        )


@dataclass(frozen=True)
class _Acting:
    """What a policy reads of a learner."""

    network: nn.Module
