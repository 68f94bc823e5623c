"""DQN asked in turn: policy, learner and replay put together, with Dopamine's interface and parameter names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box
from torch import nn

from agents.agent import Report
from agents.baselines import discrete_actions
from agents.compute import Compute
from agents.decision import Decision, Outcome, Turns
from agents.dqn.learner import DQNLearner
from agents.dqn.policy import DQNPolicy
from agents.exploration import linearly_decaying_epsilon
from agents.networks import create_network
from agents.optimizers import create_optimizer
from agents.replay import RingReplay

__all__ = ["DQNAgent"]


@gin.configurable(module="agents")
class DQNAgent:
    """DQN (Mnih et al. 2015), under any delay.

    The agent learns from a transition only when the decision being made starts at or after the frame on which the
    transition was complete: under delay, what is known when inference begins.

    Defaults are Dopamine's for Atari. A *step* is one decision; epsilon counts frames, which are the same without
    delay.

    Args:
        environment: Its spaces are read: Discrete actions, Box observations.
        stack_size: Observations of the last k decisions that the network sees, k.
        network: From (observation shape [k, *shape], number of actions) to a module that gives Q-values [B, A].
        gamma: Discount.
        discount_by: ``"decision"``: gamma per decision, as in the paper; ``"frame"``: gamma ** interval.
        update_horizon: n of the n-step return, in decisions.
        min_replay_history: Transitions observed before the first update.
        update_period: Decisions between two updates.
        target_update_period: Decisions between two copies into the target network.
        epsilon_fn: From (decay period, frame, warm-up, final epsilon) to epsilon in training.
        epsilon_train: Final epsilon in training.
        epsilon_eval: Epsilon in evaluation.
        epsilon_decay_period: Frames.
        epsilon_warmup: Frames before epsilon falls; None means as many as `min_replay_history`.
        replay_capacity: Observations kept.
        batch_size: Transitions per update.
        optimizer: From parameters to an optimiser.
        loss_type: ``"huber"`` or ``"mse"``.
        double_dqn: The double Q-learning target (van Hasselt et al. 2016).
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        channels_last: Keep images in the channels-last memory format (faster on a CPU: benchmarks/README.md).
        bf16: Forward passes in bfloat16.
        summary_writing_frequency: Updates between two reports of the loss.
        seed: Of the weights, the exploration and the replay.

    Raises:
        ValueError: A space that DQN cannot use, or an argument out of range.
    """

    def __init__(
        self,
        environment: gym.Env[Any, Any],
        *,
        stack_size: int = 4,
        network: Callable[[Sequence[int], int], nn.Module] = create_network,
        gamma: float = 0.99,
        discount_by: str = "decision",
        update_horizon: int = 1,
        min_replay_history: int = 20_000,
        update_period: int = 4,
        target_update_period: int = 8_000,
        epsilon_fn: Callable[[int, int, int, float], float] = linearly_decaying_epsilon,
        epsilon_train: float = 0.01,
        epsilon_eval: float = 0.001,
        epsilon_decay_period: int = 250_000,
        epsilon_warmup: int | None = None,
        replay_capacity: int = 1_000_000,
        batch_size: int = 32,
        optimizer: Callable[..., torch.optim.Optimizer] = create_optimizer,
        loss_type: str = "huber",
        double_dqn: bool = False,
        max_gradient_norm: float | None = None,
        device: str = "auto",
        channels_last: bool = True,
        bf16: bool = False,
        summary_writing_frequency: int = 500,
        seed: int = 0,
    ) -> None:
        """See the class."""
        _at_least("stack_size", stack_size, 1, "observation")
        _at_least("update_period", update_period, 1, "decision")
        _at_least("target_update_period", target_update_period, 1, "decision")
        _at_least("min_replay_history", min_replay_history, 0, "transitions")
        _at_least("summary_writing_frequency", summary_writing_frequency, 1, "update")
        _at_least("epsilon_decay_period", epsilon_decay_period, 0, "frames")
        for name, value in (("epsilon_train", epsilon_train), ("epsilon_eval", epsilon_eval)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {value}")
        if max_gradient_norm is not None and not max_gradient_norm > 0:
            raise ValueError(f"max_gradient_norm must be > 0, or None for no clipping, got {max_gradient_norm}")
        self.eval_mode = False
        self._first_action, self._num_actions = discrete_actions(environment.action_space, "dqn")
        space = _array_space(environment.observation_space)
        self._observation_shape = (stack_size, *space.shape)
        self._stack: deque[npt.NDArray[Any]] = deque(maxlen=stack_size)
        self._blank = np.zeros(space.shape, space.dtype)
        seeds = [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(3)]
        self._compute = Compute(device, channels_last, bf16)
        with _seeded(seeds[0]):
            self._network = self._compute.place(network(self._observation_shape, self._num_actions))
        self._replay = RingReplay(
            space.shape,
            space.dtype,
            capacity=replay_capacity,
            stack_size=stack_size,
            update_horizon=update_horizon,
            gamma=gamma,
            discount_by=discount_by,  # type: ignore[arg-type]  # checked by the replay
            batch_size=batch_size,
            seed=seeds[1],
        )
        self._learner = DQNLearner(
            self._network,
            self._replay,
            target_update_period=max(1, round(target_update_period / update_period)),
            optimizer=optimizer,
            loss_type=loss_type,
            double=double_dqn,
            max_gradient_norm=max_gradient_norm,
            compute=self._compute,
        )
        warmup = min_replay_history if epsilon_warmup is None else epsilon_warmup

        def epsilon(decision: Decision) -> float:
            if decision.eval_mode:
                return epsilon_eval
            return epsilon_fn(epsilon_decay_period, decision.frame, warmup, epsilon_train)

        self._policy = DQNPolicy(self._network, self._num_actions, epsilon, seeds[2], self._compute)
        self._min_replay_history = min_replay_history
        self._update_period = update_period
        self._summary_writing_frequency = summary_writing_frequency
        self._report: Report | None = None
        self._turns = Turns()
        self._training_steps = 0
        self._closed: deque[tuple[int, dict[str, Any]]] = deque()  # (frame on which it was complete, transition)
        self._observation: npt.NDArray[Any] = self._blank
        self._action = 0

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        """Return the first action of an episode."""
        self._stack.extend([self._blank] * self._observation_shape[0])
        return self._decide(observation, self._turns.begin(self.eval_mode, realtime))

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        """Return the next action; `reward` is the last decision's."""
        decision, outcome = self._turns.advance(realtime)
        self._close(reward, outcome)
        return self._decide(observation, decision)

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode; one that was cut (`terminal` False) needs its last observation to bootstrap on."""
        if not terminal and observation is None:
            raise ValueError("observation must be given where terminal=False, to bootstrap on, got None")
        final = self._blank if observation is None else np.array(observation)
        self._close(reward, self._turns.end(realtime), final, terminal)
        self._learn_from_closed(self._turns.frames)  # a reset is a barrier: nothing is in flight any more

    def _decide(self, observation: Any, decision: Decision) -> int:
        if not self.eval_mode:
            self._learn_from_closed(decision.frame)
            self._train_step()
        self._observation = np.array(observation)  # the environment may reuse its array
        self._stack.append(self._observation)
        self._action = self._policy.act(np.stack(self._stack), decision)
        return self._first_action + self._action

    def _close(
        self, reward: float, outcome: Outcome, final: npt.NDArray[Any] | None = None, terminal: bool = False
    ) -> None:
        """Complete the last decision's transition; `final` is the observation after the end, if this was the end."""
        if self.eval_mode or not outcome.applied:
            return
        transition = {
            "observation": self._observation,
            "action": self._action,
            "reward": reward,
            "interval": outcome.interval,
            "terminal": terminal,
            "truncated": final is not None and not terminal,
            "next_observation": final,
        }
        self._closed.append((outcome.closed, transition))

    def _learn_from_closed(self, frame: int) -> None:
        """Show the learner the transitions that were complete at `frame`."""
        while self._closed and self._closed[0][0] <= frame:
            self._learner.observe(self._closed.popleft()[1])

    def _train_step(self) -> None:
        enough = len(self._replay) > 0 and self._replay.add_count > self._min_replay_history
        if enough and self._training_steps % self._update_period == 0:
            scalars = self._learner.update()
            if self._report is not None and self._learner.updates % self._summary_writing_frequency == 0:
                for name, value in scalars.items():
                    self._report(name, float(value), self._turns.frames)
        self._training_steps += 1

    def identity(self) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its replay's facts and its optimiser's name."""
        parameters = {name: list(parameter.shape) for name, parameter in self._network.named_parameters()}
        return {
            "agent": type(self).__name__,
            "observation_shape": list(self._observation_shape),
            "actions": self._num_actions,
            "network": parameters,
            "replay": self._replay.facts(),
            "optimizer": self._learner.optimizer_name,
        }

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; the replay goes into files of its own in `checkpoint_dir`."""
        self._replay.save(checkpoint_dir / "replay", iteration)
        return {
            "learner": self._learner.state_dict(),
            "turns": self._turns.state_dict(),
            "training_steps": self._training_steps,
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `bundle_and_checkpoint` returned and wrote."""
        self._replay.load(checkpoint_dir / "replay", iteration)
        self._learner.load_state_dict(bundle["learner"])
        self._turns.load_state_dict(bundle["turns"])
        self._training_steps = bundle["training_steps"]

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self._replay.prune(checkpoint_dir / "replay", keep)

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Take over the weights alone."""
        self._learner.load_weights(bundle["learner"]["network"])

    def set_report(self, report: Report) -> None:
        """Send the loss to `report`."""
        self._report = report


def _array_space(space: gym.Space[Any]) -> Box:
    if not isinstance(space, Box):
        raise ValueError(
            f"agent 'dqn' needs a Box observation space, got {space}: flatten it (AppliedActions.flat = True, or "
            "Gymnasium's FlattenObservation)"
        )
    return space


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside, and leave torch's generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _at_least(name: str, value: int, least: int, unit: str) -> None:
    if not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number ({unit}), got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be >= {least} {unit}, got {value}")
