"""PPO (Schulman et al. 2017, arXiv 1707.06347), with the details of Huang et al. 2022."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.families.actor_critic.unroll_agent import ActorCritic
from async_wrappers.agents.hyperparameters import (
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
from async_wrappers.agents.learning.diverged import refuse_statistics
from async_wrappers.agents.losses.actor_critic import (
    approximate_kl,
    clipped_policy_loss,
    clipped_value_loss,
    gae,
    normalized,
    over_executed,
)
from async_wrappers.agents.losses.chain_rule import Minibatch, clipped_loss
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks, create_adam
from async_wrappers.agents.networks.normalizer import NormalizedNetwork
from async_wrappers.agents.networks.policy_value import (
    LOG_STD_RANGE,
    PolicyValueNetwork,
    create_policy_value_network,
)
from async_wrappers.agents.networks.sequence_network import check_sequence_fit
from async_wrappers.agents.spaces.actions import Actions, BoxActions, chunk_actions
from async_wrappers.agents.spaces.compute import Reader
from async_wrappers.agents.spaces.distributions import Categorical, Gaussian
from async_wrappers.agents.spaces.schema import START, STATE, TORSO_VERSION, VERSION, each_array, leaves, nest

_READ = ("observation", "previous_action", "previous_reward", "first")  # by the network, beside the state
_SEEN = ("observation", "first")  # where it does not remember
_DECIDED, _PLAYED = "decided", "played"  # of a batch: numbers of rows that are decisions, and of pieces with any
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
    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(("sources", "prefetch"), "which learns from a round once")
    learner_kind: str = "PPOLearner"
    read_of_extras: ClassVar[tuple[str, ...]] = (VERSION, TORSO_VERSION)  # by the loss, beside what it always reads

    # The algorithm.

    def choose(
        self, outputs: Any, rows: Decisions, noise: npt.NDArray[np.floating], *others: Any
    ) -> tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]:
        """Return stored actions [R, ...], and the extras of the policy that acts, mu, for the loss.

        The loss needs log mu of the drawn actions [R], of chunks [R, H], and real-valued ones as they were drawn.
        """
        parameters = outputs[0]
        drawn, log_prob = self.distribution.sample_with_log_prob(parameters, noise)
        extras = {"log_prob": log_prob.cpu().numpy()}
        actions = drawn.cpu().numpy()
        if self.real:
            extras["drawn"] = actions
        if np.count_nonzero(rows.eval_mode) and not self.drawn_evaluation:
            eval_mode = rows.eval_mode.reshape(-1, *[1] * (actions.ndim - 1))
            actions = np.where(eval_mode, self.distribution.mode(parameters).cpu().numpy(), actions)
        return actions, extras

    def passes(
        self, networks: Networks, batch: Batch, rng: np.random.Generator
    ) -> Generator[Batch, None, Mapping[str, Tensor]]:
        """Yield the minibatches of all passes over a round; return how far the policy is then from that which acted.

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
        # Observations are normalised once for all passes.
        network: Any = networks.module
        remembers = network.feed_previous or network.state_size
        read = {name: batch[name] for name in (_READ if remembers else _SEEN)}
        if normalizer is not None:
            read["observation"] = normalizer.read(read["observation"])
        parameters, values, states = self._outputs(networks, read, batch[STATE])
        steps = self._steps(batch)
        if begins:
            steps["log_mu"] = self._log_prob(parameters[:-1], steps)
        reward, mask = batch["reward"], batch["mask"]
        if normalizer is not None and normalizer.rewards is not None:
            normalizer.rewards.update(batch["return"].flatten()[batch[_DECIDED]], networks.average)
            reward = normalizer.rewards(reward)
        estimates = gae(values, reward, batch["discount"], mask, lambda_=self.lambda_)
        steps |= {"advantage": estimates.advantages, "target": estimates.targets, "old_value": values[:-1]}
        round_ = _Round(
            each_array(lambda rows: rows[:-1], read),
            steps,
            states,
            batch[_PLAYED if states.shape[2] else _DECIDED],
            self.unroll_length,
            self.update_period // self.batch_size,
        )
        found: dict[str, Tensor] = {}
        for epoch in range(1, self.num_epochs + 1):
            yield from round_.minibatches(rng, networks)
            if self.target_kl is not None or epoch == self.num_epochs:
                found = self._apart(networks, round_.whole())
            if self.target_kl is not None and found["KL"] > self.target_kl:
                break
        if normalizer is not None and normalizer.observations is not None and not begins:
            self._update_observations(normalizer, batch, networks)
        return found

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the clipped policy loss, the value's and the entropy's (Schulman et al. 2017, equation 9).

        Args:
            networks: The learnt network.
            batch: A minibatch that `passes` gives.
            rng: Not needed.
        """
        if (given := self._in_plain_layers(networks, batch)) is not None:
            loss, metrics = clipped_loss(given)
            return LossOutput(loss, metrics=metrics)
        parameters, values, batch = self.outputs_of(networks, batch)
        log_ratios = self._log_prob(parameters, batch) - batch["log_mu"]
        policy_loss = clipped_policy_loss(log_ratios, batch["advantage"], self.epsilon)
        old_values = batch["old_value"] if self.clip_critic_loss else None
        value_loss = clipped_value_loss(values, batch["target"], old_values, self.epsilon)
        loss = policy_loss + self.vf_coefficient * value_loss
        if self.entropy_coefficient:
            loss = loss - self.entropy_coefficient * self._entropy(parameters, batch)
        return LossOutput(loss, metrics={"PolicyLoss": policy_loss, "ValueLoss": value_loss, "Value": values})

    def _in_plain_layers(self, networks: Networks, batch: Batch) -> Minibatch | None:
        """Return what the loss is a function of, if its gradient may be computed by the chain rule.

        That is on a CPU in float32, for the default network of vectors without a window of actions, and for single
        real-valued actions whose deviations are parameters.
        """
        module: Any = networks.module
        network = module.network if isinstance(module, NormalizedNetwork) else module
        if type(network) is not PolicyValueNetwork or network.state_size or type(self.distribution) is not Gaussian:
            return None
        log_std, action = network.parameters_of.log_std, batch["action"]
        if log_std is None or log_std.ndim > 1 or self.clip_critic_loss or self.compute.bf16 or not action.is_cpu:
            return None
        features = network.encode(each_array(lambda rows: rows[0], batch["read"]["observation"]))
        return Minibatch(
            network.layers,
            log_std,
            LOG_STD_RANGE,
            features,
            action[0],
            batch["log_mu"][0],
            batch["advantage"][0],
            batch["target"][0],
            self.epsilon,
            self.vf_coefficient,
            self.entropy_coefficient,
        )

    def outputs_of(self, networks: Networks, batch: Batch) -> tuple[Tensor, Tensor, Batch]:
        """Return parameters and values of a minibatch's decisions, and what the loss reads of these."""
        (parameters, values), _ = self._forward(networks, batch["read"], batch[STATE])
        return _decisions(parameters, values, batch)

    @staticmethod
    def _forward(networks: Networks, read: Mapping[str, Any], state: Tensor) -> Any:
        """Call the network on observations that are normalised already."""
        normalized = (True,) if isinstance(networks.module, NormalizedNetwork) else ()
        return networks.online(*(read.get(name) for name in _READ), state, *normalized)

    @torch.no_grad()
    def _outputs(self, networks: Networks, read: Mapping[str, Any], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return parameters and values `[T + 1, B, ...]`, and the states before each piece of sequences `[C, B, S]`."""
        if not state.shape[1]:
            (parameters, values), _ = self._forward(networks, read, state)
            return parameters, values, state.unsqueeze(0)
        outputs, states, rows = [], [], len(read["first"]) - 1
        for begin in range(0, rows, self.unroll_length):
            end = rows + 1 if begin + self.unroll_length >= rows else begin + self.unroll_length
            piece = each_array(lambda each, begin=begin, end=end: each[begin:end], read)
            states.append(state)
            given, state = self._forward(networks, piece, state)
            outputs.append(given)
        parameters, values = (torch.cat(each) for each in zip(*outputs, strict=True))
        return parameters, values, torch.stack(states)

    def _log_prob(self, parameters: Tensor, steps: Mapping[str, Tensor]) -> Tensor:
        return over_executed(self.distribution.log_prob(parameters, steps["action"]), steps.get("executed"))

    def _entropy(self, parameters: Tensor, steps: Mapping[str, Tensor]) -> Tensor:
        return over_executed(self.distribution.entropy(parameters), steps.get("executed"))

    def _steps(self, batch: Batch) -> dict[str, Any]:
        """Return what the loss reads of each of the T decisions of B sequences, `[T, B, ...]` by name."""
        extras, executed = batch["extras"], batch.get("executed")
        steps = {name: extras[name] for name in self.read_of_extras if name in extras}
        steps["mask"], steps["log_mu"] = batch["mask"], over_executed(extras["log_prob"], executed)
        steps["action"] = extras["drawn"] if self.real else batch["action"]
        return steps if executed is None else {**steps, "executed": executed}

    @torch.no_grad()
    def _apart(self, networks: Networks, batch: Batch) -> dict[str, Tensor]:
        """Return means over a whole round, of all learners: the entropy, and how far pi is from mu."""
        parameters, _, batch = self.outputs_of(networks, batch)
        log_ratios = self._log_prob(parameters, batch) - batch["log_mu"]
        rows = {
            "Entropy": self._entropy(parameters, batch),
            "KL": approximate_kl(log_ratios),
            "RatioClipped": (log_ratios.expm1().abs() > self.epsilon).float(),
        }
        for tag, column in {"Lag": VERSION, "TorsoLag": TORSO_VERSION}.items():
            if column in batch:
                rows[tag] = networks.updates - batch[column].float()
        means = {name: each.mean() for name, each in rows.items()}
        return means if networks.average is None else dict(networks.average(means, log_ratios.numel()))

    @staticmethod
    def _update_observations(normalizer: NormalizedNetwork | None, batch: Batch, networks: Networks) -> None:
        assert normalizer is not None and normalizer.observations is not None
        observation = batch["observation"] if normalizer.fast_age is None else batch["observation"][START]
        rows = each_array(lambda each: each[:-1].flatten(0, 1)[batch[_DECIDED]], observation)
        normalizer.observations.update(rows, networks.average)
        if statistics := [each.isfinite().all() for each in normalizer.observations.buffers()]:
            networks.check(torch.stack(statistics).all(), partial(refuse_statistics, rows))

    # Hyperparameters, beside those of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_policy_value_network,
        "Makes a network over sequences that gives the parameters of a policy and a value, from (observation shape "
        "[k, *shape], the action space as `actions.Actions`).",
        "@create_policy_value_network",
    )
    update_period: int = whole(
        2048, "Decisions of a round, of all environments together; the agent learns after each round.", 2, "decisions"
    )
    num_epochs: int = whole(10, "Passes over a round.", 1, "pass")
    batch_size: int = whole(
        64, "Decisions of a minibatch; with memory, the decisions of all of its pieces together.", 2, "decisions"
    )
    unroll_length: int = whole(
        16,
        "With memory: the length of a piece in rows (decisions and final observations), through which the "
        "gradient is carried.",
        1,
        "row",
    )
    stack_size: int = again(ActorCritic, "stack_size", 1)
    lambda_: float = number(0.95, "lambda of generalised advantage estimation (Schulman et al. 2016).", SHARE)
    epsilon: float = number(
        0.2, "The ratio of the new policy to the old one is clipped to [1 - epsilon, 1 + epsilon].", POSITIVE
    )
    clip_critic_loss: bool = flag(False, "Clip the change of the value to [-epsilon, epsilon] too.")
    vf_coefficient: float = number(0.5, "Weight of the value's squared error.", NOT_NEGATIVE)
    entropy_coefficient: float = number(0.0, "Weight of the policy's entropy, which is maximised.", NOT_NEGATIVE)
    optimizer: Callable[..., torch.optim.Optimizer] = again(ActorCritic, "optimizer", create_adam)
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
        True,
        "Divide rewards by the running standard deviation of the discounted return; the value is learnt in this unit.",
    )

    distribution: Categorical | Gaussian

    def settle(self) -> None:
        super().settle()
        self.actions = _actions(self.action_space, self.name)
        self.real = isinstance(self.actions, BoxActions)
        of_box: Any = self.actions
        self.distribution = Gaussian(of_box.size) if self.real else Categorical(self.num_actions)

    def check_unrolls(self) -> None:
        """There is the queue alone."""
        self.sources, self.learns_once = [("queue", 1.0)], True
        must(
            self.batch_size <= self.update_period,
            f"batch_size must be <= update_period, the {self.update_period:,} decisions of a round, got "
            f"{self.batch_size:,}",
        )

    def check_learning(self) -> None:
        """With memory a minibatch holds a piece at least."""
        must(
            not self.state_size or self.unroll_length <= self.batch_size,
            f"unroll_length must be <= batch_size, the {self.batch_size} rows of a minibatch, got {self.unroll_length}",
        )

    # Rounds.

    update_every = 1  # an update is due as soon as a round waits in the queue

    def unrolls(self, num_envs: int) -> tuple[int, int]:
        """One unroll of each environment, with room for a final row after each decision."""
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
        """Return a round as tensors, without the rows that no environment has played.

        Which rows are decisions, and with memory which pieces have any, is listed here on the host: a GPU would have to
        be waited for to learn how many they are.
        """
        length = len(arrays["mask"])
        last = int(np.flatnonzero(arrays["mask"].any(axis=1))[-1]) + 1
        state = {STATE: arrays[STATE]} if STATE in arrays else {}

        def played(rows: Any) -> Any:
            return rows[: last + len(rows) - length]  # arrays of single rows, of one row more, or of stacks

        of_rows = {name: each for name, each in arrays.items() if name in (*_READ, *_OF_ROWS)}
        decided = np.array(played(arrays["mask"]) > 0)
        listed = {_DECIDED: np.flatnonzero(decided)}
        if STATE in arrays:
            begins = range(0, len(decided), self.unroll_length)
            each_piece = np.stack([decided[begin : begin + self.unroll_length].any(axis=0) for begin in begins])
            listed[_PLAYED] = np.flatnonzero(each_piece)
        return super().batch_tensors({**each_array(played, of_rows), **state, **listed})

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
        """The normalisers are a part of it."""
        made = network(self.reader.shape, self.actions)
        observations, rewards = self.normalize_observations, self.normalize_rewards
        return NormalizedNetwork(made, self.reader.shape, observations, rewards) if observations or rewards else made

    def check_network(self, network: nn.Module, read: Reader) -> None:
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


def _decisions(parameters: Tensor, values: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Batch]:
    """Return what the network gives of a minibatch's decisions, and the loss's columns, `[R, ...]` or `[1, R, ...]`."""
    if "mask" not in batch:
        return parameters, values, batch
    decided = batch["mask"] > 0
    rows = {name: column[decided] for name, column in batch.items() if name not in ("read", STATE)}
    return parameters[decided], values[decided], rows


class _Round:
    """The rows of a round, in shuffled minibatches.

    A minibatch has what the network reads, "read", `[t, b, ...]` by name with the state `[b, S]`, and what the loss
    reads, `[t, b, ...]`. Without memory a row is a decision by itself: t is 1, and rows without a decision are left
    out. With memory b are pieces of sequences, and "mask" marks the decisions.

    Args:
        read: What the network reads, `[T, B, ...]` by name.
        steps: What the loss reads, `[T, B, ...]` by name, with the mask.
        states: Before each piece of each sequence, `[C, B, S]`.
        kept: The numbers of the rows that are decisions, of T B; with memory those of the pieces with one, of C B.
        length: Rows of a piece, t.
        minibatches: How many a pass has, whatever the number of rows, since several learners step together.
    """

    def __init__(
        self,
        read: Mapping[str, Any],
        steps: Mapping[str, Tensor],
        states: Tensor,
        kept: Tensor,
        length: int,
        minibatches: int,
    ) -> None:
        self._minibatches, pieces = minibatches, len(states)
        if not states.shape[2]:
            of_decisions = {"read": read, **{name: rows for name, rows in steps.items() if name != "mask"}}
            self._rows: Any = each_array(lambda rows: rows.flatten(0, 1)[kept].unsqueeze(0), of_decisions)
            self._state = states.new_zeros((len(kept), 0))
            return

        def cut(rows: Tensor) -> Tensor:
            padded = torch.cat([rows, rows.new_zeros((pieces * length - len(rows), *rows.shape[1:]))])
            return padded.view(pieces, length, *rows.shape[1:]).transpose(0, 1).flatten(1, 2)

        self._rows = each_array(lambda rows: cut(rows)[:, kept], {"read": read, **steps})
        self._state = states.flatten(0, 1)[kept]

    def minibatches(self, rng: np.random.Generator, networks: Networks) -> Iterator[Batch]:
        """Yield one pass: parts of nearly equal size, with advantages that are normalised over all learners' parts."""
        size = len(self._state)
        order = torch.from_numpy(rng.permutation(size)).to(self._state.device)
        sizes = np.diff(np.linspace(0, size, self._minibatches + 1).astype(int)).tolist()
        shuffled = each_array(lambda rows: rows.index_select(1, order), self._rows)
        mask = shuffled.get("mask", torch.ones_like(shuffled["advantage"]))
        shuffled["advantage"] = normalized(shuffled["advantage"], mask, sizes, networks.total)
        columns = {path: torch.split(rows, sizes, 1) for path, rows in leaves(shuffled)}
        columns[(STATE,)] = torch.split(self._state[order], sizes)
        for parts in zip(*columns.values(), strict=True):
            yield nest(list(columns), parts)

    def whole(self) -> Batch:
        """Return all rows as one minibatch, in their order."""
        return {**self._rows, STATE: self._state}
