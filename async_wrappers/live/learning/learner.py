"""What the runner asks of a learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["Learner"]


class Learner(Protocol):
    """Steps weights of its own; the runner shows it transitions and publishes what it has learnt.

    Optional:

    * ``ready``: False while there is too little to learn from.
    * ``load_weights(weights)``: copy weights into what is updated, and into nothing else; for several learners.
    * ``take_over(weights)``: go on from the weights of a learner that died; `load_weights`, if there is no such method.
    * ``gradients()`` and ``apply(gradients)``, whose succession is `update`: for several learners, each of which takes
      gradients on a snapshot of the newest weights and applies them to the weights that are the newest then.
    * ``note_updates(own, of_all)`` and ``updates``, for what falls due by a number of updates, such as the copy of a
      target network. The runner passes how many updates this learner and all learners together have made, those of
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

        Its next observation is the observation of the transition that comes next, unless it is terminal or truncated.
        A transition whose successor was missed is marked truncated, too.
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
