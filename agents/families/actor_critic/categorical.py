"""The base class of actor-critics of Discrete actions whose loss is corrected by the logits that acted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.families.actor_critic.unroll_agent import ActorCritic
from async_wrappers.agents.hyperparameters import NOT_NEGATIVE, POSITIVE, SHARE, factory, number
from async_wrappers.agents.losses.actor_critic import effective_sample_size, masked_mean, scale_of_mean
from async_wrappers.agents.losses.loss import Batch, Networks
from async_wrappers.agents.networks.sequence_network import check_sequence_fit, create_actor_critic
from async_wrappers.agents.spaces.actions import chunk_actions
from async_wrappers.agents.spaces.compute import Reader
from async_wrappers.agents.spaces.schema import STATE, TORSO_VERSION, VERSION

_READ = ("observation", "previous_action", "previous_reward", "first", STATE)  # by the network


class CategoricalActorCritic(ActorCritic):
    """An actor-critic of Discrete actions, or of chunks of them; a subclass gives the loss.

    A decision's logits are stored beside its action: the loss weighs by the ratio to the policy that acted.
    """

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
    baseline_cost: float = number(0.5, "Weight of the value's loss, half the squared error.", NOT_NEGATIVE)
    max_abs_reward: float | None = number(
        None, "Clip rewards to [-c, c] in the loss.", POSITIVE, none="rewards as they are"
    )

    stores_value = False  # whether the value of each decision is stored, too

    def settle(self) -> None:
        super().settle()
        self.actions = chunk_actions(self.action_space, self.name)

    def choose(
        self, outputs: Any, rows: Decisions, uniforms: npt.NDArray[np.float64], *random_actions: Any
    ) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
        """Return actions [R], and the extras of mu for the loss.

        Actions are drawn from the policy; in evaluation they are the likeliest, unless `drawn_evaluation`. The loss
        needs the logits [R, A] and, with `stores_value`, the value [R]. Chunks are [R, H], their logits [R, H, A].
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

    # For the loss.

    @staticmethod
    def outputs_of(network: Callable[..., Any], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return a network's logits `[T, B, A]` of a batch's decisions, and its values `[T + 1, B]`."""
        (logits, values), _ = network(*(batch[name] for name in _READ))
        return logits[:-1], values

    def rewards_of(self, batch: Batch) -> Tensor:
        """Return a batch's rewards `[T, B]`, clipped where the agent clips them; infinite ones stay, to be refused."""
        reward: Tensor = batch["reward"]
        if self.max_abs_reward is None:
            return reward
        return torch.where(reward.isinf(), reward, reward.clamp(-self.max_abs_reward, self.max_abs_reward))

    @torch.no_grad()
    def off_policyness(self, log_rhos: Tensor, kl: Tensor, batch: Batch, networks: Networks) -> dict[str, Tensor]:
        """Return the metrics of the difference between the acting policy, mu, and the present one, pi.

        Args:
            log_rhos: log pi(a_s | x_s) - log mu(a_s | x_s), `[T, B]`.
            kl: KL(pi || mu), `[T, B]`.
            batch: Its decisions.
            networks: Which know how many updates were made.
        """
        ratios, mask = log_rhos.exp(), batch["mask"]
        scale = scale_of_mean(mask)
        found = {
            "Rho": masked_mean(ratios, mask, scale),
            "RhoClipped": masked_mean((ratios > self.clip_rho).float(), mask, scale),
            "CClipped": masked_mean((ratios > self.clip_c).float(), mask, scale),
            "EffectiveSampleSize": effective_sample_size(log_rhos, mask),
            "KL": masked_mean(kl, mask, scale),
        }
        for tag, column in {"Lag": VERSION, "TorsoLag": TORSO_VERSION}.items():
            if column in batch["extras"]:
                found[tag] = masked_mean(networks.updates - batch["extras"][column].float(), mask, scale)
        return found

    # The network.

    @property
    def _logits_shape(self) -> tuple[int, ...]:
        return (*self.actions.column.shape, self.num_actions)

    @property
    def extras(self) -> Dict:  # type: ignore[override]
        """The extras of the policy: the logits [A], of chunks [H, A]; with `stores_value` the value; and others.

        See `extras_beside`.
        """
        spaces: dict[str, Any] = {"logits": Box(-np.inf, np.inf, self._logits_shape, np.float32)}
        if self.stores_value:
            spaces["value"] = Box(-np.inf, np.inf, (), np.float32)
        return self.extras_beside(spaces)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        chunk = self.actions.chunk
        return network(self.reader.shape, self.num_actions, **({} if chunk is None else {"chunk": chunk}))

    def check_network(self, network: nn.Module, read: Reader) -> None:
        shapes = self._logits_shape, ()
        check_sequence_fit(network, read(self.reader.blank_stacks()), shapes, self.name, self.actions)
