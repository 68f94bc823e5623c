"""PPO (Schulman et al. 2017, arXiv 1707.06347), with the details of Huang et al. 2022."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.actions import Actions, chunk_actions
from async_wrappers.agents.actor_critic.actor_critic import ActorCritic
from async_wrappers.agents.box_actions import BoxActions
from async_wrappers.agents.distributions import Categorical, Distribution, Gaussian
from async_wrappers.agents.learning import Batch, LossOutput, Networks
from async_wrappers.agents.losses.actor_critic import over_executed
from async_wrappers.agents.losses.ppo import (
    approximate_kl,
    clipped_policy_loss,
    clipped_value_loss,
    gae,
    normalized,
)
from async_wrappers.agents.networks.normalizer import NormalizedNetwork
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.networks.sequence_network import check_sequence_fit
from async_wrappers.agents.schema import STATE, TORSO_VERSION, VERSION, Reader, each_array
from async_wrappers.agents.settings import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    again,
    agent,
    factory,
    flag,
    must,
    number,
    whole,
)

__all__ = ["PPO"]

_READ = ("observation", "previous_action", "previous_reward", "first")  # by the network, beside the state
_OF_ROWS = ("action", "reward", "discount", "mask", "return", "executed", "extras")


@agent("PPOAgent")
class PPO(ActorCritic):
    """Proximal policy optimisation (Schulman et al. 2017), ``PPOAgent`` in gin, for Discrete and real-valued actions.

    A round is `update_period` decisions of all environments together. When it is complete, one update makes
    `num_epochs` passes over it in shuffled minibatches, and it is thrown away. With memory a minibatch is whole pieces
    of `unroll_length` rows, which begin with the state that the weights before the update give.

    An action of a Box is drawn from a Gaussian, and clipped to the box for the environment alone. The loss learns from
    the drawn one, whose density is known. In evaluation the action is the mean, or the likeliest one.

    Chunks of actions (``RealtimeDelay(default_action="chunk")``) are drawn independently of one another; the
    log-probability, the entropy and the divergence of a decision are sums over the executed entries.
    """

    name: ClassVar[str] = "ppo"
    learner_kind: str = "PPOLearner"

    # The algorithm.

    def choose(
        self, outputs: Any, rows: Decisions, noise: npt.NDArray[np.floating], *others: Any
    ) -> tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]:
        """Return stored actions [R, ...], and the extras of the policy that acts, mu, for the loss.

        The loss needs log mu of the drawn actions [R], of chunks [R, H], and real-valued ones as they were drawn.
        """
        parameters = outputs[0]
        drawn = self.distribution.sample(parameters, noise)
        extras = {"log_prob": self.distribution.log_prob(parameters, drawn).cpu().numpy()}
        actions = drawn.cpu().numpy()
        if self.real:
            extras["drawn"] = actions
        if rows.eval_mode.any() and not self.drawn_evaluation:
            eval_mode = rows.eval_mode.reshape(-1, *[1] * (actions.ndim - 1))
            actions = np.where(eval_mode, self.distribution.mode(parameters).cpu().numpy(), actions)
        return actions, extras

    def passes(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the minibatches of all passes over a round.

        Args:
            networks: The learnt network.
            batch: Tensors of the round's sequences (`replay.sequences`).
            rng: Shuffles.
        """
        normalizer = networks.module if isinstance(networks.module, NormalizedNetwork) else None
        # Statistics of observations change after the passes, so that in the first pass pi is mu, the policy that
        # acted, and every ratio is 1. Before the first update there are none to act by: they are set at once, and the
        # first policy, which hardly depends on what it observes, stands for mu.
        begins = normalizer is not None and normalizer.observations is not None and not normalizer.observations.begun
        if begins:
            self._update_observations(normalizer, batch, networks)
        parameters, values, states = self._outputs(networks, batch)
        steps = self._steps(batch)
        if begins:
            steps["log_mu"] = self._log_prob(parameters[:-1], steps)
        reward, mask = batch["reward"], batch["mask"]
        if normalizer is not None and normalizer.rewards is not None:
            normalizer.rewards.update(batch["return"][mask > 0], networks.average)
            reward = normalizer.rewards(reward)
        estimates = gae(values, reward, batch["discount"], mask, lambda_=self.lambda_)
        steps |= {"advantage": estimates.advantages, "target": estimates.targets, "old_value": values[:-1]}
        round_ = _Round(steps, states, self.unroll_length, self.update_period // self.batch_size)
        for _ in range(self.num_epochs):
            yield from round_.minibatches(rng)
            if self.target_kl is not None and self._kl(networks, round_.whole()) > self.target_kl:
                break
        if normalizer is not None and normalizer.observations is not None and not begins:
            self._update_observations(normalizer, batch, networks)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the clipped policy loss, the value's and the entropy's (Schulman et al. 2017, equation 9).

        Args:
            networks: The learnt network.
            batch: A minibatch that `passes` gives.
            rng: Not needed.
        """
        (parameters, values), _ = networks.online(*(batch[name] for name in _READ), batch[STATE])
        rows = _decided(batch)
        parameters, values = rows(parameters), rows(values)
        batch = {name: rows(batch[name]) for name in batch.keys() - {*_READ, STATE, "mask"}}
        log_ratios = self._log_prob(parameters, batch) - batch["log_mu"]
        policy_loss = clipped_policy_loss(log_ratios, normalized(batch["advantage"]), self.epsilon)
        old_values = batch["old_value"] if self.clip_critic_loss else None
        value_loss = clipped_value_loss(values, batch["target"], old_values, self.epsilon)
        loss = policy_loss + self.vf_coefficient * value_loss
        with torch.set_grad_enabled(self.entropy_coefficient > 0 and torch.is_grad_enabled()):
            entropy = over_executed(self.distribution.entropy(parameters), batch.get("executed"))
        if self.entropy_coefficient:
            loss = loss - self.entropy_coefficient * entropy
        with torch.no_grad():
            metrics = {
                "PolicyLoss": policy_loss.mean(),
                "ValueLoss": value_loss.mean(),
                "Entropy": entropy.mean(),
                "Value": values.mean(),
                "KL": approximate_kl(log_ratios).mean(),
                "RatioClipped": (log_ratios.expm1().abs() > self.epsilon).float().mean(),
            }
            for tag, column in {"Lag": VERSION, "TorsoLag": TORSO_VERSION}.items():
                if column in batch:
                    metrics[tag] = networks.updates - batch[column].float().mean()
        return LossOutput(loss, metrics=metrics)

    @torch.no_grad()
    def _outputs(self, networks: Networks, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return parameters and values `[T + 1, B, ...]`, and the states before each piece of sequences `[C, B, S]`."""
        read, state = [batch[name] for name in _READ], batch[STATE]
        rows = len(batch["mask"])
        if not state.shape[1]:
            (parameters, values), _ = networks.online(*read, state)
            return parameters, values, state.unsqueeze(0)
        outputs, states = [], []
        for begin in range(0, rows, self.unroll_length):
            end = rows + 1 if begin + self.unroll_length >= rows else begin + self.unroll_length
            piece = [each_array(lambda each, begin=begin, end=end: each[begin:end], each) for each in read]
            states.append(state)
            given, state = networks.online(*piece, state)
            outputs.append(given)
        parameters, values = (torch.cat(each) for each in zip(*outputs, strict=True))
        return parameters, values, torch.stack(states)

    def _log_prob(self, parameters: Tensor, steps: Mapping[str, Tensor]) -> Tensor:
        return over_executed(self.distribution.log_prob(parameters, steps["action"]), steps.get("executed"))

    def _steps(self, batch: Batch) -> dict[str, Any]:
        """Return what the loss reads of each of the T rows of B sequences, `[T, B, ...]` by name."""
        extras, executed = batch["extras"], batch.get("executed")
        steps = {name: each_array(lambda rows: rows[:-1], batch[name]) for name in _READ}
        steps |= {name: extras[name] for name in (VERSION, TORSO_VERSION) if name in extras}
        steps["mask"], steps["log_mu"] = batch["mask"], over_executed(extras["log_prob"], executed)
        steps["action"] = extras["drawn"] if self.real else batch["action"]
        return steps if executed is None else {**steps, "executed": executed}

    @torch.no_grad()
    def _kl(self, networks: Networks, batch: Batch) -> float:
        """Return an estimate of KL(mu || pi) over a whole round, of all learners."""
        (parameters, _), _ = networks.online(*(batch[name] for name in _READ), batch[STATE])
        rows = _decided(batch)
        of_rows = {name: rows(batch[name]) for name in ("action", "log_mu", "executed") if name in batch}
        each = approximate_kl(self._log_prob(rows(parameters), of_rows) - of_rows["log_mu"])
        found: Mapping[str, Tensor] = {"kl": each.mean()}
        if networks.average is not None:
            found = networks.average(found, len(each))
        return found["kl"].item()

    @staticmethod
    def _update_observations(normalizer: NormalizedNetwork | None, batch: Batch, networks: Networks) -> None:
        assert normalizer is not None and normalizer.observations is not None
        decided = batch["mask"] > 0
        rows = each_array(lambda each: each[:-1][decided], batch["observation"])
        normalizer.observations.update(rows, networks.average)

    # Hyperparameters, beside those of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_policy_value_network,
        "From (observation shape [k, *shape], the action space as `actions.Actions`) to a network over sequences that "
        "gives the parameters of a policy and a value.",
        "@create_policy_value_network",
    )
    update_period: int = whole(
        2048, "Decisions of a round: those of all environments together between two updates.", 2, "decision"
    )
    num_epochs: int = whole(10, "Passes over a round.", 1, "pass")
    batch_size: int = whole(64, "Decisions of a minibatch; with memory, of its pieces.", 2, "decision")
    unroll_length: int = whole(
        16, "With memory, rows through which the gradient is carried: decisions, and final observations.", 1, "row"
    )
    stack_size: int = again(ActorCritic, "stack_size", 1)
    lambda_: float = number(0.95, "Of generalised advantage estimation.", SHARE)
    epsilon: float = number(0.2, "How far from 1 a ratio is followed.", POSITIVE)
    clip_critic_loss: bool = flag(False, "Clip the value's steps by `epsilon` too, as the ratio's.")
    vf_coefficient: float = number(0.5, "Weight of the value's squared error.", NOT_NEGATIVE)
    entropy_coefficient: float = number(0.0, "Weight of the policy's entropy, which is maximised.", NOT_NEGATIVE)
    max_gradient_norm: float | None = again(ActorCritic, "max_gradient_norm", 0.5)
    target_kl: float | None = number(
        None,
        "KL divergence, in nats, from the policy that acted, after which no further pass is made.",
        POSITIVE,
        none="all passes",
    )
    normalize_observations: bool = flag(
        True, "Normalise the numbers of vectors by their running mean and standard deviation; images stay."
    )
    normalize_rewards: bool = flag(
        True, "Divide rewards by the running standard deviation of the discounted return; the value learns these."
    )

    distribution: Distribution

    def settle(self) -> None:
        """See `NetworkAgent`."""
        super().settle()
        self.actions = _actions(self.action_space, self.name)
        self.real = isinstance(self.actions, BoxActions)
        of_box: Any = self.actions
        self.distribution = Gaussian(of_box.size) if self.real else Categorical(self.num_actions)

    def check_unrolls(self) -> None:
        """See `UnrollSettings`; there is the queue alone."""
        for name, wanted in {"sources": None, "prefetch": False}.items():
            given = getattr(self, name)
            must(
                given == wanted,
                f"{name} must be {wanted} with agent {self.name!r}, which learns from a round once, got {given!r}",
            )
        self.sources, self.learns_once = [("queue", 1.0)], True
        must(
            self.batch_size <= self.update_period,
            f"batch_size must be <= update_period, the {self.update_period:,} decisions of a round, got "
            f"{self.batch_size:,}",
        )
        must(
            self.unroll_length <= self.batch_size,
            f"unroll_length must be <= batch_size, the {self.batch_size} rows of a minibatch, got {self.unroll_length}",
        )

    # Rounds.

    update_every = 1  # an update is due as soon as a round waits in the queue

    def unrolls(self, num_envs: int) -> tuple[int, int]:
        """See `UnrollSettings`: one unroll of each environment, with room for a final row after each decision."""
        return 2 * -(-self.update_period // num_envs) + 2, num_envs

    @property
    def round_decisions(self) -> int:  # type: ignore[override]
        """Decisions after which the unrolls end."""
        return self.update_period

    @property
    def transitions_per_update(self) -> int:
        """Transitions that an update learns from."""
        return self.update_period

    def share_of(self, learners: int) -> Mapping[str, int]:
        """Return the settings of one of several learners: its part of a round and of a minibatch.

        Raises:
            ValueError: One of the two is no multiple of `learners`.
        """
        for name in ("update_period", "batch_size"):
            value = getattr(self, name)
            must(value % learners == 0, f"{name} must be a multiple of the {learners} learners, got {value}")
        return {"update_period": self.update_period // learners, "batch_size": self.batch_size // learners}

    @property
    def with_returns(self) -> bool:  # type: ignore[override]
        """Whether unrolls have the discounted returns so far, which the normaliser of rewards reads."""
        return self.normalize_rewards

    def batch_tensors(self, arrays: Mapping[str, Any]) -> Batch:
        """Return a round as tensors, without the rows that no environment has played."""
        length = len(arrays["mask"])
        last = int(np.flatnonzero(arrays["mask"].any(axis=1))[-1]) + 1
        state = {STATE: arrays[STATE]} if STATE in arrays else {}

        def played(rows: Any) -> Any:
            return rows[: last + len(rows) - length]  # arrays of single rows, of one row more, or of stacks

        of_rows = {name: each for name, each in arrays.items() if name in (*_READ, *_OF_ROWS)}
        return super().batch_tensors({**each_array(played, of_rows), **state})

    # The network.

    @property
    def extras(self) -> Dict:  # type: ignore[override]
        """The extras of the policy: "log_prob", of chunks [H], "drawn" for real-valued actions, and others."""
        shape = self.actions.column.shape
        entries = shape[:-1] if self.real else shape
        spaces: dict[str, Any] = {"log_prob": Box(-np.inf, np.inf, entries, np.float32)}
        if self.real:
            spaces["drawn"] = Box(-np.inf, np.inf, shape, np.float32)
        return self.extras_beside(spaces)

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """See `NetworkAgent`; the normalisers are a part of it."""
        made = network(self.reader.shape, self.actions)
        observations, rewards = self.normalize_observations, self.normalize_rewards
        return NormalizedNetwork(made, self.reader.shape, observations, rewards) if observations or rewards else made

    def check_network(self, network: nn.Module, read: Reader) -> None:
        """See `NetworkAgent`."""
        shape = self.actions.column.shape
        parameters = (*(shape[:-1] if self.real else shape), self.distribution.parameters)
        check_sequence_fit(network, read(self.reader.blank_stacks()), (parameters, ()), self.name, self.actions)


def _actions(space: Any, agent: str) -> Actions:
    """Return the action space as agents see it; a ValueError names one that PPO cannot use."""
    must(
        isinstance(space, Box | Discrete | MultiDiscrete),
        f"agent {agent!r} needs Discrete or real-valued (Box) actions, or a chunk of such, got {space}: turn them into "
        "one of these in an ActionWrapper of your own",
    )
    return BoxActions(space, agent) if isinstance(space, Box) else chunk_actions(space, agent)


def _decided(batch: Batch) -> Callable[[Tensor], Tensor]:
    """Return what takes the decisions `[R, ...]` out of a minibatch's rows `[T, B, ...]`."""
    if "mask" not in batch:
        return lambda rows: rows.flatten(0, 1)
    decided = batch["mask"] > 0
    return lambda rows: rows[decided]


class _Round:
    """The rows of a round, in shuffled minibatches.

    Without memory a row is a decision by itself: a minibatch is `[1, R, ...]`, rows without a decision are left out.
    With memory it is pieces of sequences, `[t, b, ...]`.

    Args:
        steps: Rows `[T, B, ...]` by name.
        states: Before each piece of each sequence, `[C, B, S]`.
        length: Rows of a piece, t.
        minibatches: How many a pass has, whatever the number of rows, since several learners step together.
    """

    def __init__(self, steps: Mapping[str, Any], states: Tensor, length: int, minibatches: int) -> None:
        self._minibatches = minibatches
        if not states.shape[2]:
            decided = steps["mask"].flatten().nonzero().squeeze(1)
            of_decisions = {name: rows for name, rows in steps.items() if name != "mask"}
            self._rows: Any = each_array(lambda rows: rows.flatten(0, 1)[decided].unsqueeze(0), of_decisions)
            self._state = states.new_zeros((len(decided), 0))
            return
        pieces = len(states)

        def cut(rows: Tensor) -> Tensor:
            padded = torch.cat([rows, rows.new_zeros((pieces * length - len(rows), *rows.shape[1:]))])
            return padded.view(pieces, length, *rows.shape[1:]).transpose(0, 1).flatten(1, 2)

        shown = (cut(steps["mask"]) > 0).any(dim=0)
        self._rows = each_array(lambda rows: cut(rows)[:, shown], steps)
        self._state = states.flatten(0, 1)[shown]

    def minibatches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield one pass: parts of nearly equal size."""
        size = len(self._state)
        order = torch.from_numpy(rng.permutation(size)).to(self._state.device)
        shuffled, state = each_array(lambda rows: rows[:, order], self._rows), self._state[order]
        for begin, end in pairwise(np.linspace(0, size, self._minibatches + 1).astype(int).tolist()):
            part = each_array(lambda rows, begin=begin, end=end: rows[:, begin:end], shuffled)
            yield {**part, STATE: state[begin:end]}

    def whole(self) -> Batch:
        """Return all rows as one minibatch, in their order."""
        return {**self._rows, STATE: self._state}
