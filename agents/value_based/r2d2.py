"""R2D2 (Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning", ICLR 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.learner import Batch, LossOutput, Networks
from async_wrappers.agents.losses.sequences import acting_priority, sequence_priority, td_errors_n_step_double
from async_wrappers.agents.losses.values import huber
from async_wrappers.agents.networks.sequence_network import check_sequence_fit, create_recurrent_q_network
from async_wrappers.agents.policy import (
    Decisions,
    Epsilon,
    RecurrentPolicy,
    one_row,
    per_actor_epsilon,
)
from async_wrappers.agents.replay.prefetch import PrefetchedReplay
from async_wrappers.agents.replay.replay import Replay, create_sequence_replay
from async_wrappers.agents.replay.sequences import MAX_VALUE, STATE, VALUE, sequence_tensors
from async_wrappers.agents.schema import Reader, each_array
from async_wrappers.agents.spec import (
    check_at_least,
    check_flags,
    check_numbers,
    check_shares,
)
from async_wrappers.agents.value_based.dqn import DQN

__all__ = ["R2D2"]


@gin.configurable("R2D2Agent", module="agents")
class R2D2(DQN):
    """R2D2 (Kapturowski et al. 2019), ``R2D2Agent`` in gin: DQN with memory, on sequences with stored states.

    Sequences of `burn_in` and `unroll_length` rows are drawn by priority. Both networks are run over the burn-in from
    the state that acting had left before it, without learning, and then over the unroll. An environment's first
    `burn_in` rows are never learnt from.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        network: From (observation shape [k, *shape], number of actions) to a `SequenceNetwork` of Q-values.
        burn_in: Rows before those that are learnt from.
        unroll_length: Rows that are learnt from: decisions, and the final observation of each episode.
        state_period: Rows from the beginning of one sequence of an environment to that of the next.
        eta: A sequence's priority is eta times its largest error and 1 - eta times the mean one.
        value_rescaling: epsilon of h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x; None learns values as they are.
        gamma: As in `DQN`.
        update_horizon: As in `DQN`; returns end with the sequence.
        batch_size: Sequences per update.
        loss_type: Of an error: ``"mse"``, half its square, as in the paper; or ``"huber"``, as in rela.
        double_dqn: As in `DQN`.
        replay_scheme: As in `DQN`.
        priority_exponent: As in `DQN`.
        importance_exponent: As in `DQN`.
        epsilon_fn: As in `DQN`.
        prefetch: Whether the next batch is drawn in a thread while the learner computes. Priorities then take effect
            one batch later.
        actor_priorities: Let a sequence enter with the priority that follows from the values of acting, as the paper's
            actors do. Where none of its errors is known it enters with the largest priority so far. It has an effect
            where many environments are played at once.
        shared: The others of `DQN`. `replay_capacity` counts the rows of all environments, those that two sequences
            share once. `priority` is refused: `eta` makes a sequence's.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "r2d2"
    learner_kind: str = "R2D2Learner"

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        network: Callable[..., nn.Module] = create_recurrent_q_network,
        burn_in: int = 40,
        unroll_length: int = 80,
        state_period: int = 40,
        eta: float = 0.9,
        value_rescaling: float | None = 1e-3,
        gamma: float = 0.997,
        update_horizon: int = 5,
        batch_size: int = 64,
        loss_type: str = "mse",
        double_dqn: bool = True,
        replay_scheme: Any = "prioritized",
        priority_exponent: float = 0.9,
        importance_exponent: float = 0.6,
        epsilon_fn: Callable[..., float] = per_actor_epsilon,
        prefetch: bool = False,
        actor_priorities: bool = False,
        **shared: Any,
    ) -> None:
        """See the class."""
        check_at_least("burn_in", burn_in, 0, "rows")
        check_at_least("unroll_length", unroll_length, 2, "rows")
        check_at_least("state_period", state_period, 1, "row")
        if state_period > burn_in + unroll_length:
            raise ValueError(
                f"state_period must be <= burn_in + unroll_length = {burn_in + unroll_length} rows, or some would be "
                f"in no sequence, got {state_period}"
            )
        check_flags(prefetch=prefetch)
        check_numbers(eta=eta)
        check_shares(eta=eta)
        if value_rescaling is not None:
            check_numbers(value_rescaling=value_rescaling)
            if not 0 <= value_rescaling <= 1:
                raise ValueError(f"value_rescaling must lie in [0, 1], or None for no rescaling, got {value_rescaling}")
        wanted: dict[str, Any] = {"one_step_loss": False, "replay_eviction": "oldest", "replay_compression": None}
        for argument, value in wanted.items():
            if shared.get(argument, value) != value:
                raise ValueError(f"{argument} must be {value!r} with agent 'r2d2', got {shared[argument]!r}")
        if "priority" in shared:
            raise ValueError(_no_priority(shared["priority"]))
        super().__init__(
            observation_space,
            action_space,
            network=network,
            gamma=gamma,
            update_horizon=update_horizon,
            batch_size=batch_size,
            loss_type=loss_type,
            double_dqn=double_dqn,
            replay_scheme=replay_scheme,
            priority_exponent=priority_exponent,
            importance_exponent=importance_exponent,
            epsilon_fn=epsilon_fn,
            actor_priorities=actor_priorities,
            **shared,
        )
        if self._priority != "loss":  # bound to DQN
            raise ValueError(_no_priority(self._priority))
        self.batch_size = batch_size * unroll_length  # transitions
        self.burn_in, self.update_horizon = burn_in, update_horizon
        self.eta, self.value_rescaling = eta, value_rescaling
        if (replay_bytes := self._replay["replay_bytes"]) is not None:
            raise ValueError(f"replay_bytes must be None with agent 'r2d2', got {replay_bytes}: bind replay_capacity")
        of_replay = ("batch_size", "stack_size", "gamma", "discount_by", "selector", "priority_exponent")
        self._replay = {
            name: value for name, value in self._replay.items() if name in (*of_replay, "importance_exponent")
        }
        self._replay |= {"length": burn_in + unroll_length, "period": state_period}
        self._replay["kind"] = PrefetchedReplay if prefetch else Replay

    # The algorithm.

    def choose(
        self,
        epsilon: Epsilon,
        outputs: Any,
        rows: Decisions,
        uniforms: npt.NDArray[np.float64],
        random_actions: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[Any]]]:
        """Return the actions [R] of the largest values [R, A], or with probability epsilon the random ones."""
        greedy = outputs.argmax(dim=1).cpu().numpy()
        return np.where(uniforms >= epsilon.of_rows(rows), greedy, random_actions), {}

    def choose_with_values(self, epsilon: Epsilon, outputs: Any, *drawn: Any) -> tuple[Any, dict[str, Any]]:
        """Return the actions of `choose`, with Q(x_t, a_t) and max_a Q(x_t, a) beside each."""
        actions, _ = self.choose(epsilon, outputs, *drawn)
        values = outputs.float().cpu().numpy()
        return actions, {VALUE: values[np.arange(len(values)), actions], MAX_VALUE: values.max(axis=1)}

    def priority_of_sequences(self, sequences: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Return what sequences, columns `[M, ...]`, enter with: from the values of acting; NaN where none is known."""

        def learnt(name: str) -> Tensor:
            return torch.from_numpy(sequences[name][:, self.burn_in :].T.copy())

        priority = acting_priority(
            learnt(VALUE),
            learnt(MAX_VALUE),
            learnt("reward"),
            learnt("discount"),
            learnt("mask"),
            self.update_horizon,
            self.eta,
            self.value_rescaling,
        )
        return priority.double().numpy() + float(self._learning["priority_epsilon"])

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the losses of n-step double Q-learning errors (Kapturowski et al. 2019, section 2.3).

        That is half the sum of their squares, or of Huber's losses.
        """
        b = self.burn_in
        with torch.no_grad():
            q_target, _ = self._unrolled(networks.target, batch, slice(None), batch[STATE])
        q = self.unrolled_values(networks.online, batch)
        td_errors = td_errors_n_step_double(
            q[:-1],
            q_target[b:],
            q.detach() if self.double_dqn else q_target[b:],
            batch["action"][b:],
            batch["reward"][b:],
            batch["discount"][b:],
            batch["mask"][b:],
            self.update_horizon,
            self.value_rescaling,
        )
        priority = sequence_priority(td_errors.detach(), batch["mask"][b:], self.eta)
        of_sequences = huber(td_errors).sum(dim=0) if self._loss_type == "huber" else 0.5 * (td_errors**2).sum(dim=0)
        return LossOutput(of_sequences, priority, {"Value": q.detach().mean()})

    def unrolled_values(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        """Return a network's values [T + 1, B, A] of the rows after the burn-in, run over without learning."""
        b, burnt_in = self.burn_in, batch[STATE]
        if b:
            with torch.no_grad():
                _, burnt_in = self._unrolled(network, batch, slice(0, b), batch[STATE])
        return self._unrolled(network, batch, slice(b, None), burnt_in)[0]

    def _unrolled(self, network: Callable[..., Any], batch: Batch, rows: slice, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return a network's values of some rows, and the state after them."""
        observation = each_array(lambda tensor: tensor[rows], batch["observation"])
        others = (batch[name][rows] for name in ("previous_action", "previous_reward", "first"))
        values, state = network(observation, *others, state)
        return values, state

    # Policies, learners, networks and replays.

    @cached_property
    def state_size(self) -> int:
        """Numbers that the network's core remembers; 0 without one."""
        network: Any = self.make_network()
        return int(network.state_size)

    @property
    def extras(self) -> Dict | None:  # type: ignore[override]
        """What the policy leaves beside its action: the core's state [S] if there is one."""
        if not self.state_size:
            return None
        return Dict({STATE: Box(-np.inf, np.inf, (self.state_size,), np.float32)})

    @cached_property
    def features(self) -> gym.Space[Any] | None:  # type: ignore[override]
        """What a worker's policy hands on in the place of actions, where the network reads more than observations."""
        network: Any = self.make_network()
        remembers = network.feed_previous or network.state_size
        return getattr(self.make_policy(), "features", None) if remembers else None

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:  # with `act`, or where it remembers in halves
        """Make the policy of worker `number` of `workers`, in two halves where the network remembers.

        Raises:
            ValueError: `stack_size` is more than 1 without `of_stacks`, or a network that remembers is not in two
                halves.
        """
        policy: Any = super().make_policy(number, workers).policy
        return one_row(policy, self.reader.blank_stacks(), self.reader.without_tuples, self.whole_stacks)

    def _make_policy(self, network: nn.Module, epsilon: Epsilon, leaves_values: bool = False) -> RecurrentPolicy:
        return RecurrentPolicy(
            network,
            partial(self.choose_with_values if leaves_values else self.choose, epsilon),
            self.num_actions,
            self._exploration_seed,
            self.compute,
            self.first_action,
            self.reader,
        )

    def check_network(self, network: nn.Module, read: Reader) -> None:
        """See `DQN.check_network`."""
        check_sequence_fit(network, read(self.reader.blank_stacks()), ((self.num_actions,),), self.name)

    @property
    def batch_tensors(self) -> Callable[[Mapping[str, Any]], Batch]:
        """What turns a batch of sequences into tensors."""
        stack_size = None if self.whole_stacks else self.stack_size
        return partial(sequence_tensors, read=self.reader, tensor=self.compute.tensor, stack_size=stack_size)

    def make_replay(self, capacity: int | None, seed: int, num_envs: int = 1) -> Replay:
        """Make the replay of sequences, all environments' in one.

        Raises:
            ValueError: It cannot hold a sequence of each environment.
        """
        if capacity is None:
            capacity = 1_000_000
        sequences, period = capacity // self._replay["period"], self._replay["period"]
        if sequences < num_envs:
            raise ValueError(
                f"replay_capacity must be >= {period * num_envs} rows, state_period for each of {num_envs} "
                f"environments, got {capacity}"
            )
        return create_sequence_replay(
            self.stored_space,
            self.extras,
            capacity=sequences,
            seed=seed,
            num_envs=num_envs,
            priority=self.priority_of_sequences if self._actor_priorities else None,
            **self._replay,
        )

    def make_actor_priorities(self, num_envs: int) -> None:
        """Return None: the replay finds the priorities, once a sequence is whole."""


def _no_priority(value: Any) -> str:
    """Return the sentence that refuses a choice of what a transition's priority is."""
    return (
        f"priority must not be bound with agent 'r2d2', whose sequences have one made by R2D2Agent.eta of all their "
        f"errors, got {value!r}"
    )
