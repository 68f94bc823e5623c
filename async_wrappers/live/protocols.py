"""What the runner asks of a policy, of a learner, and of whatever carries observations to workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from async_wrappers.live.memory.slots import Finished, Ticket

__all__ = ["Decision", "Learner", "Policy", "Ready", "SimulatedTransport", "Transport", "as_act"]


class Decision(NamedTuple):
    """All that a policy may depend on besides the observation and its weights.

    Attributes:
        episode: Number of the episode in the run, from 0.
        start: Frame of the episode whose observation is read.
        frame: Frames lived through when the decision starts, over all episodes.
        eval_mode: True in evaluation.
    """

    episode: int
    start: int
    frame: int
    eval_mode: bool


class Policy(Protocol):
    """A pure function of (observation, weights, decision): an inference that is never applied changes nothing.

    A policy whose weights are learnt also has ``load_weights(weights, version)``: it takes over the mapping of tensors
    without copying them, as they lie in memory that all workers share.
    """

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return an action; where extras are declared, an object with the attributes ``action`` and ``extras``."""
        ...


class Learner(Protocol):
    """Steps weights of its own; the runner shows it transitions and publishes what it has learnt.

    Optional:

    * ``ready``: False while there is too little to learn from.
    * ``load_weights(weights)``: copy weights into what is updated, and into nothing else; for several learners.
    * ``take_over(weights)``: go on from the weights of a learner that died; `load_weights`, if there is no such method.
    * ``gradients()`` and ``apply(gradients)``, whose succession is `update`: for several learners, each of which takes
      gradients on a snapshot of the newest weights and applies them to the weights that are the newest then.
    * ``note_updates(own, of_all)`` and ``updates``, for what falls due by a number of updates, such as the copy of a
      target network. The runner tells how many updates this learner and all learners together have made, those of
      learners that died and of the runs before included: whenever the newest weights of several learners have been
      loaded, and after `take_over`. What fell due since is then to be done, once, with the weights just loaded.
      ``apply`` and ``update`` add one to both numbers; ``updates`` is the learner's own, which it restores.
    * ``save_replay(directory, iteration)``, ``load_replay(directory, iteration)`` and ``forget_replays(directory,
      keep)``: what `state_dict` leaves out. `load_replay` may return how many transitions are lost with damaged files,
      and it raises OSError or ValueError where nothing can be loaded.
    """

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition: observation, action, reward, interval, terminal, truncated, next_observation.

        Where extras are declared it has them, too: a mapping of arrays, what the policy left beside the action.

        Its next observation is the observation of the transition that is shown next, unless it is terminal or
        truncated; that also stands where the next one goes to another learner, or was missed.
        """
        ...

    def update(self) -> Mapping[str, float]:
        """Learn once; return scalars by name."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return the weights that policies load: arrays or tensors by name, in the policy's memory format."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return weights, optimiser and counts: tensors and plain data."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class Ready(NamedTuple):
    """A worker has come up, for the first time or, after it was lost, again."""

    worker: int


class Transport(Protocol):
    """Carries frames to workers and actions back; used by the environment loop alone.

    Each worker is `Ready` once; from then on each ticket is answered by one `Finished`. A worker that has died, with a
    ticket or without, gives a `Finished` of fate LOST (number -1), and may be ready again after that.
    """

    def publish(self, number: int, observation: Any) -> None:
        """Show the newest frame, of which workers must read a copy; numbers go up by one."""
        ...

    def start(self, worker: int, ticket: Ticket) -> None:
        """Let a ready worker infer the frame of a ticket."""
        ...

    def collect(self, until: int) -> list[Ready | Finished]:
        """Return what has happened since the last call; wait for it, until that monotonic time in nanoseconds.

        It returns as soon as there is something to return.
        """
        ...


class SimulatedTransport(Transport, Protocol):
    """Carries frames and actions within this thread, on a clock that stands still until it is moved."""

    def now(self) -> int:
        """Return the time in nanoseconds."""
        ...

    def restart(self, seed: int, now: int) -> None:
        """Begin an episode: its seed starts all latencies anew, and time is `now`."""
        ...

    def end_of(self, worker: int) -> int:
        """Return when the inference that a worker started last will have ended."""
        ...

    def advance(self, until: int) -> None:
        """Let time pass; `collect` returns what has ended by then."""
        ...

    def discard(self) -> list[Finished]:
        """Return what has not been collected, as it will have ended, and forget it."""
        ...


def as_act(policy: Any) -> Callable[[Any, Decision], Any]:
    """Return ``act`` of a policy, or of a plain function of the observation.

    Raises:
        ValueError: `policy` is neither.
    """
    if hasattr(policy, "act"):
        act: Callable[[Any, Decision], Any] = policy.act
        return act
    if callable(policy):
        return lambda observation, decision: policy(observation)
    raise ValueError(f"make_policy must return a policy with act(observation, decision) or a function, got {policy!r}")
