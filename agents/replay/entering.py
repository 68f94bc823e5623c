"""The priorities with which transitions enter a replay, found by the policy that acted (Ape-X).

Horgan et al., "Distributed prioritized experience replay", 2018, section 3: an actor has computed the values of every
observation that it acted on, so the error of an n-step transition costs nothing further once its last observation has
been acted on. Without it every transition would enter with the largest priority, and with many environments a learner
would do little else than look at each once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["ActorPriorities"]

Floats = npt.NDArray[np.floating]


class ActorPriorities:
    """Finds the priorities of n-step transitions of N environments, decision by decision.

    Decision t of an environment completes the transition that begins n decisions before, whose error is

        R + Gamma max_a Q(o_t, a) - Q(o_{t-n}, a_{t-n})

    with the n-step return R and its discount Gamma (`NStep`), each value with the weights of its decision. What ends
    with its episode has Gamma = 0; of a truncated episode's last observation the policy knows no value, so that the
    transitions which bootstrap on it get none, and enter with the largest priority.

    Args:
        num_envs: N.
        priority: From errors [B] to priorities [B].
        update_horizon: n.
        gamma: As in `NStep`.
        discount_by: As in `NStep`.
    """

    def __init__(
        self,
        num_envs: int,
        priority: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
        *,
        update_horizon: int,
        gamma: float,
        discount_by: str,
    ) -> None:
        """See the class."""
        self._priority, self._horizon, self._gamma = priority, update_horizon, gamma
        self._by_frame = discount_by == "frame"
        shape = (num_envs, update_horizon)  # the last n decisions, oldest first
        self._value, self._reward, self._discount = np.zeros(shape), np.zeros(shape), np.ones(shape)
        self._age = np.zeros(num_envs, np.int64)  # decisions of the running episode

    def enter(
        self,
        env_ids: npt.NDArray[np.int64],
        value: Floats,
        max_value: Floats,
        reward: Floats,
        interval: npt.NDArray[np.int64],
        terminal: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.float64], dict[int, npt.NDArray[np.float64]]]:
        """Take the next decision of each of R environments, with what became of it.

        Args:
            env_ids: Distinct, `[R]`.
            value: Q(o_t, a_t), `[R]`.
            max_value: max_a Q(o_t, a), `[R]`.
            reward: `[R]`.
            interval: Frames, `[R]`.
            terminal: `[R]`.
            truncated: `[R]`.

        Returns:
            "priority" and "final_priority" of `Replay.extend`: NaN where there is none.
        """
        values, rewards, discounts = self._value[env_ids], self._reward[env_ids], self._discount[env_ids]
        target = np.asarray(max_value, np.float64)
        for step in reversed(range(self._horizon)):
            target = rewards[:, step] + discounts[:, step] * target
        complete = self._age[env_ids] >= self._horizon
        priority = np.full(len(env_ids), np.nan)
        priority[complete] = self._priority((target - values[:, 0])[complete])
        gamma = self._gamma**interval if self._by_frame else self._gamma
        for history, newest in ((values, value), (rewards, reward), (discounts, gamma)):
            history[:, :-1] = history[:, 1:]
            history[:, -1] = newest
        self._value[env_ids], self._reward[env_ids], self._discount[env_ids] = values, rewards, discounts
        self._age[env_ids] += 1
        tails = {}
        for row in np.flatnonzero(terminal | truncated):
            env_id = int(env_ids[row])
            if terminal[row]:
                tails[env_id] = self._tail(values[row], rewards[row], discounts[row], self._age.item(env_id))
            self._age[env_id] = 0
        return priority, tails

    def forget(self, env_id: int) -> None:
        """Begin an episode: the running one is over, and nothing more is known of it."""
        self._age[env_id] = 0

    def _tail(self, values: Floats, rewards: Floats, discounts: Floats, age: int) -> npt.NDArray[np.float64]:
        """Return the priorities of the transitions of the last 1, 2, .. n decisions of an episode that terminated."""
        errors = np.full(self._horizon, np.nan)
        target = 0.0
        for last in range(1, min(self._horizon, age) + 1):
            target = rewards[-last] + discounts[-last] * target
            errors[last - 1] = target - values[-last]
        known = ~np.isnan(errors)
        errors[known] = self._priority(errors[known])
        return errors
