"""The interface of batched environments: `BatchedEnvs`, and `Shown`, the rows that one call returns.

Gymnasium's vectors end an episode in three ways (``AutoresetMode``), delayed vectors have rows whose action counts for
nothing, and vectors that work ahead answer for some of their environments at a time. Here all of them have one form: a
row is shown when its environment needs a decision, and never otherwise. The row of an episode's first decision also
shows how the episode before it ended, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class Shown(NamedTuple):
    """The rows of R of N environments, each of which needs a decision. The caller may keep and change the arrays.

    A row with neither ``terminal`` nor ``truncated`` and without ``first`` is the result of the action that was sent
    for it. A row of an ended episode shows two things at once: how the old episode ended (``reward``, ``terminal``,
    ``truncated``, ``final``, ``info``) and where the next one begins (``observation``, ``first``).

    Only ``env_ids`` may be read-only.

    Attributes:
        env_ids: int64 [R], ascending: each environment's number, which never changes.
        observation: [R, *shape], or a dict or tuple of such arrays: the input of the next decision.
        reward: float32 [R], since the row was last shown, 0 after ``begin``. It belongs to the episode of the action
            that was sent, also where that one has ended.
        first: bool [R], the observation is an episode's first one.
        terminal: bool [R], the episode of the action that was sent has terminated.
        truncated: bool [R], it was truncated, or cut.
        final: The last observation of each episode that has ended, by environment: the one to bootstrap on. Under
            delay it is the one that the next decision would have read.
        info: The last info of each of these episodes, by environment, as a single environment gives it.
            ``info[env_id]["realtime"]`` has ``frame``, how many frames the episode had, and ``start``, the frame of the
            final observation, with delay or without. ``info[env_id]["lost"]`` is True where the episode was cut because
            its environment was lost, with a process or a host.
        realtime: Arrays [R], as `RealtimeDelay` gives them. ``start``: frame of the observation in its episode.
            ``frame``: frames of that episode played so far. ``interval``: frames from the effect of the action that was
            sent to the next one's effect, or to the end of its episode; 1 without delay, 0 if it was not applied.
            ``applied``: the action that was sent took effect; False if its episode ended before it could, and on the
            rows after ``begin``. ``unreported_episodes``, ``unreported_reward``: episodes that began and ended since
            the row was last shown without any decision, and rewards that belong to no decision (under delay; else 0).
            Where actions are chunks, once one has been applied, ``executed``, bool [R, H]: which entries of the chunk
            that was sent were applied. Where an environment has reported that another action was sent than the
            caller's (`LimitAction`), ``sent``, [R, ...], and ``_sent``, bool [R], which tells whose.
    """

    env_ids: NDArray[np.int64]
    observation: Any
    reward: NDArray[np.float32]
    first: NDArray[np.bool_]
    terminal: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final: Mapping[int, Any]
    info: Mapping[int, Mapping[str, Any]]
    realtime: Mapping[str, NDArray[Any]]


@runtime_checkable
class BatchedEnvs(Protocol):
    """N environments, played by turns of `recv` and `send`.

    An environment is seeded by `begin` alone: later episodes continue with its generator, so that a row is a function
    of its seed and of the actions sent for it. (A vector with one generator for all is a function of all seeds and
    actions.)

    One whose wrappers have statistics (`async_wrappers.wrapper_statistics`) also has ``statistics()``, which returns
    those of each environment, and ``load_statistics(statistics, frozen=False)``, called before `begin`.

    Attributes:
        num_envs: N.
        observation_space: Of a single environment.
        action_space: Of a single environment.
    """

    num_envs: int
    observation_space: Any
    action_space: Any

    def begin(self, seeds: Sequence[int]) -> None:
        """Begin an episode in each environment; those that are running are dropped (`cut` shows them).

        The rows that the next calls of `recv` return have ``first`` and reward 0; neither ``terminal`` nor
        ``truncated``.

        Args:
            seeds: One for each environment, whole numbers from 0 to 2**31 - 1.
        """

    def recv(self) -> Shown:
        """Wait for rows that need a decision and return them: R >= 1 of them, each of which must be answered by `send`.

        Raises:
            RuntimeError: No episodes are running, rows were not answered, or an environment in another process has
                raised an exception. One in this process passes through.
        """

    def send(self, env_ids: NDArray[np.int64], actions: Any) -> None:
        """Answer the rows of the last `recv`.

        Args:
            env_ids: int64 [R], those of the rows, in the same order.
            actions: [R, ...], a batch of the action space.

        Raises:
            ValueError: Other environments than those that were shown, or not one action for each.
        """

    def cut(self) -> Shown:
        """End all episodes now and return the last row of each environment: R = N. `begin` must follow.

        What was sent and not yet shown is played to its end first. Each row has ``terminal`` or ``truncated``, a
        ``final`` observation, which is also its ``observation``, and ``first`` False, as no episode begins. A row that
        was shown and not answered has reward 0, ``applied`` False, and as final observation the one that was shown:
        nothing has happened since. What delayed environments carried for later is lost, and counted in
        ``realtime["unreported_reward"]``. So the rewards of all rows and the unreported ones add up to the
        environments' rewards.

        A runner whose resumed runs are to be exact cuts where it writes a checkpoint, in an uninterrupted run too: N
        environments are never all between two episodes, and after `begin` both runs are the same.
        """

    def close(self) -> None:
        """Close all environments; it may be called twice."""
