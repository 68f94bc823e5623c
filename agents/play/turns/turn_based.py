"""Turn-based agents: a policy and a learner with Dopamine's interface, under any delay.

The order of a training step under delay, of decision j that starts on frame s_j::

    observe      transitions whose rewards were complete at s_j   (what a real agent could have learnt from by then)
    update       every `update_period` decisions, `num_updates_per_train_step` times
    act          decision j, on the weights that the update left

At the end of an episode nothing is in flight, so everything that is complete is observed.

`Overlap` computes an update in parallel with the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from async_wrappers.agents.acting.frames_read import LANDED, FramesRead, show_effects
from async_wrappers.agents.learning.making import maker_of_learners
from async_wrappers.agents.play.actor import Actor, RunningEpisodes, ShownRows
from async_wrappers.agents.play.learning_agent import LearningAgent
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.spaces.schema import EFFECT, batch_of_one, copied, each_array
from async_wrappers.agents.spec import Spec


class TurnBasedAgent(LearningAgent):
    """An agent of one environment, which acts and learns in turn.

    The agent learns from a transition only when the decision being made starts at or after the frame on which the
    transition was complete. So under delay it uses only what is known when inference begins.

    ``realtime`` is the environment's ``info["realtime"]`` of the reset or step that returned the observation, or None
    from an environment that waits for the agent.

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
        super().__init__(spec, maker_of_learners(spec)())
        self._act_on(self.learner)
        self.eval_mode = False
        self.training_steps = self._demonstrated = 0
        self._update_every = spec.update_every
        guide = None if self.lessons is None else self.lessons.guide
        self._actor = Actor(spec, 1, self, guide=guide, in_turn=True)
        self._evaluation = RunningEpisodes(spec, 1, eval_mode=True, in_turn=True)
        past = FramesRead.of(spec, trains=True)
        past = past if guide is None else replace(past, label_at="effect")  # where the environment reports it
        # None where nothing but the start is read.
        in_evaluation = FramesRead.of(spec, trains=False)
        self._past = past if past.parts else None
        self._past_in_evaluation = in_evaluation if in_evaluation.parts else None
        self._of_box = isinstance(spec.action_space, Box)
        self._start: Any = None  # the newest observation
        self._following: Any = None  # of the transition that was passed on last, in a running episode

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
        return int(self._evaluation.episode[0]) + 1

    def go_on_from(self, episode: int) -> None:
        """Let the next evaluation episode be that of a number, on which its draws depend."""
        self._evaluation.episode[0] = episode - 1

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the first action of an episode."""
        if not self.eval_mode:
            if self.spec.chunk_mean is not None:
                self.spec.check_chunks()
            if self.lessons is not None:
                self.lessons.check()
            self._actor.rows.end(_NONE)  # an episode that nobody has ended
            self._actor.forget_closed()
            self._following = None
        self._evaluation.training_frames = self._frames()
        return self._decide(self._shown(0.0, observation, realtime, first=True))

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any] | None = None) -> Any:
        """Return the next action; `reward` is the last decision's."""
        return self._decide(self._shown(reward, observation, realtime))

    def end_episode(
        self,
        reward: float,
        terminal: bool = True,
        observation: Any = None,
        realtime: Mapping[str, Any] | None = None,
    ) -> None:
        """End the episode.

        Args:
            reward: The last decision's.
            terminal: True if the environment ended; False if the episode was cut, and may be bootstrapped.
            observation: What the environment returned last; needed where `terminal` is False.
            realtime: See the class.

        Raises:
            ValueError: The episode was cut, and its last observation is missing.
        """
        if not terminal and observation is None:
            raise ValueError("observation must be given where terminal=False, to bootstrap on, got None")
        last = self.spec.blank() if observation is None else observation
        shown = self._shown(reward, last, realtime, ends=True, terminal=terminal)
        if self.eval_mode:
            self._evaluation.note(shown)
        else:
            self._observe(shown)
        self.finish_update()

    def _shown(
        self,
        reward: float,
        observation: Any,
        realtime: Mapping[str, Any] | None,
        *,
        first: bool = False,
        ends: bool = False,
        terminal: bool = False,
    ) -> ShownRows:
        """Return what the environment shows as the row of the only one of many."""
        following = np.array(observation) if type(observation) is np.ndarray else self._copied(observation)
        past, shown = self._past_in_evaluation if self.eval_mode else self._past, following
        if past is not None:
            shown = past.show(following, realtime, None if first else self._start)
            shown |= {name: self._copied(shown[name]) for name in (LANDED, EFFECT) if name in shown}
        self._start = following
        rows = self._evaluation if self.eval_mode else self._actor.rows
        frame = 0 if first else rows.frame.item(0) + 1 if realtime is None else int(realtime["frame"])
        start, interval = (frame, 1) if realtime is None else (realtime["start"], 1 if first else realtime["interval"])
        numbers = np.array([start, frame, interval])
        times: dict[str, npt.NDArray[Any]] = {
            "start": numbers[:1],
            "frame": numbers[1:2],
            "interval": numbers[2:],
            "applied": _NO if first else _YES if realtime is None or realtime["applied"] else _NO,
            "unreported_episodes": _NONE,
        }
        if realtime is not None and "executed" in realtime:
            times["executed"] = np.asarray(realtime["executed"])[None]
        if realtime is not None and "sent" in realtime:
            times |= {"sent": np.asarray(realtime["sent"])[None], "_sent": _YES}
        return ShownRows(
            env_ids=_NONE,
            observation=shown[None] if type(shown) is np.ndarray else batch_of_one(shown),
            reward=np.array([reward]),
            first=_YES if first else _NO,
            terminal=_YES if ends and terminal else _NO,
            truncated=_YES if ends and not terminal else _NO,
            final={0: shown} if ends else {},
            info={0: {"realtime": {"frame": frame}}} if ends else {},
            realtime=times,
        )

    def _copied(self, observation: Any) -> Any:
        """Return an observation as the policy takes it, in arrays that the environment does not reuse."""
        return copied(self.spec.without_tuples(observation))

    def _observe(self, shown: ShownRows) -> None:
        """Close the last decision, and pass on the transitions that are known."""
        begin = perf_counter()
        self._actor.observe(shown)
        self.times.seconds["Store"] += perf_counter() - begin

    def _decide(self, shown: ShownRows) -> Any:
        rows = self._evaluation if self.eval_mode else self._actor.rows
        if self.eval_mode:
            rows.note(shown)
        else:
            self._observe(shown)
            self._train_step()
        begin = perf_counter()
        action = rows.decide(shown, self.policy)
        self.times.seconds["Act"] += perf_counter() - begin
        # As the environment takes it; one of a Box of shape () in its dtype.
        return np.array(action[0]) if self._of_box or action.ndim > 1 else action.item()

    # Transitions of the only environment, as `Actor` passes them on.

    def extend(self, block: Mapping[str, Any]) -> None:
        """Let the learner observe a transition."""
        following, ended = block["next_observation"], block["terminal"].item(0) or block["truncated"].item(0)
        action = block["action"]
        transition = {
            # The same object as the next observation before it, so that a learner sees that the two are one.
            "observation": each_array(_only, block["observation"]) if self._following is None else self._following,
            "action": np.array(action[0]) if self._of_box or action.ndim > 1 else action.item(),
            "reward": block["reward"].item(0),
            "interval": block["interval"].item(0),
            "terminal": block["terminal"].item(0),
            "truncated": block["truncated"].item(0),
            "next_observation": following,
        }
        for name in ("extras", "executed"):
            if name in block:
                transition[name] = each_array(_only, block[name])
        self._following = None if ended else following
        store = self.learner if self.lessons is None else self.lessons
        store.observe(transition)

    def cut(self, observation: Any, env_id: int) -> None:
        """Store nothing of an episode that ended before an action took effect."""
        self._following = None

    def _train_step(self) -> None:
        if self.lessons is not None:
            if self.lessons.collects:
                return
            self.lessons.note_decisions(1)
        if self.training_steps % self._update_every == 0 and self.learner.ready:
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

    def _turns(self) -> dict[str, int]:
        """Return the counts between two episodes."""
        train, evaluation = (rows.episode.item(0) + 1 for rows in (self._actor.rows, self._evaluation))
        return {"frames": self._frames(), "train_episodes": train, "eval_episodes": evaluation}

    def state(self) -> dict[str, Any]:
        """Return the whole state, with the replay, as tensors, arrays and plain data."""
        self.finish_update()
        replay = getattr(self.learner, "replay", None)
        return {
            "learner": self.learner.state_dict(),
            "replay": replay.state_dict() if isinstance(replay, Replay) else None,
            "clock": self._turns(),
            "training_steps": self.training_steps,
        }

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state between two episodes; the replay goes into files of its own in `checkpoint_dir`."""
        self.finish_update()
        self.learner.save_replay(checkpoint_dir / "replay", iteration)
        return {
            "learner": self.learner.state_dict(),
            "turns": self._turns(),
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
        turns = bundle["turns"]
        self._actor.rows.load_state_dict({"episodes": [turns["train_episodes"]], "frames": [turns["frames"]]})
        self._evaluation.load_state_dict({"episodes": [turns["eval_episodes"]], "frames": [0]})
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
        return self._actor.rows.frames_of_all

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


_NONE, _NO, _YES = np.zeros(1, np.int64), np.zeros(1, bool), np.ones(1, bool)


def _only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy of the only row."""
    return np.array(array[0])


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
