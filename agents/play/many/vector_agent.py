"""Agents of many environments: one forward pass for all rows that wait, one replay with a lane for each environment.

The order of a round on the rows of R <= N environments::

    observe      close the last decision of each row, and store what is known by now
    update       as many times as R decisions require
    act          on all rows, on the weights that the updates left

which for N = 1 is the order of `turn_based.TurnBasedAgent`. Espeholt et al., "SEED RL: scalable and efficient deep-RL
with accelerated central inference", 2020, act in this way; Horgan et al., "Distributed prioritized experience replay"
(Ape-X), 2018, learn in it, with an epsilon of its own for each environment (`per_actor_epsilon`).

`agents.play.actor` has the half that acts, and here is the one that learns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from async_wrappers import checks
from async_wrappers.agents.acting.policy_copies import PolicyCopies
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import make_vector_learner
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.play.actor import Actor, Ended, ShownRows
from async_wrappers.agents.play.learning_agent import LearningAgent
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import Meters


class VectorAgent(LearningAgent):
    """Acts on many environments at once, and learns.

    As `TurnBasedAgent` it learns from a transition only when a decision of the same environment starts at or after the
    frame on which the transition was complete.

    Args:
        spec: Makes the policy and the learner; see `Spec.make_vector_learner`.
        num_envs: N.
        replay_ratio: Transitions learnt from per decision made; None for `Spec.num_updates_per_train_step` updates
            every `Spec.update_every` decisions of all environments together.
        act_devices: Devices with a copy of the policy each, among which the rows of a call are shared; None acts on the
            learner's network. rela, Facebook's Ape-X, has them as ``act_device``.
        act_sync_period: Updates after which the copies take over the learner's weights.
        number: Which of the learners of a run this one is; each plays `num_envs` environments.
        learners: How many there are.

    Attributes:
        spec: As given.
        num_envs: As given.
        learner: Whose weights the policy reads.
        policy: What acts.
        rows: The running episodes of training.
        meters: Counts since the last report; its reader replaces it by a new one.
        times: How long the parts of training take.

    Raises:
        ValueError: The agent plays one environment at a time, an argument is out of range, a device is not there,
            `replay_ratio` is given to an agent that learns from each step once, or the agent's learner cannot be one of
            several.
    """

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        replay_ratio: float | None = None,
        act_devices: Sequence[str] | None = None,
        act_sync_period: int = 1,
        number: int = 0,
        learners: int = 1,
    ) -> None:
        if replay_ratio is not None and not 0 < replay_ratio < math.inf:
            raise ValueError(f"replay_ratio must be > 0 transitions learnt per transition played, got {replay_ratio}")
        often = "once" if spec.replay_coefficient == 1 else f"{spec.replay_coefficient} times"
        there = {"learning once": spec.learns_once, "several updates": spec.num_updates_per_train_step != 1}
        refuse(there, {**spec.needs, "VectorRunner.replay_ratio": replay_ratio}, agent=spec.name, often=often)
        super().__init__(spec, make_vector_learner(spec, num_envs, number, learners), number, learners)
        self.num_envs, self._ratio = num_envs, replay_ratio
        self._update_every, self._per_update = spec.update_every, spec.transitions_per_update
        self._number, self._learners = number, learners
        self._copies = _copies(spec, self.learner, num_envs * learners, act_devices, act_sync_period)
        self._sync_period = act_sync_period
        self._begun = self._copied = 0  # updates in this process, and those whose weights the copies have
        if self._copies is not None:
            self.policy = self._copies
        self._act_on(self.learner)
        guide = None if self.lessons is None else self.lessons.guide
        self._actor = Actor(spec, num_envs, self, number * num_envs, learners, guide)
        self.rows = self._actor.rows
        self.meters = Meters()
        self.set_time(0.0)
        self._decisions = self._settled = 0  # updates due so far that were made or dropped
        self._begun_at = 0  # decisions before the last update
        self._noted = 0  # decisions that the lessons have counted

    # A round.

    def observe(self, shown: ShownRows) -> list[Ended]:
        """Learn what became of the last decision of each row; return the episodes that are over."""
        if self.spec.chunk_mean is not None:
            self.spec.check_chunks()
        if self.lessons is not None:
            self.lessons.check()
        begin = time.perf_counter()
        ended = self._actor.observe(shown)
        self.times.seconds["Store"] += time.perf_counter() - begin
        return self.stamped(ended, self._frames()) if ended else ended

    def stamped(self, ended: Sequence[Ended], frames: int) -> list[Ended]:
        """Return episodes with the frames of training and the updates at which they were over, which is now."""
        now = time.monotonic() - self._origin
        return [each._replace(training_frames=frames, updates=self.updates, when=now) for each in ended]

    def set_time(self, seconds: float) -> None:
        """Note how many seconds the run has taken until now."""
        self._origin = time.monotonic() - seconds

    def act(self, shown: ShownRows) -> npt.NDArray[Any]:
        """Make the updates that are due, and return an action for each row."""
        while self.owes_update(len(shown.env_ids)):
            self.update()
        return self.decide(shown)

    def owes_update(self, decisions: int) -> bool:
        """Return whether an update is due before this number of further decisions."""
        if self.lessons is not None:
            if self.lessons.collects:
                return False
            self._note(self.lessons, self._decisions + decisions)
        # The learner of a queue is ready only while a batch waits there.
        owed = self._owed(self._decisions + decisions) > self._settled
        return owed and self.learner.ready and not self._too_early()

    def _note(self, lessons: Any, decisions: int) -> None:
        """Let the lessons count the decisions up to a number of them."""
        if decisions > self._noted:
            lessons.note_decisions((decisions - self._noted) * self._learners)
            self._noted = decisions

    def update(self) -> None:
        """Make an update, or begin one in parallel with the environments."""
        if self._overlap is None:
            self.write_scalars(self.learner.update())
        else:
            self.finish_update()
            self._overlap.start()
        self._settled += 1
        self._begun += 1
        self._begun_at = self._decisions
        self.meters.updates += 1
        self.meters.sampled += self._per_update // self._learners

    def decide(self, shown: ShownRows) -> npt.NDArray[Any]:
        """Return an action for each row; updates that are due and could not be made are dropped."""
        behind = under_way = int(self._overlap is not None and self._overlap.under_way)
        if self._copies is not None:
            if self._begun - under_way - self._copied >= self._sync_period:
                self.copy_weights()
            behind = self._begun - self._copied
        self.count(len(shown.env_ids), behind)
        begin = time.perf_counter()
        action = self.rows.decide(shown, self.policy)
        self.times.seconds["Act"] += time.perf_counter() - begin
        return action

    def count(self, decisions: int, behind: int) -> None:
        """Count decisions, made by weights that are a number of updates behind; what is due until then is settled.

        Nothing is due for those of a teacher that collects.
        """
        if self.lessons is not None:
            if self.lessons.collects:
                self.meters.acted += decisions
                return
            self._note(self.lessons, self._decisions + decisions)
        self._decisions += decisions
        self._settled = self._owed(self._decisions)
        self.meters.lag += behind * decisions
        self.meters.acted += decisions

    def cut_running(self) -> int:
        """Cut the running episodes, whose environments are gone, as a resumed run does; return their frames."""
        running, state = self.rows.running(), self.rows.state_dict()
        if not running:
            return 0
        self.finish_update()
        self._actor.forget_closed()
        if isinstance(self.learner, Learner):
            self.learner.end_running()
        if self.lessons is not None:
            self.lessons.end_running()
        for env_id, last in running.items():
            self._actor.forget(env_id)
            if not isinstance(self.learner, Learner):
                self.learner.cut(last, env_id)
        self.rows.load_state_dict(state)
        return sum(state["cut"])

    def end_running(self, env_ids: npt.NDArray[np.int64]) -> int:
        """Cut the running episodes of some environments, which are gone; return their frames."""
        self.finish_update()
        self.learner.end_running(env_ids)
        if self.lessons is not None:
            self.lessons.end_running(env_ids)
        return self.rows.end(env_ids)

    def copy_weights(self) -> None:
        """Copy the weights of the last complete update to the copies of the policy, if there are any."""
        if self._copies is None:
            return
        under_way = self._overlap is not None and self._overlap.under_way
        self._copied = self._begun - under_way
        self._copies.load_weights((self._overlap or self.learner).weights(), self._copied)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Let the learner observe transitions of several environments; see `Receiver`."""
        (self.lessons or self.learner).extend(block)
        self.meters.added += len(block["env_ids"])

    def cut(self, observation: Any, env_id: int) -> None:
        """Let the learner observe that an episode was cut; see `Receiver`."""
        (self.lessons or self.learner).cut(observation, env_id)

    def _too_early(self) -> bool:
        """Whether to hold back the next batch of a queue, so that parallel updates are spread over time.

        Environments that run in step complete the sequences of several batches in one round. Begun there, each update
        would have to wait for the one before; so the next one begins three quarters of an update's decisions later, or
        as soon as the queue fills up.
        """
        if self._overlap is None or not self.spec.learns_once:
            return False
        of_update = self._per_update / self.spec.replay_coefficient
        spread = self._decisions - self._begun_at < 0.75 * of_update
        return spread and not getattr(self.learner.replay, "crowded", True)

    def _owed(self, decisions: int) -> int:
        """Return the number of updates due up to a decision: the first on decision 0, as in turn-based play."""
        decisions *= self._learners
        if self._ratio is None:
            return -(-decisions // self._update_every) * self.spec.num_updates_per_train_step
        return math.ceil(decisions * self._ratio / self._per_update)

    # For the runner and checkpoints.

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share to continue one another; see `Spec.identity`."""
        several = {"learners": self._learners} if self._learners > 1 else {}
        return {**self.spec.identity(self.learner), "environments": self.num_envs * self._learners, **several}

    def bundle_and_checkpoint(self, checkpoint_dir: Path, iteration: int) -> dict[str, Any]:
        """Return all state; the replay goes into files of its own in `checkpoint_dir`.

        The running episodes continue here. A run that resumes from the files begins new ones, without the last decision
        of each and the transitions that were not yet stored.
        """
        self.finish_update()
        self.learner.save_replay(_of_replay(checkpoint_dir, self._number), iteration)
        return {
            "learner": self.learner.state_dict(),
            "rows": self.rows.state_dict(),
            "decisions": self._decisions,
            "begun_at": self._begun_at,
            "settled": self._settled,
            **({} if self.lessons is None else self.lessons.save(checkpoint_dir, iteration) | {"noted": self._noted}),
        }

    def unbundle(self, checkpoint_dir: Path, iteration: int, bundle: Mapping[str, Any]) -> None:
        """Restore what `bundle_and_checkpoint` returned and wrote; see `TurnBasedAgent.unbundle`."""
        self.finish_update()
        self.learner.check_state(bundle["learner"])
        for number in range(1, self._learners) if self._number == 0 else ():  # the first looks for those of the others
            self.learner.check_replay(_of_replay(checkpoint_dir, number), iteration)
        self.learner.load_replay(_of_replay(checkpoint_dir, self._number), iteration)
        self.learner.load_state_dict(bundle["learner"])
        self.rows.load_state_dict(bundle["rows"])
        self._decisions = bundle["decisions"]
        self._begun_at = bundle["begun_at"]
        self._settled = bundle["settled"]
        if self.lessons is not None:
            self._noted = bundle["noted"]
            self.lessons.load(checkpoint_dir, iteration, bundle)
        self.publish()

    def forget_checkpoints(self, checkpoint_dir: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        for number in range(self._learners):
            self.learner.forget_replays(_of_replay(checkpoint_dir, number), keep)
        if self.lessons is not None:
            self.lessons.forget(checkpoint_dir, keep)

    def publish(self) -> None:
        """Let the policy, and its copies, act on the learner's weights as they are now."""
        super().publish()
        self.copy_weights()

    def _act_on(self, learner: Any) -> None:
        if self._copies is None:
            self.policy = self.spec.make_vector_policy(learner, self.num_envs * self._learners)

    def _frames(self) -> int:
        return self.rows.frames_of_all * self._learners


def _of_replay(checkpoint_dir: Path, number: int) -> Path:
    """Return where learner `number` keeps its replay."""
    return checkpoint_dir / (f"replay_{number}" if number else "replay")


def _copies(
    spec: Spec, learner: Any, num_envs: int, devices: Sequence[str] | None, sync_period: int
) -> PolicyCopies | None:
    """Make the copies of the policy that act on devices; None where none are wanted."""
    checks.whole("act_sync_period", sync_period, 1, unit="updates")
    if devices is None:
        refuse("no devices that act", {"act_sync_period": sync_period})
        return None
    if isinstance(devices, str) or not devices or not all(isinstance(device, str) for device in devices):
        raise ValueError(f"act_devices must be devices such as ('cuda:1', 'cuda:2'), or None, got {devices!r}")
    try:
        copies = [spec.make_device_policy(learner, num_envs, device) for device in devices]
    except ValueError as error:
        raise ValueError(f"act_devices={tuple(devices)!r}: {error}") from None
    remembers = any(getattr(policy, "remembers", False) for policy in copies)
    refuse({"memory": remembers}, {"act_devices": devices}, agent=spec.name)
    return PolicyCopies(copies)
