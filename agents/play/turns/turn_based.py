"""Turn-based agents: a policy and a learner with Dopamine's interface, under any delay.

The order of a training step under delay, of decision j that starts on frame s_j::

    observe      transitions whose rewards were complete at s_j   (what a real agent could have learnt from by then)
    update       every `update_period` decisions, `num_updates_per_train_step` times
    act          decision j, on the weights that the update left

At the end of an episode nothing is in flight, so everything that is complete is observed.

`Overlap` computes an update in parallel with the environment.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from async_wrappers.agents.acting.decisions import Memories
from async_wrappers.agents.acting.effect import Effects, Fresh, show_effects
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.play.learning_agent import LearningAgent
from async_wrappers.agents.play.turns.clock import EpisodeClock, Outcome
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spaces.schema import EFFECT, START, batch_of_one, blank_actions, copied, stacked
from async_wrappers.agents.spec import Spec
from async_wrappers.policy import Decision


class TurnBasedAgent(LearningAgent):
    """An agent of one environment, which acts and learns in turn.

    The agent learns from a transition only when the decision being made starts at or after the frame on which the
    transition was complete. So under delay it uses only what is known when inference begins.

    Args:
        spec: Makes the policy and the learner.

    Attributes:
        spec: As given.
        learner: Whose weights the policy reads.
        policy: What acts.
        eval_mode: Whether episodes are played without learning.
        training_steps: Decisions of training so far, after which updates are due; a teacher's left out.
        times: How long the parts of training take.
    """

    def __init__(self, spec: Spec) -> None:
        """See the class."""
        super().__init__(spec, maker_of_learners(spec)())
        self._act_on(self.learner)
        self.eval_mode = False
        self._stack: deque[Any] = deque(maxlen=spec.stack_size)
        self._blank = spec.blank()
        self._clock = EpisodeClock()
        self.training_steps = 0
        self._closed: deque[tuple[int, dict[str, Any]]] = deque()  # (frame on which it was complete, transition)
        self._observation: Any = self._blank
        self._action: Any = blank_actions(spec.action_space) if spec.action_space.shape else 0
        self._extras: dict[str, Any] = {}  # of the last decision, as they stand in its transition
        self._core: Any = None  # state of a policy with memory, [1, S]; None where an episode begins
        self._reward = 0.0  # of the last decision
        self._number = 0  # of the last decision in its episode
        self._demonstrated = 0
        self._fresh = Fresh(self._copied) if spec.fast_age is not None else None
        self._effects: Any = self._fresh or (Effects(self._copied) if spec.needs_effect else None)

    @classmethod
    def playing(cls, kind: type[Spec], environment: gym.Env[Any, Any], **hyperparameters: Any) -> TurnBasedAgent:
        """Make an agent of class `kind` for an environment, from its spaces and its frames per decision.

        Raises:
            ValueError: A space that the agent cannot use, or an argument out of range.
        """
        spaces, interval = (environment.observation_space, environment.action_space), frames_per_decision(environment)
        spec = kind(*spaces, decision_interval=interval, **hyperparameters)
        if environment.has_wrapper_attr("playout"):
            spec.check_delay(environment.get_wrapper_attr("playout"), interval)
        if environment.has_wrapper_attr("most_in_flight"):
            spec.in_flight = environment.get_wrapper_attr("most_in_flight")
        show_effects(environment, spec, live=True)
        if environment.has_wrapper_attr("chunk"):
            spec.chunk_mean = getattr(environment.get_wrapper_attr("chunk"), "mean", None)
        if changes_actions(environment):
            spec.learns_from = "drawn"  # what was sent is reported in other units
        return cls(spec)

    @property
    def evaluated(self) -> int:
        """The number of the next evaluation episode."""
        return self._clock.eval_episodes

    def go_on_from(self, episode: int) -> None:
        """Let the next evaluation episode be that of a number; see `Agent`."""
        self._clock.eval_episodes = episode

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""
        if not self.eval_mode:
            self.spec.check_chunks()
            if self.lessons is not None:
                self.lessons.check()
        self._stack.extend([self._blank] * self.spec.stack_size)
        self._core, self._number = None, 0
        observation = self._copied(observation)
        if self._fresh is not None:
            self._fresh.show(realtime, observation)
        elif self._effects is not None:
            self._effects.begin_episode()
        return self._decide(observation, self._clock.begin(self.eval_mode, realtime), realtime)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action; `reward` is the last decision's."""
        decision, outcome = self._clock.advance(realtime)
        observation = self._copied(observation)
        self._note_applied(realtime)
        if self._fresh is not None:
            self._fresh.show(realtime, observation)
        self._close(reward, outcome, observation, realtime)
        self._reward, self._number = reward, self._number + 1
        return self._decide(observation, decision, realtime)

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
        final = self._blank if observation is None else self._copied(observation)
        self._note_applied(realtime)
        if self._fresh is not None:
            self._fresh.show(realtime, final)
        self._close(reward, self._clock.end(realtime), final, realtime, terminal, truncated=not terminal)
        self._learn_from_closed(self._clock.frames)  # a reset is a barrier: nothing is in flight any more
        self.finish_update()

    def _copied(self, observation: Any) -> Any:
        return copied(self.spec.without_tuples(observation))

    def _decide(self, observation: Any, decision: Decision, realtime: Mapping[str, Any] | None) -> Any:
        if not self.eval_mode:
            self._learn_from_closed(decision.frame)
            self._train_step()
        begin = perf_counter()
        self._observation = observation
        self._stack.append(observation)
        inputs = batch_of_one(stacked(self._stack))
        if self._fresh is not None:
            inputs = {START: inputs, EFFECT: batch_of_one(stacked([self._fresh.newest]))}
        output = self.policy.act(inputs, self._memory(), (decision,))
        self._core = output.state
        of_box = output.action.ndim > 1 or isinstance(self.spec.action_space, Box)  # of shape (): in its dtype
        self._action = np.asarray(output.action[0]) if of_box else output.action[0].item()
        extras = output.extras
        self._extras = {} if extras is None else {"extras": {name: values[0] for name, values in extras.items()}}
        self.times.add("Act", begin)
        if self.lessons is not None and not self.eval_mode:
            self._consult(self.lessons, decision, realtime)
        return copy.copy(self._action)  # the environment may change an array in place

    def _consult(self, lessons: Any, decision: Decision, realtime: Mapping[str, Any] | None) -> None:
        """Take what the teacher says of a decision: a label, an action."""
        guide, view = lessons.guide, partial(lessons.guide.view_in, realtime, "observation_info")
        advice = guide.advise((decision,), (self._number,), view)
        self._carry(advice.extras)
        if advice.guided is not None and advice.action is not None:
            self._action = int(advice.action[0])

    def _carry(self, extras: Mapping[str, Any]) -> None:
        """Let the last decision's transition carry further extras, [1, ...] by name."""
        if extras:
            more = {name: values[0] for name, values in extras.items()}
            self._extras["extras"] = {**self._extras.get("extras", {}), **more}

    def _memory(self) -> Any:
        """Return the state argument of a policy with memory; () for one without."""
        if not getattr(self.policy, "remembers", False):
            return ()
        first = self._core is None
        core = self.policy.initial_state(1) if first else self._core  # type: ignore[attr-defined]
        action, reward = np.array([self._action]), np.array([self._reward], np.float32)
        return Memories(core, action, reward, np.array([first]))

    def _note_applied(self, realtime: Mapping[str, Any] | None) -> None:
        """Keep which entries of the last decision's chunk were applied, where actions are chunks.

        If another action was sent than the policy drew, it takes its place, for an agent that learns from that.
        """
        if realtime is not None and "executed" in realtime:
            self._extras["executed"] = realtime["executed"]
        if realtime is not None and "sent" in realtime and self.spec.learns_from == "sent":
            self._action = realtime["sent"]

    def _close(
        self,
        reward: float,
        outcome: Outcome,
        following: Any,
        realtime: Mapping[str, Any] | None,
        terminal: bool = False,
        truncated: bool = False,
    ) -> None:
        """Complete the last decision's transition; `following` is what the next decision reads."""
        if self.eval_mode or not outcome.applied:
            return
        observation = self._observation
        if self.lessons is not None:
            guide = self.lessons.guide
            self._carry(guide.on_landing(partial(guide.view_in, realtime, "effect_info")))
        if self._effects is not None:
            observation, following = self._effects.pair(realtime, observation, following)
        transition = {
            "observation": observation,
            "action": self._action,
            "reward": reward,
            "interval": outcome.interval,
            "terminal": terminal,
            "truncated": truncated,
            "next_observation": following,
            **self._extras,
        }
        self._closed.append((outcome.closed, transition))

    def _learn_from_closed(self, frame: int) -> None:
        """Let the learner observe the transitions that were complete at `frame`."""
        if not self._closed:
            return
        begin, store = perf_counter(), self.learner if self.lessons is None else self.lessons
        while self._closed and self._closed[0][0] <= frame:
            store.observe(self._closed.popleft()[1])
        self.times.add("Store", begin)

    def _train_step(self) -> None:
        if self.lessons is not None:
            if self.lessons.collects:
                return
            self.lessons.note_decisions(1)
        if self.learner.ready and self.training_steps % self.spec.update_every == 0:
            for _ in range(self.spec.num_updates_per_train_step):
                if self._overlap is None:
                    self.write_scalars(self._update())
                else:  # of several, the last one is computed in parallel
                    self.finish_update()
                    self._overlap.start()
        self.training_steps += 1

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share to continue one another; see `Spec.identity`."""
        return self.spec.identity(self.learner)

    def state(self) -> dict[str, Any]:
        """Return the whole state, with the replay, as tensors, arrays and plain data."""
        self.finish_update()
        replay = getattr(self.learner, "replay", None)
        return {
            "learner": self.learner.state_dict(),
            "replay": replay.state_dict() if isinstance(replay, Replay) else None,
            "clock": self._clock.state_dict(),
            "training_steps": self.training_steps,
        }

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; the replay goes into files of its own in `checkpoint_dir`."""
        self.finish_update()
        self.learner.save_replay(checkpoint_dir / "replay", iteration)
        return {
            "learner": self.learner.state_dict(),
            "turns": self._clock.state_dict(),
            "training_steps": self.training_steps,
            **({} if self.lessons is None else self.lessons.save(checkpoint_dir, iteration)),
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `bundle_and_checkpoint` returned and wrote.

        Args:
            checkpoint_dir: What `bundle_and_checkpoint` was given.
            iteration: What `bundle_and_checkpoint` was given.
            bundle: What `bundle_and_checkpoint` returned.

        Raises:
            OSError: A file is missing.
            ValueError: A file is damaged, or the state does not fit this agent.
        """
        self.finish_update()
        self.learner.check_state(bundle["learner"])
        self.learner.load_replay(checkpoint_dir / "replay", iteration)
        self.learner.load_state_dict(bundle["learner"])
        self._clock.load_state_dict(bundle["turns"])
        self.training_steps = bundle["training_steps"]
        if self.lessons is not None:
            self.lessons.load(checkpoint_dir, iteration, bundle)
        self.publish()

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self.learner.forget_replays(checkpoint_dir / "replay", keep)
        if self.lessons is not None:
            self.lessons.forget(checkpoint_dir, keep)

    def _act_on(self, learner: Any) -> None:
        self.policy = self.spec.make_policy_of(learner)

    def _frames(self) -> int:
        return self._clock.frames

    def demonstrate(self, transition: Mapping[str, Any]) -> None:
        """Store another player's transition."""
        self.learner.observe(transition)
        self._demonstrated += 1

    @property
    def transitions(self) -> int:
        """How many transitions can be drawn; without a `Replay`, how many were demonstrated."""
        replay = getattr(self.learner, "replay", None)
        return len(replay) if isinstance(replay, Replay) else self._demonstrated

    @property
    def batch_size(self) -> int:
        """Transitions of an update."""
        return self.spec.transitions_per_update


# Decisions are numbered, and frames counted.


def frames_per_decision(environment: gym.Env[Any, Any]) -> int | None:
    """Return the frames from one decision's effect to the next one's; None if they vary.

    They are the environment's attribute ``decision_interval``, as `RealtimeDelay` has it, and 1 without this attribute.
    """
    if not environment.has_wrapper_attr("decision_interval"):
        return 1
    interval: int | None = environment.get_wrapper_attr("decision_interval")
    return interval


def changes_actions(environment: gym.Env[Any, Any]) -> bool:
    """Return whether a wrapper outside the delay changes actions, as far as its class and its space tell."""
    layer, changes = environment, False
    while isinstance(layer, gym.Wrapper) and not hasattr(layer, "decision_interval"):
        changes |= isinstance(layer, gym.ActionWrapper) or layer.action_space != layer.env.action_space
        layer = layer.env
    return changes and hasattr(layer, "decision_interval")
