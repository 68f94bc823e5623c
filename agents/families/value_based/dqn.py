"""DQN (Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import RowsPolicy, WorkerPolicy
from async_wrappers.agents.acting.exploration import Epsilon, EpsilonGreedyPolicy, EpsilonSettings
from async_wrappers.agents.families.network_agent import NetworkAgent
from async_wrappers.agents.hyperparameters import again, agent, choice, factory, flag, must, shared, whole
from async_wrappers.agents.losses import values as losses
from async_wrappers.agents.losses.loss import Batch, Learning, LossOutput, Networks
from async_wrappers.agents.networks.q_network import check_fit, create_network
from async_wrappers.agents.replay.replay_settings import ReplaySettings
from async_wrappers.agents.spaces.actions import discrete_actions
from async_wrappers.agents.spaces.compute import Reader

LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = {"huber": losses.huber, "mse": losses.squared}


@agent("DQNAgent")
class DQN(ReplaySettings, EpsilonSettings, NetworkAgent):
    """DQN (Mnih et al. 2015), ``DQNAgent`` in gin; the defaults are Dopamine's for Atari.

    The other agents of values are subclasses: each declares its hyperparameters, and defines its values and its loss. A
    *step* is one decision; epsilon counts frames, and without delay a decision takes one frame.
    """

    name: ClassVar[str] = "dqn"
    learner_kind: str = "DQNLearner"  # names the loss in a state, as older checkpoints do
    values_draw: ClassVar[bool] = False  # whether `values` draws from its generator
    outputs: tuple[int, ...] = ()  # of the network per action, such as atoms; none where it gives one value

    # The algorithm.

    def values(self, network: Callable[..., Tensor], observation: Any, rng: np.random.Generator) -> Tensor:
        """Return Q-values [B, A] of observations [B, k, *shape]; all random numbers are drawn from `rng`."""
        return network(observation)

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the loss of the temporal-difference errors."""
        td_error = self.td_error(networks, batch)
        loss = LOSSES[self.loss_type](td_error)
        return LossOutput(loss, priority=loss if self.priority == "loss" else td_error.abs())

    def td_error(self, networks: Networks, batch: Batch) -> Tensor:
        """Return ``r + discount max_a Q_target(o', a) - Q(o, a)``, [B] (Mnih et al. 2015, Algorithm 1).

        With `double_dqn` the online network chooses the action (van Hasselt et al. 2016, eq. 4).
        """
        with torch.no_grad():
            q_t = networks.target(batch["next_observation"])
            q_t_selector = networks.online(batch["next_observation"]) if self.double_dqn else None
        q_tm1 = networks.online(batch["observation"])
        step = (q_tm1, batch["action"], batch["reward"], batch["discount"])
        if q_t_selector is None:
            return losses.td_error_q_learning(*step, q_t)
        return losses.td_error_double_q_learning(*step, q_t, q_t_selector)

    def priority_of_error(self, td_error: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the priorities that the learner would give transitions of these temporal-difference errors, [B]."""
        if self.priority == "error":
            worth = np.abs(td_error)
        else:
            worth = LOSSES[self.loss_type](torch.from_numpy(td_error)).numpy()
        return worth + float(self.priority_epsilon)

    # Hyperparameters, beside those of replays, of epsilon, and of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_network,
        "Makes a module that gives Q-values [B, A] from (observation shape [k, *shape], number of actions).",
        "@create_network",
    )
    update_period: int = whole(4, "Decisions between two rounds of updates.", 1, "decision")
    num_updates_per_train_step: int = whole(
        1,
        "Updates of a round (Dopamine's name), each on a batch of its own. The replay ratio, transitions learnt from "
        "per transition played, is `batch_size` times this, divided by `update_period`. Live it must be 1, as "
        "learners update whenever they can.",
        1,
        "update",
    )
    target_update_period: int = whole(8_000, "Decisions between two copies into the target network.", 1, "decision")
    loss_type: str = choice("huber", "Loss of the temporal-difference error.", *LOSSES)
    double_dqn: bool = flag(False, "The double Q-learning target (van Hasselt et al. 2016).")
    one_step_loss: bool = again(Learning, "one_step_loss")

    def settle(self) -> None:
        super().settle()
        self.check_replay()
        self.actions = discrete_actions(self.action_space, self.name)
        self.weights_seed, self.replay_seed, self.exploration_seed, self.learning_seed = self.seeds(4)
        if self.decision_interval is None:
            self.check_warmup()

    # The network.

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        return network(self.observation_shape, self.num_actions, *self.outputs)

    def network_inputs(self, observation: Any) -> tuple[Any, ...]:
        """Return the inputs of the network for observations [B, k, *shape]."""
        return (observation,)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the network's output for one observation."""
        return (self.num_actions, *self.outputs)

    def check_network(self, network: nn.Module, read: Reader) -> None:
        check_fit(network, self.network_inputs(read(self.reader.blank_stacks())), self.output_shape, self.name)

    # Policies.

    def make_policy(self, number: int = 0, workers: int = 1) -> WorkerPolicy:
        """Make the policy of worker `number` of `workers`, with weights of its own: no replay, optimiser or target.

        All are the same function, unless `epsilon_fn` takes the number of the ``actor``.

        Raises:
            ValueError: `stack_size` is more than 1, and it is not made by `of_stacks`.
        """
        self.check_one_at_a_time()
        policy: Any = self.policy_of(self.make_network().requires_grad_(False), self.epsilon.of_actor(number, workers))
        if self.compute.graphs:
            policy.prepare(self.reader.blank_stacks())
        return WorkerPolicy(policy, self.reader.without_tuples, self.whole_stacks)

    def make_policy_of(self, learner: Any) -> RowsPolicy:
        """Make the policy of a turn-based agent, which reads the learner's network in place."""
        return self.policy_of(learner.network, self.epsilon.of_actor(0, 1))

    def make_vector_policy(self, learner: Any, num_envs: int) -> RowsPolicy:
        """Make the policy of many environments, each of which is an actor for an `epsilon_fn` that takes one."""
        return self.policy_of(learner.network, self.epsilon.of_environments(num_envs), self.actor_priorities)

    def make_device_policy(self, learner: Any, num_envs: int, device: str) -> RowsPolicy:
        """Make the policy of many environments with a copy of the learner's network on a device.

        Raises:
            ValueError: There is no such device.
        """
        there = self.on_device(device)
        network = there.compute.place(copy.deepcopy(learner.network)).requires_grad_(False)
        return there.policy_of(network, there.epsilon.of_environments(num_envs), self.actor_priorities)

    def policy_of(self, network: nn.Module, epsilon: Epsilon, leaves_values: bool = False) -> RowsPolicy:
        """Make a policy that reads `network` in place; it may return the values of its actions as extras."""
        return EpsilonGreedyPolicy(
            network,
            self.values,
            num_actions=self.num_actions,
            epsilon=epsilon,
            seed=self.exploration_seed,
            compute=self.compute,
            first_action=self.first_action,
            read=self.reader,
            values_draw=self.values_draw,
            leaves_values=leaves_values,
        )

    # Learning.

    @property
    def learning(self) -> Learning:
        """The settings of the agent's learners, with periods in updates where the agent counts decisions."""
        updates = self.target_update_period * self.num_updates_per_train_step / self.update_period
        return shared(Learning, self, target_update_period=max(1, round(updates)))

    def check_learning(self) -> None:
        must(
            not self.outputs or (self.priority == "loss" and not self.actor_priorities),
            f"priority must be 'loss' and actor_priorities False with agent {self.name!r}, whose loss is not a "
            f"function of one error, got {self.priority!r} and {self.actor_priorities}",
        )


def refuse_loss_type(agent: str, given: Mapping[str, Any]) -> None:
    """Refuse a `loss_type` that is bound to an agent whose loss is another one: it would have no effect."""
    must(
        "loss_type" not in given,
        f"loss_type must not be bound with agent {agent!r}, whose loss is of distributions and not of one error, got "
        f"{given.get('loss_type')!r}",
    )
