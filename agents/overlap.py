"""Learning beside the game: a thread computes an update while the environment steps on."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from agents.learner import Learner

__all__ = ["Overlap"]


class Overlap:
    """Runs one update at a time in a thread, and keeps a network with the weights of the last one that was joined.

    With an update every four decisions::

        decision          0 1 2 3     4 5 6 7     8 9 10 11     end of the episode
        main thread       start 0     join 0      join 1        join 2
                                      start 1     start 2
        learner's thread  [update 0 ] [update 1 ] [update 2 ]
        acts on weights   first       after 0     after 1       after 2

    So the weights that act are those of one update earlier than without overlap, whatever takes how long: results
    differ from those without, and are the same from run to run. The main thread draws the batch
    at the start and sets its priorities at the join: no other thread touches the replay. Nothing is under way between
    two episodes, where evaluation and checkpoints fall.

    Args:
        learner: Its network, target and optimiser are the thread's while an update is under way.

    Attributes:
        network: What a policy may read at any time.
        updates: How many times the weights were published.
    """

    def __init__(self, learner: Learner) -> None:
        """See the class."""
        self._learner = learner
        self.network = learner.compute.place(copy.deepcopy(learner.network)).requires_grad_(False)
        self.updates = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._update: Future[Mapping[str, Tensor]] | None = None

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

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that act; not a copy."""
        weights: dict[str, Tensor] = self.network.state_dict()
        return weights
