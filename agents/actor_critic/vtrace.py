"""V-trace (Espeholt et al., "IMPALA", 2018; as in Espeholt et al., "SEED RL", 2020)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.learner import (
    Batch,
    Learner,
    LossOutput,
    Networks,
    create_optimizer,
    learning_rate_decaying,
)
from async_wrappers.agents.losses.actor_critic import (
    effective_sample_size,
    entropy,
    implied_policy,
    kl_divergence,
    log_prob,
    masked_mean,
    over_executed,
    vtrace,
)
from async_wrappers.agents.networks.sequence_network import check_sequence_fit, create_actor_critic
from async_wrappers.agents.policy import Decisions, RecurrentPolicy, one_row
from async_wrappers.agents.replay.elite import NetworkEncoder
from async_wrappers.agents.replay.mixture import Mixture, checked_sources
from async_wrappers.agents.replay.queue import WHEN_FULL, UnrollQueue
from async_wrappers.agents.replay.sequences import STATE, TORSO_VERSION, VERSION, sequence_tensors
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
    chunk_actions,
    own_seed,
    reader_of,
    seeded,
    with_gin_values,
)

__all__ = ["VTrace"]

_LARGEST_LOG_COST = 20.0  # of an entropy's learnt weight, as SEED RL bounds it


@gin.configurable("VTraceAgent", module="agents", denylist=["decision_interval"])
class VTrace(Spec):
    """V-trace actor-critic (Espeholt et al. 2018), ``VTraceAgent`` in gin; the defaults are SEED RL's.

    Environments are played in unrolls of T rows, each of which is learnt from once. An update is due as soon as B
    unrolls wait, so acting and learning go in step. What the behaviour policy was, a network of a few updates earlier,
    lies beside each action, as its logits.

    With `sources`, a batch is made of fresh unrolls and of ones that were learnt from before (`replay.mixture`).

    In training an action is drawn from the policy, in evaluation it is the likeliest.

    Where the actions are chunks (``RealtimeDelay(default_action="chunk")``), a decision gives H of them, drawn
    independently. Which of them were executed is known when its transition is complete, and part of it; the
    log-probabilities, the entropy and the divergences of a decision are sums over these.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these.
        action_space: Discrete, or MultiDiscrete ``[A] * H``: chunks of H actions.
        stack_size: Observations of the last k decisions that the network sees, k.
        network: From (observation shape [k, *shape], number of actions) to a `SequenceNetwork` of a policy and a value;
            for chunks with ``chunk=H`` too.
        gamma: Discount.
        discount_by: ``"decision"``: gamma per decision, as in the paper; ``"frame"``: gamma ** interval.
        unroll_length: T, in rows: decisions, and the final observation of each episode.
        batch_size: Unrolls of an update, B.
        sources: Pairs of a source and its share of a batch, which sum to 1: ``"queue"``, ``"standard"``, ``"elite"``,
            or what makes a source, such as ``@StandardReplay``; None for the queue alone.
        prefetch: Whether the replays' rows of the next batch are drawn in threads while the learner computes.
        when_full: Whether acting waits for the learner, ``"wait"``; or what is dropped if it is slower:
            ``"drop_oldest"``, ``"drop_newest"``, ``"alternate"`` (one or the other by chance).
        queue_capacity: Unrolls that wait at most, where some are dropped; at least B. None is 64, or B if that is more.
        update_period: Decisions between two updates at least; 1 where acting waits.
        lambda_: Decay of the traces, lambda.
        clip_rho: rho-bar.
        clip_c: c-bar.
        clip_pg_rho: Clips the ratio of the policy gradient; None for rho-bar.
        baseline_cost: Weight of the value's loss, half the squared error.
        entropy_cost: Weight of the policy's entropy, which is maximised; with `target_entropy`, at the start.
        entropy_rows: Whose entropy that is: ``"all"`` decisions of a batch, or ``"fresh"``, those that no replay gave
            (LASER's).
        target_entropy: Entropy, in nats, at which a learnt weight holds the policy (SEED RL); None for a fixed weight.
        entropy_cost_adjustment_speed: How fast that weight follows: it is exp(speed x parameter).
        kl_cost: Weight of the mean of log mu(a) - log pi(a), an estimate of KL(mu || pi), on all rows (SEED RL).
        policy_cloning_cost: Weight of KL(mu || pi) on replayed rows (Rolnick et al. 2018, "CLEAR": 0.01).
        value_cloning_cost: Weight of the squared difference from the value that mu's network gave, on replayed rows
            (CLEAR: 0.005).
        kl_threshold: Learn neither policy nor value from a decision whose KL is not below (Schmitt et al. 2020,
            "LASER"); None learns from all.
        kl_to: Which KL that is: ``"behaviour"``, KL(pi || mu); or ``"implied"``, from pi to the policy whose value
            V-trace learns, proportional to min(rho-bar mu, pi).
        store_version: Store with each decision how many updates had been made, and report how many were since.
        max_abs_reward: Clip rewards to [-c, c] in the loss; None leaves them as they are.
        drawn_evaluation: Draw actions from the policy in evaluation too; otherwise they are the likeliest.
        optimizer: From parameters to an optimiser.
        learning_rate_decay: Updates over which the learning rate falls, to 0 unless `learning_rate_end` is given; None
            keeps it.
        learning_rate_power: Of the fall: 1 for a line, 2 for a parabola, as in TensorFlow's ``PolynomialDecay``.
        learning_rate_end: Share of the learning rate that is left after `learning_rate_decay` updates, in [0, 1].
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images in the channels-last memory format (faster on a CPU: benchmarks/README.md).
        bf16: Forward passes in bfloat16; ``"auto"``: where the processor or GPU computes in it itself, as the run's
            first line says; a run that goes on keeps what it began with.
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
        sources: Sequence[tuple[Any, float]] | None = None,
        prefetch: bool = False,
        when_full: str = "wait",
        queue_capacity: int | None = None,
        update_period: int = 1,
        lambda_: float = 1.0,
        clip_rho: float = 1.0,
        clip_c: float = 1.0,
        clip_pg_rho: float | None = None,
        baseline_cost: float = 0.5,
        entropy_cost: float = 0.00025,
        entropy_rows: str = "all",
        target_entropy: float | None = None,
        entropy_cost_adjustment_speed: float = 10.0,
        kl_cost: float = 0.0,
        policy_cloning_cost: float = 0.0,
        value_cloning_cost: float = 0.0,
        kl_threshold: float | None = None,
        kl_to: str = "behaviour",
        store_version: bool = False,
        max_abs_reward: float | None = None,
        optimizer: Callable[..., torch.optim.Optimizer] = create_optimizer,
        learning_rate_decay: int | None = None,
        learning_rate_power: float = 1.0,
        learning_rate_end: float = 0.0,
        max_gradient_norm: float | None = None,
        device: str = "auto",
        channels_last: bool = True,
        bf16: bool | str = False,
        compile: bool = False,
        summary_writing_frequency: int = 100,
        diverged_dir: str | None = None,
        decision_interval: int | None = 1,
        seed: int = 0,
        drawn_evaluation: bool = False,
    ) -> None:
        """See the class."""
        check_flags(drawn_evaluation=drawn_evaluation)
        check_numbers(gamma=gamma, lambda_=lambda_, clip_rho=clip_rho, clip_c=clip_c)
        check_shares(gamma=gamma, lambda_=lambda_)
        check_flags(channels_last=channels_last, compile=compile, store_version=store_version, prefetch=prefetch)
        check_choice("discount_by", discount_by, ("decision", "frame"))
        check_choice("entropy_rows", entropy_rows, ("all", "fresh"))
        check_choice("kl_to", kl_to, ("behaviour", "implied"))
        if not isinstance(when_full, str) or when_full not in WHEN_FULL:
            raise ValueError(f"when_full must be one of {', '.join(map(repr, WHEN_FULL))}, got {when_full!r}")
        check_at_least("stack_size", stack_size, 1, "observation")
        check_at_least("unroll_length", unroll_length, 1, "row")
        check_at_least("batch_size", batch_size, 1, "unroll")
        queue_capacity = max(64, batch_size) if queue_capacity is None else queue_capacity
        check_at_least("queue_capacity", queue_capacity, batch_size, "unrolls, those of a batch")
        check_at_least("update_period", update_period, 1, "decision")
        check_at_least("summary_writing_frequency", summary_writing_frequency, 1, "update")
        check_at_least("seed", seed, 0, "or more")
        decaying = learning_rate_decaying(learning_rate_decay, learning_rate_power, learning_rate_end)
        if decision_interval is not None:
            check_at_least("decision_interval", decision_interval, 1, "frame")
        positive = {"clip_rho": clip_rho, "clip_c": clip_c, "clip_pg_rho": clip_pg_rho}
        positive |= {"max_abs_reward": max_abs_reward, "max_gradient_norm": max_gradient_norm}
        positive |= {"kl_threshold": kl_threshold, "entropy_cost_adjustment_speed": entropy_cost_adjustment_speed}
        for argument, value in positive.items():
            if value is not None:
                check_numbers(**{argument: value})
                if not value > 0:
                    raise ValueError(f"{argument} must be > 0, got {value}")
        costs = {"baseline_cost": baseline_cost, "entropy_cost": entropy_cost, "kl_cost": kl_cost}
        costs |= {"policy_cloning_cost": policy_cloning_cost, "value_cloning_cost": value_cloning_cost}
        for argument, value in costs.items():
            check_numbers(**{argument: value})
            if not 0 <= value < math.inf:
                raise ValueError(f"{argument} must be >= 0 and finite, got {value}")
        made_of = checked_sources([("queue", 1.0)] if sources is None else sources, "VTraceAgent.sources")
        self.learns_once = any(source == "queue" for source, _ in made_of)
        if self.learns_once and when_full == "wait" and update_period != 1:
            raise ValueError(f"update_period must be 1 where when_full='wait', got {update_period}")
        if unroll_length * batch_size < 2:
            raise ValueError("unroll_length and batch_size must not both be 1: give batch_size >= 2 unrolls")
        if diverged_dir is not None and not isinstance(diverged_dir, str | Path):
            raise ValueError(f"diverged_dir must be a path, or None for the run's base_dir, got {diverged_dir!r}")
        check_factories(
            "VTraceAgent", network=(network, "@create_actor_critic"), optimizer=(optimizer, "@create_optimizer")
        )
        super().__init__(observation_space, action_space, decision_interval=decision_interval, seed=seed)
        self.first_action, self.num_actions, self.chunk = chunk_actions(action_space, self.name)
        if self.chunk is not None and kl_threshold is not None and kl_to == "implied":
            raise ValueError("kl_to must be 'behaviour' where decisions give chunks of actions, got 'implied'")
        self.stack_size, self.update_period = stack_size, update_period
        self.drawn_evaluation = drawn_evaluation
        self.summary_writing_frequency = summary_writing_frequency
        self.batch_size = batch_size * unroll_length
        self.compute = Compute(device, channels_last, bf16, compile)
        self.reader = reader_of(observation_space, stack_size, self.compute, self.name)
        self.lambda_, self.clip_rho, self.clip_c, self.clip_pg_rho = lambda_, clip_rho, clip_c, clip_pg_rho
        self.baseline_cost, self.entropy_cost, self.max_abs_reward = baseline_cost, entropy_cost, max_abs_reward
        self.entropy_rows, self.kl_cost, self.target_entropy = entropy_rows, kl_cost, target_entropy
        self.policy_cloning_cost, self.value_cloning_cost = policy_cloning_cost, value_cloning_cost
        self.kl_threshold, self.kl_to, self.store_version = kl_threshold, kl_to, store_version
        if target_entropy is not None:
            self._check_target_entropy(target_entropy, entropy_cost)
        self._adjustment_speed = float(entropy_cost_adjustment_speed)
        self._network, self._optimizer = network, optimizer
        self._when_full: Any = when_full
        self._queue_capacity = None if when_full == "wait" else queue_capacity
        self._sources: list[tuple[Any, float]] = made_of
        self._mixture: dict[str, Any] = {
            "unroll_length": unroll_length,
            "batch_size": batch_size,
            "stack_size": stack_size,
            "gamma": gamma,
            "discount_by": discount_by,
            "updates": learning_rate_decay,
            "prefetch": prefetch,
            "chunk": self.chunk,
        }
        self._learning: dict[str, Any] = {"max_gradient_norm": max_gradient_norm, "diverged_dir": diverged_dir}
        self._learning |= decaying
        seeds = [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(4)]
        self._weights_seed, self._exploration_seed, self._learning_seed, self._sources_seed = seeds

    def _check_target_entropy(self, target: float, entropy_cost: float) -> None:
        check_numbers(target_entropy=target)
        most = math.log(self.num_actions) * (self.chunk or 1)
        if not 0 < target < most:
            of_chunks = "" if self.chunk is None else f"{self.chunk} times "
            raise ValueError(
                f"target_entropy must lie between 0 and {most:.3g} nats, those of {of_chunks}{self.num_actions} "
                f"actions that are equally likely, got {target}"
            )
        if not entropy_cost > 0:
            raise ValueError(f"entropy_cost must be > 0 where target_entropy adjusts it, got {entropy_cost}")

    # The algorithm.

    def choose(
        self, outputs: Any, rows: Decisions, uniforms: npt.NDArray[np.float64], *random_actions: Any
    ) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
        """Return actions [R] drawn from the policy, and what the loss needs of mu.

        In evaluation they are the likeliest, unless `drawn_evaluation`.

        That is the logits [R, A] drawn from and, where the value is cloned, the value [R]. Chunks are [R, H], with
        logits [R, H, A].
        """
        logits = outputs[0].cpu().numpy()
        likelihood = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)).cumsum(axis=-1)
        drawn = (likelihood <= uniforms[..., None] * likelihood[..., -1:]).sum(axis=-1)
        extras = {"logits": logits}
        if self.value_cloning_cost:
            extras["value"] = outputs[1].cpu().numpy()
        if self.drawn_evaluation:
            return drawn, extras
        eval_mode = rows.eval_mode if self.chunk is None else rows.eval_mode[:, None]
        return np.where(eval_mode, logits.argmax(axis=-1), drawn), extras

    def loss(
        self,
        networks: Networks,
        batch: Batch,
        rng: np.random.Generator,
        log_entropy_cost: Tensor | None = None,
        updates: int = 0,
    ) -> LossOutput:
        """Return the sum of the policy's, the value's and the entropy's loss (Espeholt et al. 2018, section 4.2).

        CLEAR's, LASER's and SEED RL's additions are there as far as they are asked for.

        Args:
            networks: The one that is learnt.
            batch: Tensors of a batch of sequences (`replay.sequences`).
            rng: Not needed.
            log_entropy_cost: Logarithm of the weight of the entropy, where it is learnt.
            updates: Updates made.
        """
        (logits, values), _ = networks.online(
            batch["observation"],
            batch["previous_action"],
            batch["previous_reward"],
            batch["first"],
            batch[STATE],
        )
        logits, mask, reward, mu = logits[:-1], batch["mask"], batch["reward"], batch["extras"]["logits"]
        if self.max_abs_reward is not None:
            reward = reward.clamp(-self.max_abs_reward, self.max_abs_reward)
        executed = batch.get("executed")  # of chunks
        log_pi = over_executed(log_prob(logits, batch["action"]), executed)
        log_mu = over_executed(log_prob(mu, batch["action"]), executed)
        log_rhos = (log_pi - log_mu).detach()
        accepted = mask * self._is_near(logits.detach(), mu, executed)
        returns = vtrace(
            values.detach(),
            reward,
            batch["discount"],
            log_rhos,
            accepted,
            lambda_=self.lambda_,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_pg_rho=self.clip_pg_rho,
        )
        # Means are over all decisions: a rejected one counts, as 0, since v = V there and the advantage is 0.
        policy_loss = masked_mean(-log_pi * returns.advantages, mask)
        value_loss = masked_mean(0.5 * (returns.targets - values[:-1]) ** 2, mask)
        replayed = mask * batch["replayed"] if "replayed" in batch else torch.zeros_like(mask)
        entropies = over_executed(entropy(logits), executed)
        entropies = masked_mean(entropies, mask if self.entropy_rows == "all" else mask - replayed)
        loss = policy_loss + self.baseline_cost * value_loss
        metrics = {"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Entropy": entropies}
        if log_entropy_cost is None or self.target_entropy is None:
            loss = loss - self.entropy_cost * entropies
        else:
            # The entropy's weight rises where the entropy is below its target (SEED RL, as a Lagrange multiplier).
            cost = log_entropy_cost.exp()
            loss = loss - cost.detach() * entropies + cost * (entropies.mean().detach() - self.target_entropy)
            metrics["EntropyCost"] = cost
        if self.kl_cost:
            loss = loss + self.kl_cost * masked_mean(log_mu - log_pi, mask)
        if self.policy_cloning_cost:
            cloning = over_executed(kl_divergence(mu, logits), executed)
            metrics["PolicyCloning"] = masked_mean(cloning, replayed)
            loss = loss + self.policy_cloning_cost * metrics["PolicyCloning"]
        if self.value_cloning_cost:
            metrics["ValueCloning"] = masked_mean((values[:-1] - batch["extras"]["value"]) ** 2, replayed)
            loss = loss + self.value_cloning_cost * metrics["ValueCloning"]
        kl = over_executed(kl_divergence(logits.detach(), mu), executed)
        metrics |= {"Value": masked_mean(values[:-1], mask), **self._off_policyness(kl, log_rhos, mask)}
        if self.kl_threshold is not None:
            metrics["Accepted"] = masked_mean(accepted, mask)
        if self.store_version:
            metrics["Lag"] = masked_mean(updates - batch["extras"][VERSION].float(), mask)
            if TORSO_VERSION in batch["extras"]:
                metrics["TorsoLag"] = masked_mean(updates - batch["extras"][TORSO_VERSION].float(), mask)
        return LossOutput(loss, metrics={name: each.mean() for name, each in metrics.items()}, mean_over=mask.sum())

    @torch.no_grad()
    def _is_near(self, logits: Tensor, mu: Tensor, executed: Tensor | None = None) -> Tensor | float:
        """Return 1 where pi and mu, of logits [T, B, A], are near enough to learn from, else 0, [T, B] (LASER)."""
        if self.kl_threshold is None:
            return 1.0
        other = implied_policy(logits, mu, self.clip_rho) if self.kl_to == "implied" else mu
        return (over_executed(kl_divergence(logits, other), executed) < self.kl_threshold).float()

    @torch.no_grad()
    def _off_policyness(self, kl: Tensor, log_rhos: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return how far the policy that acted is from that of now, in numbers to report."""
        ratios = log_rhos.exp()
        return {
            "Rho": masked_mean(ratios, mask),
            "RhoClipped": masked_mean((ratios > self.clip_rho).float(), mask),
            "CClipped": masked_mean((ratios > self.clip_c).float(), mask),
            "EffectiveSampleSize": effective_sample_size(log_rhos, mask),
            "KL": masked_mean(kl, mask),
        }

    # Policies, learners, networks and sources.

    @cached_property
    def state_size(self) -> int:
        """Numbers that the network's core remembers; 0 without one."""
        network: Any = self.make_network()
        return int(network.state_size)

    @property
    def _logits_shape(self) -> tuple[int, ...]:
        return (self.num_actions,) if self.chunk is None else (self.chunk, self.num_actions)

    @property
    def extras(self) -> Dict:  # type: ignore[override]
        """What the policy leaves beside its action: the logits [A], and what else is asked for.

        The core's state [S] if there is one, the value where it is cloned, and with `store_version` the updates that
        the weights had; of a policy with memory those of its torso's weights, too. Of chunks the logits are [H, A].
        """
        spaces: dict[str, Any] = {"logits": Box(-np.inf, np.inf, self._logits_shape, np.float32)}
        if self.value_cloning_cost:
            spaces["value"] = Box(-np.inf, np.inf, (), np.float32)
        if self.store_version:
            count = Box(0, np.iinfo(np.int64).max, (), np.int64)
            spaces |= {VERSION: count, TORSO_VERSION: count} if self._remembers else {VERSION: count}
        if self.state_size:
            spaces[STATE] = Box(-np.inf, np.inf, (self.state_size,), np.float32)
        return Dict(spaces)

    @cached_property
    def features(self) -> gym.Space[Any] | None:  # type: ignore[override]
        """What a worker's policy hands on in the place of actions, where the network reads more than observations."""
        return getattr(self.make_policy(), "features", None) if self._remembers else None

    @cached_property
    def _remembers(self) -> bool:
        network: Any = self.make_network()
        return bool(network.feed_previous or network.state_size)

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:  # with `act`, or where it remembers in halves
        """Make the policy of a worker, with weights of its own; in two halves where the network remembers.

        Raises:
            ValueError: `stack_size` is more than 1 without `of_stacks`, or a network that remembers is not in two
                halves.
        """
        self.check_one_at_a_time()
        policy = self._make_policy(self.make_network().requires_grad_(False), lambda: 0)
        return one_row(policy, self.reader.blank_stacks(), self.reader.without_tuples, self.whole_stacks)

    def of_stacks(self) -> Any:
        """Return the same agent for observations that are stacks; see `Spec.of_stacks`."""
        other = copy.copy(self)
        other.whole_stacks, other._mixture = True, {**other._mixture, "stack_size": 1}
        return other

    def make_policy_of(self, learner: Any) -> RecurrentPolicy:
        """Make the policy of a turn-based agent, which reads the learner's network in place."""
        return self._make_policy(learner.network, lambda: learner.version)

    def make_vector_policy(self, learner: Any, num_envs: int) -> RecurrentPolicy:
        """Make the policy of many environments, which reads the learner's network in place."""
        return self._make_policy(learner.network, lambda: learner.version)

    def _make_policy(self, network: nn.Module, version: Callable[[], int]) -> RecurrentPolicy:
        return RecurrentPolicy(
            network,
            self.choose,
            self.num_actions,
            self._exploration_seed,
            self.compute,
            self.first_action,
            self.reader,
            version if self.store_version else None,
            self.chunk,
        )

    def make_learner(self, number: int = 0, learners: int = 1) -> Learner:
        """Make learner `number` of `learners`, each with sources of its own.

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
            ValueError: `batch_size` is no multiple of `learners`, or there are replays beside the queue of several.
        """
        return self._make_learner(number, num_envs, learners)

    def _make_learner(self, number: int, num_envs: int, learners: int = 1) -> Learner:
        network = self.make_network()

        def loss(networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
            return self.loss(networks, batch, rng, self._log_entropy_cost(network), learner.updates_of_all)

        learner = Learner(
            network,
            loss,
            self.make_sources(network, num_envs, own_seed(self._sources_seed, number), learners),
            kind="VTraceLearner",
            target_update_period=None,
            optimizer=self._optimizer,
            compute=self.compute,
            first_action=self.first_action,
            seed=own_seed(self._learning_seed, number),
            tensors=self._tensors,
            **self._learning,
        )
        return learner

    def _log_entropy_cost(self, network: Any) -> Tensor | None:
        """Return the logarithm of the weight of the entropy, a scalar; None where it is not learnt."""
        if self.target_entropy is None:
            return None
        speed, parameter = self._adjustment_speed, network.entropy_parameter
        with torch.no_grad():
            parameter.clamp_(-_LARGEST_LOG_COST / speed, _LARGEST_LOG_COST / speed)
        cost: Tensor = speed * parameter
        return cost

    def make_sources(self, network: nn.Module, num_envs: int, seed: int, learners: int = 1) -> Mixture:
        """Make what a learner of a network draws its batches from: of so many environments, those of one of several.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`, or there are replays beside the queue of several.
        """
        unrolls, capacity = self._mixture["batch_size"], self._queue_capacity
        if learners > 1:
            if unrolls % learners:
                raise ValueError(f"batch_size must be a multiple of the {learners} learners, got {unrolls}")
            if any(source != "queue" for source, _ in self._sources):
                raise ValueError(
                    f"VTraceAgent.sources must be the queue alone where there are {learners} learners, got "
                    f"{self._sources}: bind VectorRunner.learners = 1"
                )
            unrolls //= learners
            capacity = None if capacity is None else max(capacity // learners, unrolls)
        queue = partial(UnrollQueue, capacity=capacity, when_full=self._when_full)
        return Mixture(
            self.stored_space,
            self.extras,
            [(queue if source == "queue" else source, share) for source, share in self._sources],
            num_envs=num_envs,
            seed=seed,
            encoder=NetworkEncoder(network, self.reader, self.compute, self._stored_in_stacks),
            in_flight=self.in_flight,
            **{**self._mixture, "batch_size": unrolls},
        )

    def make_network(self) -> nn.Module:
        """Make the network with its first weights, where it computes.

        Raises:
            ValueError: The network does not fit the observations, or gives what the agent cannot use.
        """
        if isinstance(self._network, ReadyMade):
            return self.compute.place(self._network())
        with seeded(self._weights_seed):
            of_chunks = {} if self.chunk is None else {"chunk": self.chunk}
            network = self._network(self.reader.shape, self.num_actions, **of_chunks)
            blank = reader_of(self.observation_space, self.stack_size, Compute("cpu"), self.name)
            shapes = self._logits_shape, ()
            check_sequence_fit(network, blank(self.reader.blank_stacks()), shapes, self.name, self.chunk)
        if self.target_entropy is not None:
            # It lies in the network to be in its checkpoints, and under its optimiser.
            first = torch.tensor(math.log(self.entropy_cost) / self._adjustment_speed)
            network.register_parameter("entropy_parameter", nn.Parameter(first))
        return self.compute.place(network)

    def _tensors(self, arrays: Mapping[str, Any]) -> Batch:
        return sequence_tensors(arrays, self.reader, self.compute.tensor, self._stored_in_stacks)

    @property
    def _stored_in_stacks(self) -> int | None:
        """Observations in a stack that is made of those stored, k; None where each is a stack."""
        return None if self.whole_stacks else self.stack_size

    # For the agent's surroundings: the runner, checkpoints, other processes.

    def identity(self, learner: Learner) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its sources' facts and its optimiser's name."""
        return {
            "agent": f"{type(self).__name__}Agent",
            "observation_shape": each_array(list, self.reader.shape),
            "actions": self.num_actions if self.chunk is None else [self.num_actions] * self.chunk,
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
        sources = [(each if isinstance(each, str) else with_gin_values(each), share) for each, share in self._sources]
        made = {"_network": network, "_optimizer": with_gin_values(self._optimizer), "_sources": sources}
        return {**self.__dict__, **made}
