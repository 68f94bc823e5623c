"""Agents asked in turn: policy, learner and replay put together, with Dopamine's interface, under any delay."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
from torch import Tensor

from agents.agent import Report
from agents.decision import Decision, Outcome, Turns, frames_per_decision
from agents.observations import copied, stacked
from agents.overlap import Overlap
from agents.trees import each_array

if TYPE_CHECKING:
    from agents.dqn.parts import DQN  # whose package has an agent that is made of this one

__all__ = ["TurnBasedAgent"]


class TurnBasedAgent:
    """Acts, learns and remembers in turn.

    The agent learns from a transition only when the decision being made starts at or after the frame on which the
    transition was complete: under delay, what is known when inference begins.

    Args:
        environment: Its spaces are read: Discrete actions, and observations as in `agents.observations.Reader`.
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
            if parameter.kind == inspect.Parameter.KEYWORD_ONLY and name != "decision_interval"  # the environment's
        }
        environment = inspect.Parameter("environment", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        cls.__signature__ = inspect.Signature([environment, *shown.values()])  # type: ignore[attr-defined]

    def __init__(self, environment: gym.Env[Any, Any], **hyperparameters: Any) -> None:
        """See the class."""
        spaces = environment.observation_space, environment.action_space
        self.parts = self.Parts(*spaces, decision_interval=frames_per_decision(environment), **hyperparameters)
        self.eval_mode = False
        self._stack: deque[Any] = deque(maxlen=self.parts.stack_size)
        self._blank = self.parts.reader.blank()
        self._learner = self.parts.make_learner()
        self._policy = self.parts.policy_of(self._learner.network)
        self._overlap: Overlap | None = None
        self._report: Report | None = None
        self._turns = Turns()
        self._training_steps = 0
        self._closed: deque[tuple[int, dict[str, Any]]] = deque()  # (frame on which it was complete, transition)
        self._observation: Any = self._blank
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
        final = self._blank if observation is None else copied(observation)
        self._close(reward, self._turns.end(realtime), final, terminal)
        self._learn_from_closed(self._turns.frames)  # a reset is a barrier: nothing is in flight any more
        self._join()

    def _decide(self, observation: Any, decision: Decision) -> int:
        if not self.eval_mode:
            self._learn_from_closed(decision.frame)
            self._train_step()
        self._observation = copied(observation)
        self._stack.append(self._observation)
        self._action = self._policy.act(stacked(self._stack), decision)
        return self._action

    def _close(self, reward: float, outcome: Outcome, final: Any = None, terminal: bool = False) -> None:
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
            if self._overlap is None:
                self._tell(self._learner.update())
            else:
                self._join()
                self._overlap.start()
        self._training_steps += 1

    def _join(self) -> None:
        """Let the update that is under way beside the game, if one is, come to its end."""
        if self._overlap is not None and (scalars := self._overlap.join()) is not None:
            self._tell(scalars)

    def _tell(self, scalars: Mapping[str, Tensor]) -> None:
        if self._report is not None and self._learner.updates % self.parts.summary_writing_frequency == 0:
            for name, value in scalars.items():
                self._report(name, float(value), self._turns.frames)

    @property
    def updates(self) -> int:
        """Updates done."""
        return self._learner.updates

    def identity(self) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its replay's facts and its optimiser's name."""
        parameters = {name: list(parameter.shape) for name, parameter in self._learner.network.named_parameters()}
        return {
            "agent": type(self).__name__,
            "observation_shape": each_array(list, self.parts.observation_shape),
            "actions": self.parts.num_actions,
            "network": parameters,
            "replay": self._learner.replay.facts(),
            "optimizer": self._learner.optimizer_name,
        }

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; the replay goes into files of its own in `checkpoint_dir`."""
        self._join()
        self._learner.save_replay(checkpoint_dir / "replay", iteration)
        return {
            "learner": self._learner.state_dict(),
            "turns": self._turns.state_dict(),
            "training_steps": self._training_steps,
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any], partial: bool = False) -> int:
        """Restore what `bundle_and_checkpoint` returned and wrote.

        Args:
            checkpoint_dir: What `bundle_and_checkpoint` was given.
            iteration: What `bundle_and_checkpoint` was given.
            bundle: What `bundle_and_checkpoint` returned.
            partial: Whether to do without the replay's segments that are damaged or missing.

        Returns:
            How many transitions are lost with them.

        Raises:
            OSError: A file is missing.
            DamagedReplay: A segment of the replay is damaged or missing, unless `partial`.
            ValueError: A file is damaged, or the state does not fit this agent.
        """
        self._join()
        self._learner.check_state(bundle["learner"])
        lost = self._learner.load_replay(checkpoint_dir / "replay", iteration, partial)
        self._learner.load_state_dict(bundle["learner"])
        self._turns.load_state_dict(bundle["turns"])
        self._training_steps = bundle["training_steps"]
        self._publish()
        return lost

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self._learner.forget_replays(checkpoint_dir / "replay", keep)

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Take over the weights alone, for acting and as the target's."""
        self._join()
        self._learner.load_weights(bundle["learner"]["network"])
        self._learner.synchronize_target()
        self._publish()

    def _publish(self) -> None:
        if self._overlap is not None:
            self._overlap.publish()

    def demonstrate(self, transition: Mapping[str, Any]) -> None:
        """Put a transition that somebody else lived through into the replay."""
        self._learner.observe(transition)

    def pretrain(self) -> Mapping[str, Tensor]:
        """Do one update, whether or not there is enough history to begin with in training; see `Learner.update`."""
        scalars = self._learner.update()
        self._publish()
        return scalars

    @property
    def transitions(self) -> int:
        """How many transitions can be drawn."""
        return len(self._learner.replay)

    @property
    def batch_size(self) -> int:
        """Transitions of an update."""
        return int(self._learner.replay.facts()["batch_size"])

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Put the batch whose loss is not finite into a run's directory, if no other one was given."""
        if self._learner.diverged_dir is None:
            self._learner.diverged_dir = directory
        self.parts.keep_diverged_in(directory)

    def set_report(self, report: Report) -> None:
        """Send the loss to `report`."""
        self._report = report

    def overlap_learning(self) -> None:
        """Compute updates beside the environment from now on, one update behind (`agents.overlap.Overlap`)."""
        self._overlap = Overlap(self._learner)
        self._policy = self.parts.policy_of(self._overlap.network)
