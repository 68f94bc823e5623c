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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from torch import Tensor

from async_wrappers.agents.acting.decisions import Memories, RowsPolicy
from async_wrappers.agents.acting.effect import Effects, report_effect
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.play.agent import Report
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spaces.schema import batch_of_one, blank_actions, copied, stacked
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import PartTimes
from async_wrappers.policy import Decision

__all__ = ["EpisodeClock", "LearningAgent", "Outcome", "Overlap", "TurnBasedAgent", "frames_per_decision"]


class LearningAgent:
    """Base class of agents of one and of many environments: a learner, its updates and their reports.

    Args:
        spec: Of the agent.
        learner: Whose weights the policy reads.
    """

    learns = True
    policy: RowsPolicy

    def __init__(self, spec: Spec, learner: Any) -> None:
        """See the class."""
        self.spec, self.learner = spec, learner
        self.times: PartTimes = getattr(learner, "times", None) or PartTimes()
        self._overlap: Overlap | None = None
        self._report: Report | None = None

    @property
    def updates(self) -> int:
        """Updates done."""
        updates: int = self.learner.updates
        return updates

    def summary(self) -> Mapping[str, Any]:
        """Return the values that are reported beside the scalars of an update; see `Learner.summary`."""
        found: Mapping[str, Any] = getattr(self.learner, "summary", dict[str, Any])()
        return found

    def finish_update(self) -> None:
        """Wait for the end of the parallel update, if one is under way."""
        if self._overlap is not None and (scalars := self._overlap.join()) is not None:
            self._write_scalars(scalars)

    def load_policy(self, bundle: Mapping[str, Any]) -> None:
        """Load the weights alone, into the network and its target.

        Raises:
            ValueError: The bundle holds none, or they do not fit.
        """
        self.finish_update()
        if not isinstance(state := bundle.get("learner"), Mapping):
            raise ValueError(f"the state of a learner is missing: there is {', '.join(map(str, bundle)) or 'nothing'}")
        self.learner.load_policy(state)
        self._publish()

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Write the batch whose loss is not finite into a run's directory, unless another one was given."""
        if getattr(self.learner, "diverged_dir", directory) is None:
            self.learner.diverged_dir = directory
        self.spec.keep_diverged_in(directory)

    def set_report(self, report: Report) -> None:
        """Send the loss to `report`."""
        self._report = report

    def overlap_learning(self) -> None:
        """Compute updates in parallel with the environment from now on, one update behind (`Overlap`).

        Raises:
            ValueError: The agent's learner is no `Learner`, whose updates another thread may compute.
        """
        if not isinstance(self.learner, Learner):
            raise ValueError(
                f"Runner.overlap must be False with agent {self.spec.name!r}, whose learner is no "
                "async_wrappers.agents.learning.learner.Learner"
            )
        self._overlap = Overlap(self.learner)
        self._act_on(self._overlap)

    def _publish(self) -> None:
        """Let the policy act on the learner's weights as they are now."""
        if self._overlap is not None:
            self._overlap.publish()
        else:
            self._act_on(self.learner)

    def _act_on(self, learner: Any) -> None:
        """Make the policy that reads a learner's weights."""
        raise NotImplementedError

    def _frames(self) -> int:
        """Return the frames of training so far."""
        raise NotImplementedError

    def _write_scalars(self, scalars: Mapping[str, Tensor]) -> None:
        if self._report is not None and self.learner.updates % self.spec.summary_writing_frequency == 0:
            for name, value in {**scalars, **self.summary()}.items():
                self._report(name, float(value), self._frames())


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
        self._training_steps = 0
        self._closed: deque[tuple[int, dict[str, Any]]] = deque()  # (frame on which it was complete, transition)
        self._observation: Any = self._blank
        self._action: Any = blank_actions(spec.action_space) if spec.action_space.shape else 0
        self._extras: dict[str, Any] = {}  # of the last decision, as they stand in its transition
        self._core: Any = None  # state of a policy with memory, [1, S]; None where an episode begins
        self._reward = 0.0  # of the last decision
        self._demonstrated = 0
        self._effects = Effects(self._copied) if spec.needs_effect else None

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
        if spec.needs_effect:
            report_effect(environment, spec.name)
        if environment.has_wrapper_attr("chunk"):
            spec.chunk_mean = getattr(environment.get_wrapper_attr("chunk"), "mean", None)
        if changes_actions(environment):
            spec.learns_from = "drawn"  # what was sent is reported in other units
        return cls(spec)

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""
        if not self.eval_mode:
            self.spec.check_chunks()
        self._stack.extend([self._blank] * self.spec.stack_size)
        self._core = None
        if self._effects is not None:
            self._effects.begin_episode()
        return self._decide(self._copied(observation), self._clock.begin(self.eval_mode, realtime))

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action; `reward` is the last decision's."""
        decision, outcome = self._clock.advance(realtime)
        observation = self._copied(observation)
        self._note_applied(realtime)
        self._close(reward, outcome, observation, realtime)
        self._reward = reward
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
        final = self._blank if observation is None else self._copied(observation)
        self._note_applied(realtime)
        self._close(reward, self._clock.end(realtime), final, realtime, terminal, truncated=not terminal)
        self._learn_from_closed(self._clock.frames)  # a reset is a barrier: nothing is in flight any more
        self.finish_update()

    def _copied(self, observation: Any) -> Any:
        return copied(self.spec.without_tuples(observation))

    def _decide(self, observation: Any, decision: Decision) -> Any:
        if not self.eval_mode:
            self._learn_from_closed(decision.frame)
            self._train_step()
        begin = perf_counter()
        self._observation = observation
        self._stack.append(observation)
        output = self.policy.act(batch_of_one(stacked(self._stack)), self._memory(), (decision,))
        self._core = output.state
        of_box = output.action.ndim > 1 or isinstance(self.spec.action_space, Box)  # of shape (): in its dtype
        self._action = np.asarray(output.action[0]) if of_box else output.action[0].item()
        extras = output.extras
        self._extras = {} if extras is None else {"extras": {name: values[0] for name, values in extras.items()}}
        self.times.add("Act", begin)
        return copy.copy(self._action)  # the environment may change an array in place

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
        begin = perf_counter()
        while self._closed and self._closed[0][0] <= frame:
            self.learner.observe(self._closed.popleft()[1])
        self.times.add("Store", begin)

    def _train_step(self) -> None:
        if self.learner.ready and self._training_steps % self.spec.update_every == 0:
            for _ in range(self.spec.num_updates_per_train_step):
                if self._overlap is None:
                    self._write_scalars(self._update())
                else:  # of several, the last one is computed in parallel
                    self.finish_update()
                    self._overlap.start()
        self._training_steps += 1

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
            "training_steps": self._training_steps,
        }

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; the replay goes into files of its own in `checkpoint_dir`."""
        self.finish_update()
        self.learner.save_replay(checkpoint_dir / "replay", iteration)
        return {
            "learner": self.learner.state_dict(),
            "turns": self._clock.state_dict(),
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
        self.finish_update()
        self.learner.check_state(bundle["learner"])
        lost: int = self.learner.load_replay(checkpoint_dir / "replay", iteration, partial)
        self.learner.load_state_dict(bundle["learner"])
        self._clock.load_state_dict(bundle["turns"])
        self._training_steps = bundle["training_steps"]
        self._publish()
        return lost

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self.learner.forget_replays(checkpoint_dir / "replay", keep)

    def _act_on(self, learner: Any) -> None:
        self.policy = self.spec.make_policy_of(learner)

    def _frames(self) -> int:
        return self._clock.frames

    def demonstrate(self, transition: Mapping[str, Any]) -> None:
        """Store another player's transition."""
        self.learner.observe(transition)
        self._demonstrated += 1

    def pretrain(self) -> Mapping[str, Tensor]:
        """Do one update, even with fewer transitions than training needs to begin; see `Learner.update`."""
        scalars = self._update()
        if self._overlap is not None:
            self._overlap.publish()
        return scalars

    def _update(self) -> Mapping[str, Any]:
        before = self.learner.updates
        scalars: Mapping[str, Any] = self.learner.update()
        if self.learner.updates == before:
            raise ValueError(
                f"update() of {type(self.learner).__name__} must add 1 to its `updates`, got {before} before and after"
            )
        return scalars

    @property
    def transitions(self) -> int:
        """How many transitions can be drawn; without a `Replay`, how many were demonstrated."""
        replay = getattr(self.learner, "replay", None)
        return len(replay) if isinstance(replay, Replay) else self._demonstrated

    @property
    def batch_size(self) -> int:
        """Transitions of an update."""
        return self.spec.transitions_per_update


