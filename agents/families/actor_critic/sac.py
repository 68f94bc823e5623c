"""SAC (Haarnoja et al., "Soft actor-critic algorithms and applications", 2018, arXiv 1812.05905)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import Decisions
from async_wrappers.agents.acting.recurrent import RecurrentPolicy, Remembering
from async_wrappers.agents.families.network_agent import NetworkAgent
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import (
    POSITIVE_SHARE,
    WIDEST,
    again,
    agent,
    choice,
    factory,
    flag,
    must,
    number,
    shared,
    whole,
)
from async_wrappers.agents.losses.actor_critic import critic_loss, policy_loss, soft_target, temperature_loss
from async_wrappers.agents.losses.chain_rule import Given, joint_loss, perceptrons
from async_wrappers.agents.losses.loss import Batch, Learning, LossOutput, Networks, create_adam
from async_wrappers.agents.needs_and_offers import refuse_unknown_frames
from async_wrappers.agents.networks.box_actor_critic import Critics, create_box_actor_critic, plain_layers
from async_wrappers.agents.networks.cores import NoCore
from async_wrappers.agents.networks.sequence_network import check_sequence_fit
from async_wrappers.agents.replay.replay_settings import ReplaySettings
from async_wrappers.agents.spaces.actions import BoxActions, agents_of, real_actions
from async_wrappers.agents.spaces.compute import Reader, drawn
from async_wrappers.agents.spaces.distributions import SquashedGaussian
from async_wrappers.agents.spaces.schema import EFFECT, START

_STEP = "step"  # of a batch: which losses it is for
_PARTS = ("draw", "loss_of_critics", "loss_of_policy")  # of the loss: methods that a subclass may change


@agent("SACAgent")
class SAC(Remembering, ReplaySettings, NetworkAgent):
    """Soft actor-critic (Haarnoja et al. 2018), ``SACAgent`` in gin; for real-valued actions between bounds.

    The policy is a Gaussian whose samples are squashed into the bounds. It maximises the return and its own entropy,
    whose weight, the temperature, is learnt so that the entropy is `target_entropy`. Of several critics the least one
    counts, and their targets follow them smoothly. One step of the optimiser descends the sum of all losses, as in
    Dopamine; since Adam's steps are per weight, that differs from steps in turn in one point: the policy's loss reads
    the critics as they were before their step, unless `critics_first`.

    The first decisions, until learning begins, are uniformly random. In evaluation an action is the squashed mean.
    """

    name: ClassVar[str] = "sac"
    lacks: ClassVar[Mapping[str, str]] = {
        "actor_priorities": "whose policy computes no values as it acts",
        "compile": "whose losses compute no faster compiled",
    }
    learner_kind: str = "SACLearner"
    one_step_loss: bool = False
    actions: BoxActions

    # The algorithm.

    def choose(
        self,
        parameters: Tensor,
        rows: Decisions,
        normals: npt.NDArray[np.float32],
        uniforms: Callable[[], npt.NDArray[np.float32]],
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
            chosen = np.where(begins[:, None], low + (high - low) * uniforms(), chosen)
        return chosen, {}

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the critics', the policy's and the temperature's loss (sections 4.2 and 5).

        With `critics_first` a batch says which of them it is for.

        Args:
            networks: The network as a module, and the target critics.
            batch: Tensors of a batch of transitions.
            rng: Draws the noise of two actions for each transition.
        """
        network: Any = networks.module
        met, read = self._met(batch)
        with self.compute.autocast():
            features = network.critics.encode(met, read).float()
        if batch.get(_STEP) == "critics":
            return self.loss_of_critics(networks, batch, features, rng)
        if batch.get(_STEP) == "policy":
            return self.loss_of_policy(network, batch, features, rng)
        if (given := self._in_plain_layers(networks, batch, features, rng)) is not None:
            loss, error, metrics = joint_loss(given, list(network.parameters()))
            errors = error.abs().mean(dim=0) if self.priority == "error" else 0.5 * error.square().sum(dim=0)
            return LossOutput(loss, errors, metrics)
        critics = self.loss_of_critics(networks, batch, features, rng)
        policy = self.loss_of_policy(network, batch, features, rng)
        return LossOutput(critics.loss + policy.loss, critics.priority, {**critics.metrics, **policy.metrics})

    def _in_plain_layers(
        self, networks: Networks, batch: Batch, features: Tensor, rng: np.random.Generator
    ) -> Given | None:
        """Return what the joint loss is a function of, if its gradient may be computed by the chain rule.

        That is in float32, for plain perceptrons, and for losses that no subclass changes.
        """
        network: Any = networks.module
        target = networks.target
        own = all(getattr(type(self), name) is getattr(SAC, name) for name in _PARTS)
        if not own or self.compute.bf16 or not isinstance(target, Critics):
            return None
        layers, targets = plain_layers(network), perceptrons(target.each)
        if layers is None or targets is None or type(self.distribution) is not SquashedGaussian:
            return None
        met, read = self._met(batch, "next_")
        seen, next_seen = (
            network.actor.encode(each[START] if self.needs_effect else each)
            for each in (batch["observation"], batch["next_observation"])
        )
        noise = self._noise(rng, 2 * len(features))
        return Given(
            *layers,
            targets,
            network.log_temperature,
            seen,
            next_seen,
            features,
            network.critics.encode(met, read),
            batch["action"],
            self.reward_scale_factor * batch["reward"],
            batch["discount"],
            noise,
            self.distribution.log_std_range,
            self.entropy_target,
        )

    def loss_of_critics(
        self, networks: Networks, batch: Batch, features: Tensor, rng: np.random.Generator
    ) -> LossOutput:
        """Return the critics' loss; a transition's priority is the mean size of their errors.

        Args:
            networks: As in `loss`.
            batch: As in `loss`.
            features: What the critics' torso gives of the observations, [B, F].
            rng: As in `loss`.
        """
        network: Any = networks.module
        temperature = network.log_temperature.detach().exp()
        with torch.no_grad():
            action_t, log_prob_t = self.draw(network, batch, rng, "next_")
        met_t, read_t = self._met(batch, "next_")
        q_t = networks.target(met_t, action_t, read_t)
        q_tm1 = network.critics.values(features, batch["action"])
        reward = self.reward_scale_factor * batch["reward"]
        target = soft_target(reward, batch["discount"], q_t, log_prob_t, temperature)
        loss = critic_loss(q_tm1, target)
        error = (q_tm1.detach() - target).abs().mean(dim=0)
        metrics = {"CriticLoss": loss.mean(), "Value": q_tm1.mean()}
        return LossOutput(loss, error if self.priority == "error" else loss, metrics)

    def loss_of_policy(self, network: Any, batch: Batch, features: Tensor, rng: np.random.Generator) -> LossOutput:
        """Return the sum of the policy's and the temperature's loss; the arguments are those of `loss_of_critics`."""
        temperature = network.log_temperature.detach().exp()
        action, log_prob = self.draw(network, batch, rng)
        q = network.critics.values(features.detach(), action, frozen=True)
        of_policy = policy_loss(log_prob, q, temperature)
        of_temperature = temperature_loss(network.log_temperature, log_prob, self.entropy_target)
        metrics = {
            "PolicyLoss": of_policy.mean(),
            "TemperatureLoss": of_temperature.mean(),
            "Temperature": temperature,
            "Entropy": -log_prob.mean(),
        }
        return LossOutput(of_policy + of_temperature, torch.zeros_like(of_policy), metrics)

    def _met(self, batch: Batch, which: str = "") -> tuple[Any, Tensor | None]:
        """Return what the critics judge an action by: an observation, and the window of actions that they read.

        Args:
            batch: Tensors of a batch of transitions.
            which: ``"next_"`` for the next observation.
        """
        observation, window = batch[f"{which}observation"], batch.get(f"{which}action_window")
        return (observation[EFFECT], None) if self.needs_effect else (observation, window)

    def passes(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> Generator[Batch, None, None]:
        """Yield the batch for a step of the critics, and again for one of policy and temperature on what it left."""
        yield {**batch, _STEP: "critics"}
        yield {**batch, _STEP: "policy"}

    @property
    def several_steps(self) -> bool:
        """Whether an update has two gradient steps: with `critics_first`."""
        return self.critics_first

    def draw(self, network: Any, batch: Batch, rng: np.random.Generator, which: str = "") -> tuple[Tensor, Tensor]:
        """Return actions [B, A] that the policy draws for a batch's observations, and their log-densities [B].

        The policy decides from the observation that a decision started from, and from its window of actions.
        """
        observation, window = batch[f"{which}observation"], batch.get(f"{which}action_window")
        with self.compute.autocast():
            features = network.actor.encode(observation[START] if self.needs_effect else observation)
        fresh = observation[EFFECT] if getattr(network, "fast_age", None) is not None else None
        if window is not None or fresh is not None:
            parameters = network.actor.decide_by_window(features, window, fresh)
        else:  # the actor reads the observation alone, so nothing of a sequence is needed (`check_network`)
            parameters = network.actor.head(features.float())
        return self.distribution.sample_with_log_prob(parameters, self._noise(rng, len(parameters)))

    def _noise(self, rng: np.random.Generator, rows: int) -> Tensor:
        """Return standard normal numbers, [rows, A]."""
        shape = (rows, self.actions.size)
        return drawn(rng, lambda rng: rng.standard_normal(shape, dtype=np.float32), self.compute.tensor)

    # Hyperparameters, beside those of replays and of every `NetworkAgent`.

    network: Callable[..., nn.Module] = factory(
        create_box_actor_critic,
        "Makes a `BoxActorCritic` from (observation shape [k, *shape], `agents.spaces.actions.BoxActions`, "
        "`num_critics`, `num_layers`, `hidden_units`), with a window also ``action_window=K`` and ``critic_window``, "
        "whether the critics read it too.",
        "@create_box_actor_critic",
    )
    num_critics: int = whole(2, "Number of critics; the smallest of their values is used.", 1, "critic", most=1000)
    num_layers: int = whole(2, "Hidden layers of the actor and of each critic.", 0, "layers", most=1000)
    hidden_units: int = whole(256, "Units of each hidden layer.", 1, "unit", most=WIDEST)
    stack_size: int = again(NetworkAgent, "stack_size", 1)
    min_replay_history: int = again(ReplaySettings, "min_replay_history", 10_000)
    random_frames: int | None = whole(
        None,
        "Frames of uniformly random actions at first. None stands for ``min_replay_history * decision_interval``, "
        "when learning begins, and is refused where decisions have no constant interval.",
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
        "K: how many of the last applied actions the policy reads beside the observation, when its action is due. "
        "Under delay take the number of decisions in flight, which is the delay in frames where each frame has an "
        "action.",
        1,
        "action",
        none="the observation alone",
    )
    critic_at: Literal["start", "effect"] = choice(
        "start",
        'Which observation the critics read: ``"start"``, the one that the action was computed from, with the '
        'window; or ``"effect"``, that of the frame on which the action landed, as in the problem without delay (Kim '
        "et al. 2023, BPQL).",
        "start",
        "effect",
    )
    target_entropy: float | None = number(
        None, "Entropy at which the policy is held, in nats, with actions in [-1, 1].", none="-A, of A numbers"
    )
    critics_first: bool = flag(
        False,
        "Update the critics first, then the policy and the temperature by the new critics, as Stable-Baselines3 "
        "does; False updates all by the sum of their losses.",
    )
    reward_scale_factor: float = number(1.0, "Factor of rewards in the loss.")
    optimizer: Callable[..., torch.optim.Optimizer] = again(Learning, "optimizer", create_adam)

    def settle(self) -> None:
        super().settle()
        self.check_replay()
        self.actions = _bounded_actions(self.action_space, self.name)
        self.distribution = SquashedGaussian(self.actions.size)
        self.needs_effect = self.critic_at == "effect"
        self.weights_seed, self.replay_seed, self.exploration_seed, self.learning_seed = self.seeds(4)
        if self.decision_interval is None:
            self.check_warmup()

    def check_warmup(self) -> None:
        """Check that the random actions at first are known in frames, though the frames between two decisions vary.

        Raises:
            ValueError: They are not set, and there are some.
        """
        history = self.min_replay_history
        if self.random_frames is None and history:
            refuse_unknown_frames("SACAgent.random_frames", history)

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
        sizes = self.num_critics, self.num_layers, self.hidden_units
        if self.action_window is None:
            return network(self.observation_shape, self.actions, *sizes)
        window = {"action_window": self.action_window, "critic_window": not self.needs_effect}
        return network(self.observation_shape, self.actions, *sizes, **window)

    def check_network(self, network: Any, read: Reader) -> None:
        must(
            getattr(network, "fast_age", None) is None or self.needs_effect,
            f"critic_at must be 'effect' with agent {self.name!r} and a fast path, as the critics read what it does, "
            f"got {self.critic_at!r}",
        )
        kind, parts = type(network).__name__, ("actor", "critics", "log_temperature")
        must(
            all(hasattr(network, part) for part in parts),
            f"network must have {', '.join(parts)} with agent {self.name!r}, as @create_box_actor_critic's has, got "
            f"{kind}",
        )
        observation = read(self.reader.blank_stacks())
        check_sequence_fit(network.actor, observation, ((2 * self.actions.size,),), self.name, self.actions)
        of_window = self.actions.inputs * (self.action_window or 0)
        reads = hasattr(network.actor, "head") and not network.actor.feed_previous
        must(
            reads and network.actor.state_size == of_window and isinstance(network.actor.core, NoCore),
            "network must have an actor that reads observations, and the window if there is one, alone with agent "
            f"{self.name!r}, which learns from single transitions, got {kind}: leave out its core",
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
    actions = real_actions(space, agent, agents_of(space))
    must(actions.bounded, f"agent {agent!r} needs a Box with finite bounds, got {space}: take agent 'ppo'")
    must(
        actions.chunk is None,
        f"agent {agent!r} needs a Box of one dimension, got {space}: take agent 'ppo', or flatten it",
    )
    return actions
