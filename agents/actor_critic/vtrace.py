"""V-trace (Espeholt et al., "IMPALA", 2018; as in Espeholt et al., "SEED RL", 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import nn

from async_wrappers.agents.learner import Batch, Learner, LossOutput, Networks, create_optimizer, linear_decay
from async_wrappers.agents.losses.actor_critic import entropy, log_prob, masked_mean, vtrace
from async_wrappers.agents.networks.sequence_network import check_sequence_fit, create_actor_critic
from async_wrappers.agents.policy import Decisions, RecurrentPolicy, WorkerPolicy
from async_wrappers.agents.replay.queue import WHEN_FULL, UnrollQueue
from async_wrappers.agents.replay.sequences import STATE, sequence_tensors
from async_wrappers.agents.schema import Compute, each_array
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
    refuse_memory_under_delay,
    seeded,
    with_gin_values,
)

__all__ = ["VTrace"]


@gin.configurable("VTraceAgent", module="agents", denylist=["decision_interval"])
class VTrace(Spec):
    """V-trace actor-critic (Espeholt et al. 2018), ``VTraceAgent`` in gin; the defaults are SEED RL's.

    Environments are played in unrolls of T rows, each of which is learnt from once. An update is due as soon as B
    unrolls wait, so acting and learning go in step. What the behaviour policy was, a network of a few updates earlier,
    lies beside each action, as its logits.

    In training an action is drawn from the policy, in evaluation it is the likeliest.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.
        action_space: Discrete.
        stack_size: Observations of the last k decisions that the network sees, k.
        network: From (observation shape [k, *shape], number of actions) to a `SequenceNetwork` of a policy and a value.
        gamma: Discount.
        discount_by: ``"decision"``: gamma per decision, as in the paper; ``"frame"``: gamma ** interval.
        unroll_length: T, in rows: decisions, and the final observation of each episode.
        batch_size: Unrolls of an update, B.
        when_full: Whether acting waits for the learner, ``"wait"``; or what is dropped if it is slower:
            ``"drop_oldest"``, ``"drop_newest"``.
        queue_capacity: Unrolls that wait at most, where some are dropped; at least B.
        update_period: Decisions between two updates at least, where unrolls are dropped; 1 where acting waits.
        lambda_: Decay of the traces, lambda.
        clip_rho: rho-bar.
        clip_c: c-bar.
        clip_pg_rho: Clips the ratio of the policy gradient; None for rho-bar.
        baseline_cost: Weight of the value's loss, half the squared error.
        entropy_cost: Weight of the policy's entropy, which is maximised.
        max_abs_reward: Clip rewards to [-c, c] in the loss; None leaves them as they are.
        optimizer: From parameters to an optimiser.
        learning_rate_decay: Updates over which the learning rate falls linearly to 0; None keeps it.
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images in the channels-last memory format (faster on a CPU: benchmarks/README.md).
        bf16: Forward passes in bfloat16.
        compile: Compile the network with ``torch.compile``; needs a C++ compiler.
        summary_writing_frequency: Updates between two reports of the loss.
        diverged_dir: Where the batch goes whose loss is not finite, which ends the run; None for the run's base_dir,
            the working directory where there is none.
        decision_interval: Frames from one decision to the next, the environment's; None where they vary. gin does not
            bind it.
        seed: Of the weights and the exploration.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "vtrace"
    learns_once: ClassVar[bool] = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        stack_size: int = 4,
        network: Callable[..., nn.Module] = create_actor_critic,
        gamma: float = 0.99,
        discount_by: str = "decision",
        unroll_length: int = 100,
        batch_size: int = 32,
        when_full: str = "wait",
        queue_capacity: int = 64,
        update_period: int = 1,
        lambda_: float = 1.0,
        clip_rho: float = 1.0,
        clip_c: float = 1.0,
        clip_pg_rho: float | None = None,
        baseline_cost: float = 0.5,
        entropy_cost: float = 0.00025,
        max_abs_reward: float | None = None,
        optimizer: Callable[..., torch.optim.Optimizer] = create_optimizer,
        learning_rate_decay: int | None = None,
        max_gradient_norm: float | None = None,
        device: str = "auto",
        channels_last: bool = True,
        bf16: bool = False,
        compile: bool = False,
        summary_writing_frequency: int = 100,
        diverged_dir: str | None = None,
        decision_interval: int | None = 1,
        seed: int = 0,
    ) -> None:
        """See the class."""
        check_numbers(gamma=gamma, lambda_=lambda_, clip_rho=clip_rho, clip_c=clip_c)
        check_numbers(baseline_cost=baseline_cost, entropy_cost=entropy_cost)
        check_shares(gamma=gamma, lambda_=lambda_)
        check_flags(channels_last=channels_last, bf16=bf16, compile=compile)
        check_choice("discount_by", discount_by, ("decision", "frame"))
        if not isinstance(when_full, str) or when_full not in WHEN_FULL:
            raise ValueError(f"when_full must be one of {', '.join(map(repr, WHEN_FULL))}, got {when_full!r}")
        check_at_least("stack_size", stack_size, 1, "observation")
        check_at_least("unroll_length", unroll_length, 1, "row")
        check_at_least("batch_size", batch_size, 1, "unroll")
        check_at_least("queue_capacity", queue_capacity, batch_size, "unrolls, those of a batch")
        check_at_least("update_period", update_period, 1, "decision")
        check_at_least("summary_writing_frequency", summary_writing_frequency, 1, "update")
        check_at_least("seed", seed, 0, "or more")
        if learning_rate_decay is not None:
            check_at_least("learning_rate_decay", learning_rate_decay, 1, "update")
        if decision_interval is not None:
            check_at_least("decision_interval", decision_interval, 1, "frame")
        positive = {"clip_rho": clip_rho, "clip_c": clip_c, "clip_pg_rho": clip_pg_rho}
        positive |= {"max_abs_reward": max_abs_reward, "max_gradient_norm": max_gradient_norm}
        for argument, value in positive.items():
            if value is not None:
                check_numbers(**{argument: value})
                if not value > 0:
                    raise ValueError(f"{argument} must be > 0, got {value}")
        for argument, value in {"baseline_cost": baseline_cost, "entropy_cost": entropy_cost}.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{argument} must be >= 0 and finite, got {value}")
        if when_full == "wait" and update_period != 1:
            raise ValueError(f"update_period must be 1 where when_full='wait', got {update_period}")
        if unroll_length * batch_size < 2:
            raise ValueError("unroll_length and batch_size must not both be 1: give batch_size >= 2 unrolls")
        if diverged_dir is not None and not isinstance(diverged_dir, str | Path):
            raise ValueError(f"diverged_dir must be a path, or None for the run's base_dir, got {diverged_dir!r}")
        check_factories(
            "VTraceAgent", network=(network, "@create_actor_critic"), optimizer=(optimizer, "@create_optimizer")
        )
        super().__init__(observation_space, action_space, decision_interval=decision_interval, seed=seed)
        self.first_action, self.num_actions = discrete_actions(action_space, self.name)
        self.stack_size, self.update_period = stack_size, update_period
        self.summary_writing_frequency = summary_writing_frequency
        self.batch_size = batch_size * unroll_length
        self.compute = Compute(device, channels_last, bf16, compile)
        self.reader = reader_of(observation_space, stack_size, self.compute, self.name)
        self.lambda_, self.clip_rho, self.clip_c, self.clip_pg_rho = lambda_, clip_rho, clip_c, clip_pg_rho
        self.baseline_cost, self.entropy_cost, self.max_abs_reward = baseline_cost, entropy_cost, max_abs_reward
        self._network, self._optimizer = network, optimizer
        self._unrolls, self._queue_capacity = batch_size, queue_capacity
        self._queue: dict[str, Any] = {
            "unroll_length": unroll_length,
            "batch_size": batch_size,
            "when_full": when_full,
            "stack_size": stack_size,
            "gamma": gamma,
            "discount_by": discount_by,
        }
        self._learning: dict[str, Any] = {"max_gradient_norm": max_gradient_norm, "diverged_dir": diverged_dir}
        if learning_rate_decay is not None:
            self._learning["learning_rate_scale"] = partial(linear_decay, over=learning_rate_decay)
        seeds = [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(3)]
        self._weights_seed, self._exploration_seed, self._learning_seed = seeds

    # The algorithm.

    def choose(
        self, outputs: Any, rows: Decisions, uniforms: npt.NDArray[np.float64], random_actions: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
        """Return actions [R] drawn from the policy, in evaluation the likeliest, and the logits [R, A] drawn from."""
        logits = outputs[0].cpu().numpy()
        likelihood = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True)).cumsum(axis=1)
        drawn = (likelihood <= uniforms[:, None] * likelihood[:, -1:]).sum(axis=1)
        return np.where(rows.eval_mode, logits.argmax(axis=1), drawn), {"logits": logits}

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the policy's, the value's and the entropy's loss (Espeholt et al. 2018, section 4.2)."""
        (logits, values), _ = networks.online(
            batch["observation"],
            batch["previous_action"],
            batch["previous_reward"],
            batch["first"],
            batch[STATE],
        )
        logits, mask, reward = logits[:-1], batch["mask"], batch["reward"]
        if self.max_abs_reward is not None:
            reward = reward.clamp(-self.max_abs_reward, self.max_abs_reward)
        log_pi = log_prob(logits, batch["action"])
        log_rhos = (log_pi - log_prob(batch["extras"]["logits"], batch["action"])).detach()
        returns = vtrace(
            values.detach(),
            reward,
            batch["discount"],
            log_rhos,
            mask,
            lambda_=self.lambda_,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_pg_rho=self.clip_pg_rho,
        )
        policy_loss = masked_mean(-log_pi * returns.advantages, mask)
        value_loss = masked_mean(0.5 * (returns.targets - values[:-1]) ** 2, mask)
        entropies = masked_mean(entropy(logits), mask)
        loss = policy_loss + self.baseline_cost * value_loss - self.entropy_cost * entropies
        metrics = {"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Entropy": entropies}
        metrics |= {"Rho": masked_mean(log_rhos.exp(), mask), "Value": masked_mean(values[:-1], mask)}
        return LossOutput(loss, metrics={name: each.mean() for name, each in metrics.items()}, mean_over=mask.sum())

    # Policies, learners, networks and queues.

    @cached_property
    def state_size(self) -> int:
        """Numbers that the network's core remembers; 0 without one."""
        network: Any = self.make_network()
        return int(network.state_size)

    @property
    def extras(self) -> Dict:  # type: ignore[override]
        """What the policy leaves beside its action: the logits [A], and the core's state [S] if there is one."""
        logits = Box(-np.inf, np.inf, (self.num_actions,), np.float32)
        if not self.state_size:
            return Dict(logits=logits)
        return Dict({"logits": logits, STATE: Box(-np.inf, np.inf, (self.state_size,), np.float32)})

    def make_policy(self, number: int = 0, workers: int = 1) -> WorkerPolicy:
        """Make the policy of a worker, with weights of its own.

        Raises:
            ValueError: `stack_size` is more than 1, or the network reads more than the observation.
        """
        if self.stack_size > 1:
            raise ValueError(
                f"stack_size must be 1 for a policy that reads one observation at a time, got {self.stack_size}"
            )
        policy = self._make_policy(self.make_network().requires_grad_(False))
        if policy.remembers:
            refuse_memory_under_delay(self.name, None, None)
        return WorkerPolicy(policy, self.reader.without_tuples)

    def make_policy_of(self, learner: Any) -> RecurrentPolicy:
        """Make the policy of a turn-based agent, which reads the learner's network in place."""
        return self._make_policy(learner.network)

    def make_vector_policy(self, learner: Any, num_envs: int) -> RecurrentPolicy:
        """Make the policy of many environments, which reads the learner's network in place."""
        return self._make_policy(learner.network)

    def _make_policy(self, network: nn.Module) -> RecurrentPolicy:
        return RecurrentPolicy(
            network,
            self.choose,
            self.num_actions,
            self._exploration_seed,
            self.compute,
            self.first_action,
            self.reader,
        )

    def make_learner(self, number: int = 0, learners: int = 1) -> Learner:
        """Make learner `number` of `learners`, each with a queue of its own.

        Raises:
            ValueError: `number` is not one of them.
        """
        if not 0 <= number < learners:
            raise ValueError(f"number must lie in [0, {learners}), one for each learner, got {number}")
        return self._make_learner(number, 1)

    def make_vector_learner(self, num_envs: int, number: int = 0, learners: int = 1) -> Learner:
        """Make the learner of many environments; of several, each with its own, learner `number`.

        Each of several draws its part of a batch.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`.
        """
        return self._make_learner(number, num_envs, learners)

    def _make_learner(self, number: int, num_envs: int, learners: int = 1) -> Learner:
        return Learner(
            self.make_network(),
            self.loss,
            self.make_queue(num_envs, learners),
            kind="VTraceLearner",
            target_update_period=None,
            optimizer=self._optimizer,
            compute=self.compute,
            first_action=self.first_action,
            seed=own_seed(self._learning_seed, number),
            tensors=self._tensors,
            **self._learning,
        )

    def make_queue(self, num_envs: int, learners: int = 1) -> UnrollQueue:
        """Make the queue of unrolls of so many environments, those of one of several learners.

        Where acting waits for the learner, what waits besides a batch is what one round of decisions can complete.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`.
        """
        if self._unrolls % learners:
            raise ValueError(f"batch_size must be a multiple of the {learners} learners, got {self._unrolls}")
        unrolls = self._unrolls // learners
        waits = self._queue["when_full"] == "wait"
        capacity = unrolls + 2 * num_envs if waits else max(self._queue_capacity // learners, unrolls)
        settings = {**self._queue, "batch_size": unrolls, "num_envs": num_envs, "capacity": capacity}
        return UnrollQueue(self.observation_space, self.extras, **settings)

    def make_network(self) -> nn.Module:
        """Make the network with its first weights, where it computes.

        Raises:
            ValueError: The network does not fit the observations, or gives what the agent cannot use.
        """
        if isinstance(self._network, ReadyMade):
            return self.compute.place(self._network())
        with seeded(self._weights_seed):
            network = self._network(self.reader.shape, self.num_actions)
            blank = reader_of(self.observation_space, self.stack_size, Compute("cpu"), self.name)
            check_sequence_fit(network, blank(self.reader.blank_stacks()), ((self.num_actions,), ()), self.name)
        return self.compute.place(network)

    def _tensors(self, arrays: Mapping[str, Any]) -> Batch:
        return sequence_tensors(arrays, self.reader, self.compute.tensor, self.stack_size)

    # For the agent's surroundings: the runner, checkpoints, other processes.

    def check_delay(self, delay: int | None, decision_interval: int | None) -> None:
        """Refuse to play with memory where a decision starts before the last one's action lands."""
        network: Any = self.make_network()
        if network.state_size or network.feed_previous:
            refuse_memory_under_delay(self.name, delay, decision_interval)

    def identity(self, learner: Learner) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its queue's facts and its optimiser's name."""
        return {
            "agent": f"{type(self).__name__}Agent",
            "observation_shape": each_array(list, self.reader.shape),
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

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, where gin is empty: plain values, and the network as it was made."""
        network = ReadyMade(self.make_network().cpu())
        return {**self.__dict__, "_network": network, "_optimizer": with_gin_values(self._optimizer)}