# Parallel learning: a thread computes an update while the environment steps.


class Overlap:
    """Runs one update at a time in a thread, and keeps a network with the weights of the last one that was joined.

    With an update every four decisions::

        decision          0 1 2 3     4 5 6 7     8 9 10 11     end of the episode
        main thread       start 0     join 0      join 1        join 2
                                      start 1     start 2
        learner's thread  [update 0 ] [update 1 ] [update 2 ]
        acts on weights   first       after 0     after 1       after 2

    So the weights that act are those of one update earlier than without overlap, however long each part takes. Results
    differ from those without overlap, and are the same from run to run. The main thread draws the batch at the start
    and sets its priorities at the join: no other thread touches the replay. Nothing is under way between two episodes,
    where evaluation and checkpoints fall.

    Args:
        learner: Its network, target and optimiser are the thread's while an update is under way.

    Attributes:
        network: What a policy may read at any time: the learner's `acting` part.
        acting: The same.
        updates: How many times the weights were published.
        version: The learner's updates that the network has.
    """

    def __init__(self, learner: Learner) -> None:
        """See the class."""
        self._learner = learner
        self.network = self.acting = learner.compute.place(copy.deepcopy(learner.acting)).requires_grad_(False)
        self.updates, self.version = 0, learner.updates
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._update: Future[Mapping[str, Tensor]] | None = None

    @property
    def under_way(self) -> bool:
        """Whether an update was begun and not joined."""
        return self._update is not None

    def start(self) -> None:
        """Draw a batch, and begin to learn from it; the update before must have been joined."""
        self._update = self._thread.submit(self._learner.learn, self._learner.draw())

    def join(self) -> Mapping[str, Tensor] | None:
        """Wait for the update that is under way, take over its weights and return its scalars; None if none is.

        Raises:
            DivergedError: Its loss is not finite.
        """
        if self._update is None:
            return None
        update, self._update = self._update, None
        scalars = update.result()
        self._learner.finish_update()
        self.publish()
        return scalars

    def publish(self) -> None:
        """Copy the learner's weights into the network that acts."""
        self.network.load_state_dict(self._learner.weights())
        self.updates += 1
        self.version = self._learner.updates

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that act; not a copy."""
        return self.network.state_dict()


# Decisions are numbered, and frames counted.


class Outcome(NamedTuple):
    """What became of a decision.

    Attributes:
        interval: Frames from its action's effect to the next one's, or to the end of the episode.
        closed: Training frames played when its reward was complete.
        applied: False if the episode ended before its action could land; it then teaches nothing.
    """

    interval: int
    closed: int
    applied: bool


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


class EpisodeClock:
    """Counts episodes and frames from what the environment reports in ``info["realtime"]``.

    An environment without that report is turn-based: one frame per decision and no delay.
    """

    def __init__(self) -> None:
        """Begin at training frame 0, before the first episode."""
        self.frames = 0
        self.train_episodes = 0
        self.eval_episodes = 0
        self._eval_mode = False
        self._begin = 0  # training frames when the episode began
        self._frame = 0  # frames of this episode

    def begin(self, eval_mode: bool, realtime: Mapping[str, Any] | None = None) -> Decision:
        """Begin an episode and return its first decision."""
        self._eval_mode, self._begin, self._frame = eval_mode, self.frames, 0
        if eval_mode:
            self.eval_episodes += 1
        else:
            self.train_episodes += 1
        return self._decision(0 if realtime is None else int(realtime["start"]))

    def advance(self, realtime: Mapping[str, Any] | None = None) -> tuple[Decision, Outcome]:
        """Return the next decision and what became of the last one."""
        outcome = self.end(realtime)
        return self._decision(self._frame if realtime is None else int(realtime["start"])), outcome

    def end(self, realtime: Mapping[str, Any] | None = None) -> Outcome:
        """Return what became of the last decision."""
        self._frame = self._frame + 1 if realtime is None else int(realtime["frame"])
        if not self._eval_mode:
            self.frames = self._begin + self._frame
        if realtime is None:
            return Outcome(interval=1, closed=self.frames, applied=True)
        return Outcome(int(realtime["interval"]), self.frames, bool(realtime["applied"]))

    def state_dict(self) -> dict[str, int]:
        """Return the counts between two episodes."""
        return {"frames": self.frames, "train_episodes": self.train_episodes, "eval_episodes": self.eval_episodes}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore the counts."""
        self.frames = state["frames"]
        self.train_episodes = state["train_episodes"]
        self.eval_episodes = state["eval_episodes"]

    def _decision(self, start: int) -> Decision:
        episode = (self.eval_episodes if self._eval_mode else self.train_episodes) - 1
        frame = self.frames if self._eval_mode else self._begin + start
        return Decision(episode, start, frame, self._eval_mode)
