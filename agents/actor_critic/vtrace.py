"""V-trace (Espeholt et al., "IMPALA", 2018; as in Espeholt et al., "SEED RL", 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.learner import Batch, Learner, LossOutput, Networks
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
from async_wrappers.agents.network_agent import NetworkAgent, Remembering, of_several
from async_wrappers.agents.networks.sequence_network import check_sequence_fit, create_actor_critic
from async_wrappers.agents.policy import Decisions, RecurrentPolicy
from async_wrappers.agents.replay.elite import NetworkEncoder
from async_wrappers.agents.replay.mixture import Mixture, checked_sources
from async_wrappers.agents.replay.queue import WHEN_FULL, UnrollQueue
from async_wrappers.agents.replay.sequences import STATE, TORSO_VERSION, VERSION, sequence_tensors
from async_wrappers.agents.schema import Reader
from async_wrappers.agents.settings import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    again,
    agent,
    choice,
    factory,
    flag,
    must,
    number,
    setting,
    whole,
)
from async_wrappers.agents.spec import chunk_actions, own_seed

__all__ = ["VTrace"]

_LARGEST_LOG_COST = 20.0  # of an entropy's learnt weight, as SEED RL bounds it


@agent("VTraceAgent")
class VTrace(Remembering, NetworkAgent):
    """V-trace actor-critic (Espeholt et al. 2018), ``VTraceAgent`` in gin; the defaults are SEED RL's.

    Environments are played in unrolls of T rows, each of which is learnt from once. An update is due as soon as B
    unrolls wait, so acting and learning go in step. What the behaviour policy was, a network of a few updates earlier,
    lies beside each action, as its logits.

    With `sources`, a batch is made of fresh unrolls and of ones that were learnt from before (`replay.mixture`).

    In training an action is drawn from the policy, in evaluation it is the likeliest.

    The actions are Discrete, or MultiDiscrete ``[A] * H``: chunks of H actions
    (``RealtimeDelay(default_action="chunk")``). A decision then gives H of them, drawn independently. Which of them
    were executed is known when its transition is complete, and part of it; the log-probabilities, the entropy and the
    divergences of a decision are sums over these.
    """

    name: ClassVar[str] = "vtrace"

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

    # Hyperparameters, beside those of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_actor_critic,
        "From (observation shape [k, *shape], number of actions) to a `SequenceNetwork` of a policy and a value; for "
        "chunks with ``chunk=H`` too.",
        "@create_actor_critic",
    )
    unroll_length: int = whole(100, "T, in rows: decisions, and the final observation of each episode.", 1, "row")
    batch_size: int = whole(32, "Unrolls of an update, B.", 1, "unroll")
    sources: Sequence[tuple[Any, float]] | None = setting(
        None,
        'Pairs of a source and its share of a batch, which sum to 1: ``"queue"``, ``"standard"``, ``"elite"``, or what '
        "makes a source, such as ``@StandardReplay``; None for the queue alone.",
        lambda name, value: None,
    )
    prefetch: bool = flag(
        False, "Whether the replays' rows of the next batch are drawn in threads while the learner computes."
    )
    when_full: Literal["wait", "drop_oldest", "drop_newest", "alternate"] = choice(
        "wait",
        'Whether acting waits for the learner, ``"wait"``; or what is dropped if it is slower: ``"drop_oldest"``, '
        '``"drop_newest"``, ``"alternate"`` (one or the other by chance).',
        *WHEN_FULL,
    )
    queue_capacity: int | None = whole(
        None,
        "Unrolls that wait at most, where some are dropped; at least B.",
        1,
        "unroll",
        none="64, or B if that is more",
    )
    update_period: int = whole(1, "Decisions between two updates at least; 1 where acting waits.", 1, "decision")
    lambda_: float = number(1.0, "Decay of the traces, lambda.", SHARE)
    clip_rho: float = number(1.0, "rho-bar.", POSITIVE)
    clip_c: float = number(1.0, "c-bar.", POSITIVE)
    clip_pg_rho: float | None = number(None, "Clips the ratio of the policy gradient.", POSITIVE, none="rho-bar")
    baseline_cost: float = number(0.5, "Weight of the value's loss, half the squared error.", NOT_NEGATIVE)
    entropy_cost: float = number(
        0.00025,
        "Weight of the policy's entropy, which is maximised; with `target_entropy`, at the start.",
        NOT_NEGATIVE,
    )
    entropy_rows: str = choice(
        "all",
        'Whose entropy that is: ``"all"`` decisions of a batch, or ``"fresh"``, those that no replay gave (LASER\'s).',
        "all",
        "fresh",
    )
    target_entropy: float | None = number(
        None,
        "Entropy, in nats, at which a learnt weight holds the policy (SEED RL); None for a fixed weight.",
        none="a fixed weight",
    )
    entropy_cost_adjustment_speed: float = number(
        10.0, "How fast that weight follows: it is exp(speed x parameter).", POSITIVE
    )
    kl_cost: float = number(
        0.0,
        "Weight of the mean of log mu(a) - log pi(a), an estimate of KL(mu || pi), on all rows (SEED RL).",
        NOT_NEGATIVE,
    )
    policy_cloning_cost: float = number(
        0.0, 'Weight of KL(mu || pi) on replayed rows (Rolnick et al. 2018, "CLEAR": 0.01).', NOT_NEGATIVE
    )
    value_cloning_cost: float = number(
        0.0,
        "Weight of the squared difference from the value that mu's network gave, on replayed rows (CLEAR: 0.005).",
        NOT_NEGATIVE,
    )
    kl_threshold: float | None = number(
        None,
        'Learn neither policy nor value from a decision whose KL is not below (Schmitt et al. 2020, "LASER"); None '
        "learns from all.",
        POSITIVE,
        none="all decisions",
    )
    kl_to: str = choice(
        "behaviour",
        'Which KL that is: ``"behaviour"``, KL(pi || mu); or ``"implied"``, from pi to the policy whose value V-trace '
        "learns, proportional to min(rho-bar mu, pi).",
        "behaviour",
        "implied",
    )
    store_version: bool = flag(
        False, "Store with each decision how many updates had been made, and report how many were since."
    )
    max_abs_reward: float | None = number(
        None, "Clip rewards to [-c, c] in the loss.", POSITIVE, none="rewards as they are"
    )
    drawn_evaluation: bool = flag(
        False, "Draw actions from the policy in evaluation too; otherwise they are the likeliest."
    )
    summary_writing_frequency: int = again(NetworkAgent, "summary_writing_frequency", 100)

    def settle(self) -> None:
        """See `NetworkAgent`."""
        super().settle()
        made_of = checked_sources([("queue", 1.0)] if self.sources is None else self.sources, "VTraceAgent.sources")
        self.sources = made_of
        self.learns_once = any(source == "queue" for source, _ in made_of)
        if self.queue_capacity is not None:
            must(
                self.queue_capacity >= self.batch_size,
                f"queue_capacity must be >= {self.batch_size} unrolls, those of a batch, got {self.queue_capacity}",
            )
        must(
            not self.learns_once or self.when_full != "wait" or self.update_period == 1,
            f"update_period must be 1 where when_full='wait', got {self.update_period}",
        )
        must(
            self.unroll_length * self.batch_size >= 2,
            "unroll_length and batch_size must not both be 1: give batch_size >= 2 unrolls",
        )
        self.first_action, self.num_actions, self.chunk = chunk_actions(self.action_space, self.name)
        must(
            self.chunk is None or self.kl_threshold is None or self.kl_to != "implied",
            "kl_to must be 'behaviour' where decisions give chunks of actions, got 'implied'",
        )
        if self.target_entropy is not None:
            self._check_target_entropy(self.target_entropy)
        self.weights_seed, self.exploration_seed, self.learning_seed, self.sources_seed = self.seeds(4)

    def _check_target_entropy(self, target: float) -> None:
        most = math.log(self.num_actions) * (self.chunk or 1)
        of_chunks = "" if self.chunk is None else f"{self.chunk} times "
        must(
            0 < target < most,
            f"target_entropy must lie between 0 and {most:.3g} nats, those of {of_chunks}{self.num_actions} actions "
            f"that are equally likely, got {target}",
        )
        must(
            self.entropy_cost > 0,
            f"entropy_cost must be > 0 where target_entropy adjusts it, got {self.entropy_cost}",
        )

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.batch_size * self.unroll_length

    # The network.

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
            spaces |= {VERSION: count, TORSO_VERSION: count} if self.remembers else {VERSION: count}
        if self.state_size:
            spaces[STATE] = Box(-np.inf, np.inf, (self.state_size,), np.float32)
        return Dict(spaces)

    # Policies.

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:  # with `act`, or where it remembers in halves
        """Make the policy of a worker, with weights of its own; in two halves where the network remembers.

        Raises:
            ValueError: `stack_size` is more than 1 without `of_stacks`, or a network that remembers is not in two
                halves.
        """
        self.check_one_at_a_time()
        return self.in_worker(self._make_policy(self.make_network().requires_grad_(False), lambda: 0))

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
            self.exploration_seed,
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
        of_several(number, learners)
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
            self.make_sources(network, num_envs, own_seed(self.sources_seed, number), learners),
            kind="VTraceLearner",
            target_update_period=None,
            optimizer=self.optimizer,
            compute=self.compute,
            first_action=self.first_action,
            seed=own_seed(self.learning_seed, number),
            tensors=self._tensors,
            max_gradient_norm=self.max_gradient_norm,
            learning_rate_scale=self.learning_rate_scale,
            diverged_dir=self.diverged_dir,
        )
        return learner

    def _log_entropy_cost(self, network: Any) -> Tensor | None:
        """Return the logarithm of the weight of the entropy, a scalar; None where it is not learnt."""
        if self.target_entropy is None:
            return None
        speed, parameter = float(self.entropy_cost_adjustment_speed), network.entropy_parameter
        with torch.no_grad():
            parameter.clamp_(-_LARGEST_LOG_COST / speed, _LARGEST_LOG_COST / speed)
        cost: Tensor = speed * parameter
        return cost

    def make_sources(self, network: nn.Module, num_envs: int, seed: int, learners: int = 1) -> Mixture:
        """Make what a learner of a network draws its batches from: of so many environments, those of one of several.

        Raises:
            ValueError: `batch_size` is no multiple of `learners`, or there are replays beside the queue of several.
        """
        unrolls, capacity = self.batch_size, None
        if self.when_full != "wait":
            capacity = max(64, self.batch_size) if self.queue_capacity is None else self.queue_capacity
        assert self.sources is not None
        if learners > 1:
            if unrolls % learners:
                raise ValueError(f"batch_size must be a multiple of the {learners} learners, got {unrolls}")
            if any(source != "queue" for source, _ in self.sources):
                raise ValueError(
                    f"VTraceAgent.sources must be the queue alone where there are {learners} learners, got "
                    f"{self.sources}: bind VectorRunner.learners = 1"
                )
            unrolls //= learners
            capacity = None if capacity is None else max(capacity // learners, unrolls)
        queue = partial(UnrollQueue, capacity=capacity, when_full=self.when_full)
        return Mixture(
            self.stored_space,
            self.extras,
            [(queue if source == "queue" else source, share) for source, share in self.sources],
            num_envs=num_envs,
            seed=seed,
            encoder=NetworkEncoder(network, self.reader, self.compute, self.stored_in_stacks),
            in_flight=self.in_flight,
            unroll_length=self.unroll_length,
            batch_size=unrolls,
            stack_size=self.stored_in_stacks or 1,
            gamma=self.gamma,
            discount_by=self.discount_by,
            updates=self.learning_rate_decay,
            prefetch=self.prefetch,
            chunk=self.chunk,
        )

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """See `NetworkAgent`."""
        return network(self.reader.shape, self.num_actions, **({} if self.chunk is None else {"chunk": self.chunk}))

    def check_network(self, network: nn.Module, read: Reader) -> None:
        """See `NetworkAgent`."""
        shapes = self._logits_shape, ()
        check_sequence_fit(network, read(self.reader.blank_stacks()), shapes, self.name, self.chunk)

    def make_network(self) -> nn.Module:
        """See `NetworkAgent`; where the entropy's weight is learnt, it is the network's ``entropy_parameter``."""
        network = super().make_network()
        if self.target_entropy is not None and not hasattr(network, "entropy_parameter"):
            # It lies in the network to be in its checkpoints, and under its optimiser.
            first = torch.tensor(math.log(self.entropy_cost) / self.entropy_cost_adjustment_speed)
            network.register_parameter("entropy_parameter", nn.Parameter(self.compute.tensor(first.numpy())))
        return network

    def _tensors(self, arrays: Mapping[str, Any]) -> Batch:
        return sequence_tensors(arrays, self.reader, self.compute.tensor, self.stored_in_stacks)

    # For the agent's surroundings: the runner, checkpoints, other processes.

    def identity(self, learner: Learner) -> dict[str, Any]:
        """See `NetworkAgent`; the actions of a chunk are a list."""
        facts = super().identity(learner)
        return facts if self.chunk is None else {**facts, "actions": [self.num_actions] * self.chunk}
