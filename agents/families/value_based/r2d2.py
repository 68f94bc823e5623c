"""R2D2 (Kapturowski et al., "Recurrent experience replay in distributed reinforcement learning", ICLR 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Dict
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.acting.exploration import Epsilon, per_actor_epsilon
from async_wrappers.agents.acting.recurrent import RecurrentPolicy, Remembering
from async_wrappers.agents.families.value_based.dqn import DQN, LOSSES
from async_wrappers.agents.hyperparameters import SHARE, again, agent, choice, factory, number, whole
from async_wrappers.agents.losses.loss import Batch, LossOutput, Networks
from async_wrappers.agents.losses.sequences import acting_priority, sequence_priority, td_errors_n_step_double
from async_wrappers.agents.losses.values import huber
from async_wrappers.agents.networks.sequence_network import (
    check_sequence_fit,
    create_recurrent_q_network,
    sequence_tensors,
)
from async_wrappers.agents.replay.replay_settings import SequenceSettings
from async_wrappers.agents.spaces.compute import Reader
from async_wrappers.agents.spaces.schema import MAX_VALUE, STATE, VALUE, each_array, each_part


@agent("R2D2Agent")
class R2D2(Remembering, SequenceSettings, DQN):
    """R2D2 (Kapturowski et al. 2019), ``R2D2Agent`` in gin: DQN with memory, on sequences with stored states.

    Sequences of `burn_in` + `unroll_length` rows are drawn by priority. Both networks are run over the burn-in from
    the stored state before it, without learning, and then over the unroll. An environment's first `burn_in` rows are
    never learnt from.

    `replay_capacity` counts the rows of all environments; rows that two sequences share count once.
    """

    name: ClassVar[str] = "r2d2"
    learner_kind: str = "R2D2Learner"

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
        """Return the first priorities of sequences, columns `[M, ...]`, from acting's values; NaN where unknown."""

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
        return priority.double().numpy() + float(self.priority_epsilon)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the losses of n-step double Q-learning errors (Kapturowski et al. 2019, section 2.3).

        That is half the sum of their squares, or the sum of their Huber losses.
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
        of_sequences = huber(td_errors).sum(dim=0) if self.loss_type == "huber" else 0.5 * (td_errors**2).sum(dim=0)
        return LossOutput(of_sequences, priority, {"Value": q.detach().mean()})

    def unrolled_values(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        """Return a network's values [T + 1, B, A] of the rows after the burn-in, which runs without gradient."""
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

    # Hyperparameters, beside those of `DQN`.

    network: Callable[..., nn.Module] = factory(
        create_recurrent_q_network,
        "Makes a `SequenceNetwork` of Q-values from (observation shape [k, *shape], number of actions).",
        "@create_recurrent_q_network",
    )
    eta: float = number(
        0.9, "A sequence's priority is eta times its largest error and 1 - eta times the mean one.", SHARE
    )
    value_rescaling: float | None = number(
        1e-3,
        "epsilon of h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x; None learns values as they are.",
        SHARE,
        none="no rescaling",
    )
    gamma: float = again(DQN, "gamma", 0.997)
    update_horizon: int = whole(5, "n of the n-step return; returns end with the sequence.", 1, "decision")
    loss_type: str = choice(
        "mse", 'Of an error: ``"mse"``, half its square, as in the paper; or ``"huber"``, as in rela.', *LOSSES
    )
    double_dqn: bool = again(DQN, "double_dqn", True)
    epsilon_fn: Callable[..., float] = again(DQN, "epsilon_fn", per_actor_epsilon)

    def settle(self) -> None:
        self.check_sequences()
        super().settle()

    # Policies, learners, networks and replays.

    @property
    def extras(self) -> Dict | None:  # type: ignore[override]
        """The extras of the policy: the core's state [S] if there is one."""
        if not self.state_size:
            return None
        return Dict({STATE: Box(-np.inf, np.inf, (self.state_size,), np.float32)})

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:  # with `act`, or where it remembers in halves
        """Make the policy of worker `number` of `workers`, in two halves where the network remembers.

        Raises:
            ValueError: `stack_size` is more than 1 without `of_stacks`, or a network that remembers is not in two
                halves.
        """
        self.check_one_at_a_time()
        network = self.make_network().requires_grad_(False)
        return self.in_worker(self.policy_of(network, self.epsilon.of_actor(number, workers)))

    def policy_of(self, network: nn.Module, epsilon: Epsilon, leaves_values: bool = False) -> RecurrentPolicy:
        return RecurrentPolicy(
            network,
            partial(self.choose_with_values if leaves_values else self.choose, epsilon),
            self.actions,
            self.exploration_seed,
            self.compute,
            self.reader,
        )

    def check_network(self, network: nn.Module, read: Reader) -> None:
        check_sequence_fit(network, read(self.reader.blank_stacks()), ((self.num_actions,),), self.name)

    def batch_tensors(self, arrays: Mapping[str, Any]) -> Batch:
        """Return a batch of sequences as tensors."""
        read = each_part(self.reader) if self.needs_effect else self.reader
        return sequence_tensors(arrays, read, self.compute.tensor, self.stored_in_stacks)
