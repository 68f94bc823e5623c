"""SAC (Haarnoja et al., "Soft actor-critic algorithms and applications", 2018, arXiv 1812.05905)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.acting.recurrent import RecurrentPolicy, Remembering
from async_wrappers.agents.box_actions import BoxActions, real_actions
from async_wrappers.agents.distributions import SquashedGaussian
from async_wrappers.agents.learning import Batch, Learning, LossOutput, Networks
from async_wrappers.agents.losses.entropy_regularised import critic_loss, policy_loss, soft_target, temperature_loss
from async_wrappers.agents.network_agent import NetworkAgent
from async_wrappers.agents.networks.box_actor_critic import create_box_actor_critic
from async_wrappers.agents.networks.sequence_network import check_sequence_fit
from async_wrappers.agents.optimizers import create_adam
from async_wrappers.agents.replay.settings import ReplaySettings
from async_wrappers.agents.schema import EFFECT, START, Reader
from async_wrappers.agents.settings import (
    POSITIVE_SHARE,
    WIDEST,
    again,
    agent,
    choice,
    factory,
    must,
    number,
    shared,
    whole,
)
from async_wrappers.agents.value_based.dqn import DQN

__all__ = ["SAC"]


@agent("SACAgent")
class SAC(Remembering, ReplaySettings, NetworkAgent):
    """Soft actor-critic (Haarnoja et al. 2018), ``SACAgent`` in gin; for real-valued actions between bounds.

    The policy is a Gaussian whose samples are squashed into the bounds. It maximises the return and its own entropy,
    whose weight, the temperature, is learnt so that the entropy is `target_entropy`. Of several critics the least one
    counts, and their targets follow them smoothly. One step of the optimiser descends the sum of all losses, as in
    Dopamine; since Adam's steps are per weight, that differs from steps in turn in one point: the policy's loss reads
    the critics as they were before their step.

    The first decisions, until learning begins, are uniformly random. In evaluation an action is the squashed mean.
    """

    name: ClassVar[str] = "sac"
    learner_kind: str = "SACLearner"
    one_step_loss: bool = False
    actions: BoxActions

    # The algorithm.

    def choose(
        self, parameters: Tensor, rows: Decisions, normals: npt.NDArray[np.float32], uniforms: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], dict[str, npt.NDArray[Any]]]:
        """Return actions [R, A] as they are stored; the policy leaves no extras.

        In training they are drawn from the policy, after `random_frames` of uniform ones; in evaluation they are its
        modes.
        """
        actions = self.distribution.sample(parameters, normals)
        if rows.eval_mode.any():
            evaluates = torch.from_numpy(rows.eval_mode[:, None]).to(actions.device)
            actions = torch.where(evaluates, self.distribution.mode(parameters), actions)
        chosen: npt.NDArray[np.float32] = actions.cpu().numpy()
        begins = ~rows.eval_mode & (rows.frame < self.frames_of_random_actions)
        if begins.any():
            low, high = self.actions.low, self.actions.high
            chosen = np.where(begins[:, None], low + (high - low) * uniforms, chosen)
        return chosen, {}

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the critics', the policy's and the temperature's loss (sections 4.2 and 5).

        Args:
            networks: The network as a module, and the target critics.
            batch: Tensors of a batch of transitions.
            rng: Draws the noise of two actions for each transition.
        """
        network: Any = networks.module
        action, window, window_t = batch["action"], batch.get("action_window"), batch.get("next_action_window")
        (seen, met), (seen_t, met_t) = (self._seen_and_met(batch[each]) for each in ("observation", "next_observation"))
        read, read_t = (window, window_t) if self.critic_at == "start" else (None, None)
        noise = self.compute.tensor(rng.standard_normal((2, *action.shape), dtype=np.float32))
        temperature = network.log_temperature.detach().exp()
        with self.compute.autocast():
            with torch.no_grad():
                action_t, log_prob_t = self.draw(network, seen_t, window_t, noise[0])
            q_t = networks.target(met_t, action_t, read_t)
            features = network.critics.encode(met, read)
            q_tm1 = network.critics.values(features, action)
            drawn, log_prob = self.draw(network, seen, window, noise[1])
            q_drawn = network.critics.values(features.detach(), drawn, frozen=True)
        target = soft_target(
            self.reward_scale_factor * batch["reward"], batch["discount"], q_t, log_prob_t, temperature
        )
        of_critics = critic_loss(q_tm1, target)
        of_policy = policy_loss(log_prob, q_drawn, temperature)
        of_temperature = temperature_loss(network.log_temperature, log_prob, self.entropy_target)
        with torch.no_grad():
            error = (q_tm1 - target).abs().mean(dim=0)
        metrics = {
            "CriticLoss": of_critics.mean(),
            "PolicyLoss": of_policy.mean(),
            "TemperatureLoss": of_temperature.mean(),
            "Temperature": temperature,
            "Entropy": -log_prob.mean(),
            "Value": q_tm1.mean(),
        }
        priority = error if self.priority == "error" else of_critics
        return LossOutput(of_critics + of_policy + of_temperature, priority=priority, metrics=metrics)

    def _seen_and_met(self, observation: Any) -> tuple[Any, Any]:
        """Return the observations that the policy decides from, and those that the critics judge an action by."""
        return (observation[START], observation[EFFECT]) if self.needs_effect else (observation, observation)

    def draw(self, network: Any, observation: Any, window: Tensor | None, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [B, A] that the policy draws for observations [B, k, *shape], and their log-densities [B].

        Args:
            network: Has the actor.
            observation: As said.
            window: The actions before each, [B, K, A], as the policy reads them; None without a window.
            noise: Standard normal, [B, A].
        """
        features = network.actor.encode(observation)
        if window is not None:
            parameters = network.actor.decide_by_window(features, window)
        else:  # a sequence of one row, of which the actor reads the observation alone
            parameters = network.actor.decide(features[None], None, None, None, features[:, :0])[0][0]
        return self.distribution.sample_with_log_prob(parameters, noise)

    # Hyperparameters, beside those of replays and of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_box_actor_critic,
        "From (observation shape [k, *shape], `agents.box_actions.BoxActions`, `num_critics`, `num_layers`, "
        "`hidden_units`) to a `BoxActorCritic`; with `action_window` also ``action_window=K, critic_window=``, whether "
        "the critics read the window too.",
        "@create_box_actor_critic",
    )
    num_critics: int = whole(2, "Critics, the least of which counts.", 1, "critic", most=1000)
    num_layers: int = whole(2, "Hidden layers of the actor and of each critic.", 0, "layers", most=1000)
    hidden_units: int = whole(256, "Units of each.", 1, "unit", most=WIDEST)
    stack_size: int = again(NetworkAgent, "stack_size", 1)
    min_replay_history: int = again(ReplaySettings, "min_replay_history", 10_000)
    random_frames: int | None = whole(
        None,
        "Frames of uniformly random actions at first; None means until learning begins, ``min_replay_history * "
        "decision_interval``, and is refused where these vary.",
        0,
        "frames",
        none="until learning begins",
    )
    batch_size: int = again(ReplaySettings, "batch_size", 256)
    priority: str = again(ReplaySettings, "priority", "error")
    update_period: int = again(DQN, "update_period", 1)
    num_updates_per_train_step: int = again(DQN, "num_updates_per_train_step")
    target_smoothing_coefficient: float = number(
        0.005,
        "tau: after each update the target critics' weights w' become w' + tau (w - w').",
        POSITIVE_SHARE,
    )
    action_window: int | None = whole(
        None,
        "Last applied actions that the policy reads beside the observation, when its action is due. Under delay, those "
        "of the decisions in flight tell what the action will meet: as many as the frames of delay, for an action on "
        "every frame.",
        1,
        "action",
        none="the observation alone",
    )
    critic_at: Literal["start", "effect"] = choice(
        "start",
        'Which observation the critics judge an action by: ``"start"``, the one that it was computed from, with the '
        'window; or ``"effect"``, that of the frame on which it landed, as in the problem without delay (Kim et al. '
        "2023, BPQL).",
        "start",
        "effect",
    )
    target_entropy: float | None = number(
        None, "What the policy's entropy is held at, in nats, with actions in [-1, 1].", none="-A, of A numbers"
    )
    reward_scale_factor: float = number(1.0, "Factor of rewards in the loss.")
    optimizer: Callable[..., torch.optim.Optimizer] = again(Learning, "optimizer", create_adam)

    def settle(self) -> None:
        """See `NetworkAgent`."""
        super().settle()
        self.check_replay()
        self.actions = _bounded_actions(self.action_space, self.name)
        self.distribution = SquashedGaussian(self.actions.size)
        self.needs_effect = self.critic_at == "effect"
        must(
            not self.actor_priorities,
            f"actor_priorities must be False with agent {self.name!r}, whose policy computes no values as it acts",
        )
        must(
            not self.compile,
            f"compile must be False with agent {self.name!r}, got True: its losses compute no faster compiled",
        )
        self.weights_seed, self.replay_seed, self.exploration_seed, self.learning_seed = self.seeds(4)
        if self.decision_interval is None:
            self.check_warmup()

    def check_warmup(self) -> None:
        """Check that the random actions at first are known in frames, though the frames between two decisions vary.

        Raises:
            ValueError: They are not set, and there are some.
        """
        history = self.min_replay_history
        must(
            self.random_frames is not None or not history,
            "SACAgent.random_frames must be bound, in frames, where the frames between two decisions vary (a latency, "
            f"or live play), got None, which stands for min_replay_history = {history} decisions: bind "
            f"SACAgent.random_frames = {history} for an action on every frame, and more for fewer",
        )

    @property
    def frames_of_random_actions(self) -> int:
        """Frames of uniformly random actions at first."""
        if self.random_frames is not None:
            return self.random_frames
        return self.min_replay_history * (self.decision_interval or 1)

    @property
    def entropy_target(self) -> float:
        """What the policy's entropy is held at, in nats."""
        return -float(self.actions.size) if self.target_entropy is None else self.target_entropy

    # The network.

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """See `NetworkAgent`."""
        sizes = self.num_critics, self.num_layers, self.hidden_units
        if self.action_window is None:
            return network(self.observation_shape, self.actions, *sizes)
        window = {"action_window": self.action_window, "critic_window": not self.needs_effect}
        return network(self.observation_shape, self.actions, *sizes, **window)

    def check_network(self, network: Any, read: Reader) -> None:
        """See `NetworkAgent`."""
        kind, parts = type(network).__name__, ("actor", "critics", "log_temperature")
        must(
            all(hasattr(network, part) for part in parts),
            f"network must have {', '.join(parts)} with agent {self.name!r}, as @create_box_actor_critic's has, got "
            f"{kind}",
        )
        observation = read(self.reader.blank_stacks())
        check_sequence_fit(network.actor, observation, ((2 * self.actions.size,),), self.name, self.actions)
        of_window = self.actions.inputs * (self.action_window or 0)
        must(
            network.actor.state_size == of_window and not network.actor.feed_previous,
            f"network must have an actor that reads observations and the window alone with agent {self.name!r}, which "
            f"learns from single transitions, got {kind}",
        )
        action = torch.zeros(1, *self.actions.column.shape)
        window = action[:, None].expand(1, self.action_window or 0, *action.shape[1:])
        with torch.no_grad():
            values = network.critics(observation, action, window if of_window and not self.needs_effect else None)
        must(
            values.ndim == 2 and values.shape[1] == 1,
            f"network must have critics that give [E, B] to agent {self.name!r}, got {list(values.shape)} from {kind} "
            "for one observation",
        )

    # Policies.

    def make_policy(self, number: int = 0, workers: int = 1) -> Any:
        """Make the policy of a worker, with weights of the actor alone.

        Raises:
            ValueError: `stack_size` is more than 1 without `of_stacks`.
        """
        self.check_one_at_a_time()
        network: Any = self.make_network()
        return self.in_worker(self._make_policy(network.actor.requires_grad_(False)))

    def make_policy_of(self, learner: Any) -> RecurrentPolicy:
        """Make the policy of a turn-based agent, which reads the learner's actor in place."""
        return self._make_policy(learner.acting)

    def make_vector_policy(self, learner: Any, num_envs: int) -> RecurrentPolicy:
        """Make the policy of many environments, which reads the learner's actor in place."""
        return self._make_policy(learner.acting)

    def make_device_policy(self, learner: Any, num_envs: int, device: str) -> RecurrentPolicy:
        """Make the policy of many environments with a copy of the learner's actor on a device.

        Raises:
            ValueError: There is no such device.
        """
        there = self.on_device(device)
        return there._make_policy(there.compute.place(copy.deepcopy(learner.acting)).requires_grad_(False))

    def _make_policy(self, actor: nn.Module) -> RecurrentPolicy:
        return RecurrentPolicy(actor, self.choose, self.actions, self.exploration_seed, self.compute, self.reader)

    # Learning.

    @property
    def learning(self) -> Learning:
        """The settings of the agent's learners, whose target critics follow smoothly."""
        tau = self.target_smoothing_coefficient
        return shared(Learning, self, target_update_period=None, target_smoothing=tau)


def _bounded_actions(space: gym.Space[Any], agent: str) -> BoxActions:
    """Return real-valued actions between bounds; a ValueError names the agent to take for others."""
    actions = real_actions(space, agent, "'dqn' or 'ppo'")
    must(
        actions.chunk is None,
        f"agent {agent!r} needs a Box of one dimension, got {space}: take agent 'ppo', or flatten it",
    )
    must(actions.bounded, f"agent {agent!r} needs a Box with finite bounds, got {space}: take agent 'ppo'")
    return actions
