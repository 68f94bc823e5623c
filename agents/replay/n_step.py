"""Transitions of n decisions: the assembly of their batches, and their first priorities.

Horgan et al., "Distributed prioritized experience replay", 2018, section 3 (Ape-X): an actor has computed the values of
every observation that it acted on, so the error of an n-step transition costs nothing further once its last observation
has been acted on. Without it every transition would enter with the largest priority, and with many environments a
learner would mostly learn from each transition once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from async_wrappers.agents.hyperparameters import again, record, whole
from async_wrappers.agents.losses.loss import Discounting
from async_wrappers.agents.replay.replay_settings import ReplaySettings
from async_wrappers.agents.replay.ring import TERMINAL, Ring
from async_wrappers.agents.replay.selectors import Positions

Floats = npt.NDArray[np.floating]


@record
class NStep(Discounting):
    """Assembles a batch from the columns of a ring; its settings are its only state.

    It gives transitions of n decisions (Sutton 1988) between two stacks of k observations (Mnih et al. 2015). With
    m <= n decisions, fewer than n only at the end of an episode, the transition at decision t has

        reward    R = sum_{i<m} gamma^{c_i} r_{t+i}
        discount  gamma^{c_m}, or 0 if the episode terminated within those m decisions

    so that its target is R + discount * V(o_{t+m}). The exponent c_i counts the decisions, c_i = i, or the frames, the
    sum of the first i intervals.

    With a window of K actions each of the two observations comes with those of the K decisions before it, which are
    read from the ring's column: o_t with a_{t-K} .. a_{t-1}, and o_{t+m} with a_{t+m-K} .. a_{t+m-1}.
    """

    stack_size: int = whole(1, "Observations in a stack, k.", 1, "observation")
    update_horizon: int = again(ReplaySettings, "update_horizon")
    action_window: int | None = whole(
        None, "Actions before each observation that a batch has beside it, K.", 1, "action", none="no window"
    )

    @property
    def reach(self) -> int:
        """Slots up to its own that a transition is read from: the stack's, or those of K actions before it."""
        return max(self.stack_size, 1 + (self.action_window or 0))

    @cached_property
    def _window(self) -> Positions:
        # A batch reads each stack and its next stack in one go; one step apart, they share all but one observation.
        stack = np.arange(1 - self.stack_size, 1)
        return np.append(stack, 1 if self.update_horizon == 1 else stack)

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain data, without a window where there is none."""
        facts: dict[str, Any] = asdict(self)
        return {name: value for name, value in facts.items() if name != "action_window" or value is not None}

    def assemble(self, ring: Ring, positions: Positions, update_horizon: int | None = None) -> dict[str, Any]:
        """Return a batch; see `Replay.sample`."""
        steps = ring.steps.take(positions)
        if update_horizon is not None:
            steps = np.minimum(steps, update_horizon)
        observation, next_observation = self._stacks(ring, positions, steps)
        reward, discount = self._returns(ring, positions, steps)
        batch = {
            "observation": observation,
            "action": ring.action.take(positions, axis=0),
            "reward": reward,
            "discount": discount,
            "next_observation": next_observation,
            "interval": ring.interval.take(positions).astype(np.int64),
            "index": ring.slots_at(positions),
        }
        if self.action_window is not None:
            batch["action_window"], batch["next_action_window"] = self._action_windows(ring, positions, steps)
        if ring.schema.extras:
            batch["extras"] = ring.schema.extras.nest([array.take(positions, axis=0) for array in ring.extras])
        return batch

    def _stacks(self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]) -> tuple[Any, Any]:
        """Return the stacks at `positions` and `steps` later, views of one array, with zeros before an episode."""
        around = positions[:, None] + self._window
        if self.update_horizon > 1:
            around[:, self.stack_size :] += steps[:, None]
        around = ring.reached(around, positions[:, None])
        age = ring.age.take(positions)
        begins = age.min() < self.stack_size - 1
        windows = []
        for array in ring.observation:
            window = array.take(around, axis=0, mode="wrap")
            if begins:
                self._blank(window, age, steps)
            windows.append(window)
        nest = ring.schema.observation.nest
        observation = nest([window[:, : self.stack_size] for window in windows])
        return observation, nest([window[:, -self.stack_size :] for window in windows])

    def _blank(self, window: npt.NDArray[Any], age: npt.NDArray[np.int64], steps: npt.NDArray[np.int32]) -> None:
        """Set the observations before the episode's first to zero."""
        missing = self.stack_size - 1 - age
        for row in np.flatnonzero(missing > 0):
            window[row, : missing[row]] = 0
            if self.update_horizon > 1:
                window[row, self.stack_size : self.stack_size + max(0, missing[row] - steps[row])] = 0

    def _action_windows(
        self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the stored actions `[B, K, ...]` before the observations at `positions` and `steps` later.

        Where there was none, before an episode's first, stands what networks read zeros of (`agents.spaces.actions`).
        """
        before = np.arange(-int(self.action_window or 0), 0)
        age, none = ring.age.take(positions), -1 if ring.schema.action.dtype.kind == "i" else 0
        windows = []
        for later in (np.zeros_like(steps), steps):
            around = ring.reached((positions + later)[:, None] + before, positions[:, None])
            window = ring.action.take(around, axis=0, mode="wrap")
            window[(age + later)[:, None] + before < 0] = none
            windows.append(window)
        return windows[0], windows[1]

    def _returns(
        self, ring: Ring, positions: Positions, steps: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the discounted sums of rewards and the discounts of the bootstrap, summed in double precision."""
        if self.update_horizon == 1 and self.discount_by == "decision":
            terminal = ring.kind.take(positions) == TERMINAL
            return ring.reward.take(positions), np.where(terminal, np.float32(0), np.float32(self.gamma))
        reward = np.zeros(len(positions))
        discount = np.ones(len(positions))
        for step in range(self.update_horizon):
            at, taken = ring.reached(positions + step, positions), steps > step
            reward += np.where(taken, discount * ring.reward.take(at, mode="wrap"), 0.0)
            # Intervals are read only where they count.
            by_frame = self.discount_by == "frame"
            discount *= np.where(taken, self.of(ring.interval.take(at, mode="wrap")) if by_frame else self.gamma, 1.0)
        last = ring.reached(positions + steps - 1, positions)
        terminal = ring.kind.take(last, mode="wrap") == TERMINAL
        discount[terminal] = 0.0
        return reward.astype(np.float32), discount.astype(np.float32)


class ActorPriorities:
    """Computes the priorities of n-step transitions of N environments, decision by decision.

    Decision t of an environment completes the transition that begins n decisions before, whose error is

        R + Gamma max_a Q(o_t, a) - Q(o_{t-n}, a_{t-n})

    with the n-step return R and its discount Gamma (`NStep`), each value with the weights of its decision. Transitions
    that end with their episode have Gamma = 0. The policy computes no value of a truncated episode's last observation,
    so transitions that bootstrap on it get no priority, and enter with the largest one.

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
        discount_by: Literal["decision", "frame"],
    ) -> None:
        self._priority, self._horizon = priority, update_horizon
        self._discounting = Discounting(gamma=gamma, discount_by=discount_by)
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
        """Take the next decision of each of R environments, with its outcome.

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
        for history, newest in ((values, value), (rewards, reward), (discounts, self._discounting.of(interval))):
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
        """Begin an episode: the running one is over, without further transitions."""
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
