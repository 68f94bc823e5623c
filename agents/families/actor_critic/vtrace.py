"""V-trace (Espeholt et al., "IMPALA", 2018; as in Espeholt et al., "SEED RL", 2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.families.actor_critic.actor_critic import ActorCritic
from async_wrappers.agents.families.actor_critic.terms import Rows, Term, check_terms
from async_wrappers.agents.losses.actor_critic import (
    effective_sample_size,
    entropy,
    log_prob,
    masked_mean,
    over_executed,
    vtrace,
)
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.networks.sequence_network import check_sequence_fit, create_actor_critic
from async_wrappers.agents.settings import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    agent,
    choice,
    factory,
    number,
    setting,
)
from async_wrappers.agents.spaces.actions import chunk_actions
from async_wrappers.agents.spaces.compute import Reader
from async_wrappers.agents.spaces.schema import STATE, TORSO_VERSION, VERSION


@agent("VTraceAgent")
class VTrace(ActorCritic):
    """V-trace actor-critic (Espeholt et al. 2018), ``VTraceAgent`` in gin; the defaults are SEED RL's.

    Environments are played in unrolls of T rows, each of which is learnt from once. An update is due as soon as B
    unrolls wait, so acting and learning alternate. The logits of the behaviour policy, a network of a few updates
    earlier, are stored beside each action.

    With `sources`, a batch has fresh unrolls and replayed ones (`replay.mixture`). With `terms`, the loss has CLEAR's,
    LASER's and SEED RL's additions (`actor_critic.terms`).

    In training an action is drawn from the policy, in evaluation it is the likeliest.

    The actions are Discrete, or MultiDiscrete ``[A] * H``: chunks of H actions
    (``RealtimeDelay(default_action="chunk")``). A decision then gives H of them, drawn independently. The executed ones
    are known when its transition is complete, which records them; the log-probabilities, the entropy and the
    divergences of a decision are sums over these.
    """

    name: ClassVar[str] = "vtrace"
    learner_kind: str = "VTraceLearner"

    # The algorithm.

    def choose(
        self, outputs: Any, rows: Decisions, uniforms: npt.NDArray[np.float64], *random_actions: Any
    ) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
        """Return actions [R], and the extras of mu for the loss.

        Actions are drawn from the policy; in evaluation they are the likeliest, unless `drawn_evaluation`. The loss
        needs the logits [R, A] and, where a term asks for it, the value [R]. Chunks are [R, H], their logits [R, H, A].
        """
        logits = outputs[0].cpu().numpy()
        likelihood = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)).cumsum(axis=-1)
        drawn = (likelihood <= uniforms[..., None] * likelihood[..., -1:]).sum(axis=-1)
        extras = {"logits": logits}
        if self.stores_value:
            extras["value"] = outputs[1].cpu().numpy()
        if self.drawn_evaluation:
            return drawn, extras
        eval_mode = rows.eval_mode if self.actions.chunk is None else rows.eval_mode[:, None]
        return np.where(eval_mode, logits.argmax(axis=-1), drawn), extras

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the policy's, the value's and the entropy's loss (Espeholt et al. 2018, section 4.2).

        The terms add theirs.

        Args:
            networks: The learnt network, also as a module, for terms that learn parameters in it.
            batch: Tensors of a batch of sequences (`replay.sequences`).
            rng: Not needed.
        """
        read = (batch[name] for name in ("observation", "previous_action", "previous_reward", "first", STATE))
        (logits, values), _ = networks.online(*read)
        rows = self._rows(logits[:-1], values[:-1], batch, networks)
        log_rhos, mask = (rows.log_pi - rows.log_mu).detach(), rows.mask
        accepted = mask
        for term in self.terms:
            accepted = accepted * term.accepts(rows)
        reward = batch["reward"]
        if self.max_abs_reward is not None:
            reward = reward.clamp(-self.max_abs_reward, self.max_abs_reward)
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
        policy_loss = masked_mean(-rows.log_pi * returns.advantages, mask)
        value_loss = masked_mean(0.5 * (returns.targets - rows.values) ** 2, mask)
        entropy_cost: Any = self.entropy_cost
        for term in self.terms:
            entropy_cost = term.entropy_cost(entropy_cost, rows)
        loss = policy_loss + self.baseline_cost * value_loss - entropy_cost * rows.entropies
        for term in self.terms:
            loss = loss + term.loss(rows)
        metrics = {"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Entropy": rows.entropies, **rows.metrics}
        metrics |= {"Value": masked_mean(rows.values, mask), **self._off_policyness(rows, log_rhos)}
        for tag, column in {"Lag": VERSION, "TorsoLag": TORSO_VERSION}.items():
            if column in batch["extras"]:
                metrics[tag] = masked_mean(networks.updates - batch["extras"][column].float(), mask)
        return LossOutput(loss, metrics={name: each.mean() for name, each in metrics.items()}, mean_over=mask.sum())

    def _rows(self, logits: Tensor, values: Tensor, batch: Batch, networks: Networks) -> Rows:
        """Return a batch's rows for the loss and its terms, with pi's logits [T, B, A] and values [T, B].

        The gradients of several learners are weighted by their numbers of decisions. Where a mean is over a part of
        these, the replayed or the fresh ones, the sum is therefore not divided by their number here, but by the number
        of decisions here times their share of all learners' decisions.
        """
        mask, mu, executed = batch["mask"], batch["extras"]["logits"], batch.get("executed")  # the last of chunks
        replayed = mask * batch["replayed"] if "replayed" in batch else torch.zeros_like(mask)
        count_of_replayed = count_of_fresh = None
        if networks.average is not None and self.replays:
            of_all = networks.average({"decisions": mask.sum(), "replayed": replayed.sum()}, 1)
            count_of_replayed = mask.sum() * of_all["replayed"] / of_all["decisions"].clamp(min=1.0)
            count_of_fresh = mask.sum() - count_of_replayed
        entropies, of_all_rows = over_executed(entropy(logits), executed), self.entropy_rows == "all"
        return Rows(
            logits=logits,
            mu=mu,
            values=values,
            log_pi=over_executed(log_prob(logits, batch["action"]), executed),
            log_mu=over_executed(log_prob(mu, batch["action"]), executed),
            entropies=masked_mean(
                entropies, mask if of_all_rows else mask - replayed, None if of_all_rows else count_of_fresh
            ),
            mask=mask,
            replayed=replayed,
            extras=batch["extras"],
            executed=executed,
            clip_rho=self.clip_rho,
            network=networks.module,
            count_of_replayed=count_of_replayed,
        )

    @torch.no_grad()
    def _off_policyness(self, rows: Rows, log_rhos: Tensor) -> dict[str, Tensor]:
        """Return the metrics of the difference between the acting policy and the present one."""
        ratios, mask = log_rhos.exp(), rows.mask
        return {
            "Rho": masked_mean(ratios, mask),
            "RhoClipped": masked_mean((ratios > self.clip_rho).float(), mask),
            "CClipped": masked_mean((ratios > self.clip_c).float(), mask),
            "EffectiveSampleSize": effective_sample_size(log_rhos, mask),
            "KL": masked_mean(rows.kl(rows.logits.detach(), rows.mu), mask),
        }

    # Hyperparameters, beside those of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_actor_critic,
        "Makes a `SequenceNetwork` of a policy and a value from (observation shape [k, *shape], number of actions), "
        "for chunks also ``chunk=H``.",
        "@create_actor_critic",
    )
    lambda_: float = number(1.0, "lambda, the decay of errors that are carried back in time; 1 for none.", SHARE)
    clip_rho: float = number(
        1.0, "rho-bar: the ratio of the two policies that weighs the values' errors is clipped at this.", POSITIVE
    )
    clip_c: float = number(
        1.0, "c-bar: the ratio of the two policies that carries errors back in time is clipped at this.", POSITIVE
    )
    clip_pg_rho: float | None = number(
        None, "The ratio in the policy's gradient is clipped at this.", POSITIVE, none="rho-bar"
    )
    baseline_cost: float = number(0.5, "Weight of the value's loss, half the squared error.", NOT_NEGATIVE)
    entropy_cost: float = number(
        0.00025,
        "Weight of the policy's entropy, which is maximised; with `TargetEntropy`, at the start.",
        NOT_NEGATIVE,
    )
    entropy_rows: str = choice(
        "all",
        'Whose entropy `entropy_cost` weighs: that of ``"all"`` decisions of a batch, or of the ``"fresh"`` ones, '
        "which no replay gave (LASER's).",
        "all",
        "fresh",
    )
    terms: Sequence[Term] = setting(
        (),
        "Additions to the loss, such as ``(@PolicyCloning(), @KLMask())``, each bound under its own name: CLEAR's "
        "`PolicyCloning` and `ValueCloning`, LASER's `KLMask`, SEED RL's `TargetEntropy` and `KLCost`.",
        check_terms,
        qualified=True,
    )
    max_abs_reward: float | None = number(
        None, "Clip rewards to [-c, c] in the loss.", POSITIVE, none="rewards as they are"
    )

    def settle(self) -> None:
        """See `NetworkAgent`."""
        super().settle()
        self.actions = chunk_actions(self.action_space, self.name)
        self.terms = [self.terms] if isinstance(self.terms, Term) else self.terms
        for term in self.terms:
            term.check(self.num_actions, self.actions.chunk, self.entropy_cost)
        self.stores_value = any(term.needs_value for term in self.terms)

    # The network.

    @property
    def _logits_shape(self) -> tuple[int, ...]:
        return (*self.actions.column.shape, self.num_actions)

    @property
    def extras(self) -> Dict:  # type: ignore[override]
        """The extras of the policy: the logits [A], and others by the settings.

        These are the core's state [S] if there is one, the value where a term needs it, and with `store_version` the
        weights' number of updates; with memory that of the torso's weights, too. The logits of chunks are [H, A].
        """
        spaces: dict[str, Any] = {"logits": Box(-np.inf, np.inf, self._logits_shape, np.float32)}
        if self.stores_value:
            spaces["value"] = Box(-np.inf, np.inf, (), np.float32)
        return self.extras_beside(spaces)

    # Learning.

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """See `NetworkAgent`."""
        chunk = self.actions.chunk
        return network(self.reader.shape, self.num_actions, **({} if chunk is None else {"chunk": chunk}))

    def check_network(self, network: nn.Module, read: Reader) -> None:
        """See `NetworkAgent`."""
        shapes = self._logits_shape, ()
        check_sequence_fit(network, read(self.reader.blank_stacks()), shapes, self.name, self.actions)

    def make_network(self) -> nn.Module:
        """See `NetworkAgent`; terms add the parameters that they learn."""
        network = super().make_network()
        for term in self.terms:
            term.extend(network, self.entropy_cost)
        return network
