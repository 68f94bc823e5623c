"""Agents asked in turn: policy, learner and replay put together, with Dopamine's interface, under any delay."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agents.agent import Report
from agents.decision import Decision, Outcome, Turns

if TYPE_CHECKING:
    from agents.dqn.parts import DQN  # whose package has an agent that is made of this one

__all__ = ["TurnBasedAgent"]


class TurnBasedAgent:
    """Acts, learns and remembers in turn.

    The agent learns from a transition only when the decision being made starts at or after the frame on which the
    transition was complete: under delay, what is known when inference begins.

    Args:
        environment: Its spaces are read: Discrete actions, Box observations.
        hyperparameters: Those of `Parts`, which gin binds too; with `seed`.

    Attributes:
        Parts: What the agent is made of, by class.
        parts: What it is made of.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    Parts: ClassVar[type[DQN]]

    def __init_subclass__(cls) -> None:
        """Let a subclass show the hyperparameters of its parts as its own."""
        kinds = [kind for kind in cls.Parts.__mro__ if "__init__" in vars(kind) and kind is not object]
        shown = {
            name: parameter
            for kind in kinds
            for name, parameter in inspect.signature(kind).parameters.items()
            if parameter.kind == inspect.Parameter.KEYWORD_ONLY
        }
        environment = inspect.Parameter("environment", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        cls.__signature__ = inspect.Signature([environment, *shown.values()])  # type: ignore[attr-defined]

    def __init__(self, environment: gym.Env[Any, Any], **hyperparameters: Any) -> None:
        """See the class."""
        self.parts = self.Parts(environment.observation_space, environment.action_space, **hyperparameters)
        self.eval_mode = False
        space = self.parts.observation_space
        self._stack: deque[npt.NDArray[Any]] = deque(maxlen=self.parts.stack_size)
        self._blank = np.zeros(space.shape, space.dtype)
        self._learner = self.parts.make_learner()
        self._policy = self.parts.policy_of(self._learner.network)
        self._report: Report | None = None
        self._turns = Turns()
        self._training_steps = 0
        self._closed: deque[tuple[int, dict[str, Any]]] = deque()  # (frame on which it was complete, transition)
        self._observation: npt.NDArray[Any] = self._blank
        self._action = 0

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> int:
        """Return the first action of an episode."""
        self._stack.extend([self._blank] * self.parts.stack_size)
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
        return self._action

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
        if self._learner.ready and self._training_steps % self.parts.update_period == 0:
            scalars = self._learner.update()
            if self._report is not None and self._learner.updates % self.parts.summary_writing_frequency == 0:
                for name, value in scalars.items():
                    self._report(name, float(value), self._turns.frames)
        self._training_steps += 1

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._learner.updates

    def identity(self) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its replay's facts and its optimiser's name."""
        parameters = {name: list(parameter.shape) for name, parameter in self._learner.network.named_parameters()}
        return {
            "agent": type(self).__name__,
            "observation_shape": list(self.parts.observation_shape),
            "actions": self.parts.num_actions,
            "network": parameters,
            "replay": self._learner.replay.facts(),
            "optimizer": self._learner.optimizer_name,
        }

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; the replay goes into files of its own in `checkpoint_dir`."""
        self._learner.save_replay(checkpoint_dir / "replay", iteration)
        return {
            "learner": self._learner.state_dict(),
            "turns": self._turns.state_dict(),
            "training_steps": self._training_steps,
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `bundle_and_checkpoint` returned and wrote."""
        self._learner.check_state(bundle["learner"])
        self._learner.load_replay(checkpoint_dir / "replay", iteration)
        self._learner.load_state_dict(bundle["learner"])
        self._turns.load_state_dict(bundle["turns"])
        self._training_steps = bundle["training_steps"]

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self._learner.forget_replays(checkpoint_dir / "replay", keep)

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Take over the weights alone, for acting and as the target's."""
        self._learner.load_weights(bundle["learner"]["network"])
        self._learner.synchronize_target()

    def set_report(self, report: Report) -> None:
        """Send the loss to `report`."""
        self._report = report
