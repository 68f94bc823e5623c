"""The interface of policies: their inputs and answers.

A policy without memory has `act` (`Policy`). One with memory, a recurrent network or one that reads the previous action
and reward, is in two halves (`SplitPolicy`), because staggered workers start decision j before decision j - 1 has
ended, when its state is not known yet::

    encode    the slow half, in a worker: features of the observation o_{s_j}, and of nothing else
    release   the light half, in the environment loop, on the frame e_j on which the action is due, in the order of
              starts:

              action_j, h_j = release(features_j, (a_{j-1}, r_{j-1}, h_{j-1}))

A *fast path* is a part of the light half that reads the newest observation too, o_{e_j}, or one that is `fast_age`
frames older; the policy declares it by that attribute, and finds the observation in ``memory.fresh``.

a_{j-1} and h_{j-1} are those of the decision applied last: a dropped one is never released, so it leaves no trace. The
chain of states is then that of the decisions which took effect, for any number of workers and any latencies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class NoAction(RuntimeError):
    """Raised by ``act`` or ``encode``: there is no action this time, such as while a policy's server is away.

    A live run goes on: the inference counts as refused (``report.refused``), a warning has the text of the first one,
    and the frame receives the default action. If a hundred inferences have given no action and none has given one, the
    run ends. Any other exception ends the worker, which is started again.
    """


class Decision(NamedTuple):
    """All that a policy may depend on besides the observation and its weights.

    Attributes:
        episode: Number of the episode in the run, from 0; turn-based agents count training and evaluation apart.
        start: Frame of the episode whose observation is read.
        frame: Frames played before the decision starts, over all episodes; turn-based agents count those of training
            alone. Exploration schedules use it.
        eval_mode: True in evaluation.
        env_id: Number of the environment among those that are played side by side; a runner has one.
    """

    episode: int
    start: int
    frame: int
    eval_mode: bool
    env_id: int = 0


class Policy(Protocol):
    """A pure function of (observation, weights, decision): an inference that is never applied changes nothing.

    A policy whose weights are learnt also has ``load_weights(weights, version)``: it takes over the mapping of tensors
    without copying them, as they lie in memory that all workers share. It may have ``note_updates(updates)``, called
    afterwards with the number of updates that all learners had made when these weights were published. Not every update
    is published, so there are more updates than versions.
    """

    def act(self, observation: Any, decision: Decision) -> Any:
        """Return an action; where extras are declared, an object with the attributes ``action`` and ``extras``.

        Raises:
            NoAction: There is none this time; the frame receives the default action.
        """
        ...


class Memory(NamedTuple):
    """What a policy with memory reads of the decision that was applied before, in the same episode.

    Attributes:
        previous_action: The environment's action of that decision; None for an episode's first.
        previous_reward: Sum of the rewards over its frames, from its effect to the one before this decision's
            effect. Rewards before an episode's first decision took effect belong to that one. 0 for the first.
        first: Whether this is the first decision of its episode to take effect.
        state: The state that its `SplitPolicy.release` returned; None for the first.
        fresh: For a policy with a fast path: the observation of the frame on which this decision takes effect, or
            `fast_age` frames before it; the episode's first one where there is no such frame. It may not be changed.
    """

    previous_action: Any
    previous_reward: float
    first: bool
    state: Any
    fresh: Any = None


class SplitPolicy(Protocol):
    """A policy with memory: workers encode, the environment loop releases. Both halves are pure functions.

    Workers and the loop each make one with ``make_policy``. One whose weights are learnt has ``load_weights``, as in
    `Policy`; each half reads the newest weights at the time of its call. One with a fast path has the attribute
    `fast_age`, a number of frames >= 0; without it, or with None, ``memory.fresh`` is None.
    """

    def encode(self, observation: Any, decision: Decision) -> Any:
        """Return the features of an observation, an element of the space that is declared for them.

        Raises:
            NoAction: There are none this time; the frame receives the default action.
        """
        ...

    def release(self, features: Any, memory: Memory, decision: Decision) -> Any:
        """Return an object with the attributes ``action``, ``state`` and, where they are declared, ``extras``.

        The state is given to the episode's next decision as it is; neither `features` nor `memory` may be changed.
        """
        ...


def as_act(policy: Any, splits: bool = False) -> Callable[[Any, Decision], Any]:
    """Return the function that a worker calls: ``act`` of a policy, or made of a function of the observation.

    Args:
        policy: The result of ``make_policy``.
        splits: Whether the policy's features are declared; then it is ``encode`` of a `SplitPolicy`.

    Raises:
        ValueError: `policy` is none of these.
    """
    is_split = hasattr(policy, "encode") and hasattr(policy, "release")
    if splits:
        if not is_split:
            raise ValueError(
                "make_policy must return a policy with encode(observation, decision) and release(features, memory, "
                f"decision) where features are declared, got {policy!r}"
            )
        encode: Callable[[Any, Decision], Any] = policy.encode
        return encode
    if hasattr(policy, "act"):
        act: Callable[[Any, Decision], Any] = policy.act
        return act
    if is_split:
        raise ValueError(
            "features must be declared for a policy with encode and release, as in AsyncRunner(features=Box(...)), "
            f"got None for {policy!r}"
        )
    if callable(policy):
        return lambda observation, decision: policy(observation)
    raise ValueError(f"make_policy must return a policy with act(observation, decision) or a function, got {policy!r}")
