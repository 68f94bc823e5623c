"""JSRL (Uchendu et al., "Jump-start reinforcement learning", ICML 2023), with the roll-out mixture of LOLS.

Chang et al., "Learning to search better than your teacher", ICML 2015, is LOLS: roll in with one policy, roll out with
a mixture of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gin
import gymnasium as gym
import numpy as np

from async_wrappers.agents.policy import Decision, DecisionRandom, linearly_decaying_epsilon
from async_wrappers.agents.reincarnation.augmentation import Augmented
from async_wrappers.agents.reincarnation.student import Student
from async_wrappers.agents.spec import check_at_least, check_flags, check_numbers, check_shares, with_gin_values
from async_wrappers.agents.value_based.dqn import DQN

__all__ = ["JSRL"]


@gin.configurable("JSRLAgent", module="agents")
class JSRL(Augmented, Student, DQN):
    """DQN that explores with a guide, its teacher; ``JSRLAgent`` in gin.

    An episode begins with h decisions of the roll-in, h drawn from 1 .. H, the first one counted. In the roll-in the
    guide acts, or the student; after it the guide acts with a probability that falls to 0, else the student. After each
    iteration H is multiplied. What the guide does is learnt from like anything else.

    Args:
        observation_space: As in `DQN`.
        action_space: Discrete.
        roll_in_guide: Let the guide roll in; False lets the student.
        roll_out_guide_prob: Probability that the guide acts after the roll-in, at first.
        roll_out_decay_fn: From (decay period, decisions, 0, 0.0) to the factor of that probability.
        roll_out_decay_period: Decisions in which it falls to 0.
        decay_roll_in_steps: What H is multiplied by after an iteration, and rounded down.
        max_roll_in_steps: H at first, decisions; 0 for no roll-in.
        shared: Those of `DQN`, `Student` and `Augmented`: `data_augmentation`.

    Raises:
        ValueError: A space that the agent cannot use, or an argument out of range.
    """

    name: ClassVar[str] = "jsrl_dqn"
    learner_kind: str = "JSRLLearner"
    labelled: ClassVar[bool] = False
    follows_score: bool = False

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        roll_in_guide: bool = True,
        roll_out_guide_prob: float = 0.0,
        roll_out_decay_fn: Callable[[int, int, int, float], float] = linearly_decaying_epsilon,
        roll_out_decay_period: int = 250_000,
        decay_roll_in_steps: float = 0.8,
        max_roll_in_steps: int = 1000,
        **shared: Any,
    ) -> None:
        """See the class."""
        check_flags(roll_in_guide=roll_in_guide)
        check_numbers(roll_out_guide_prob=roll_out_guide_prob, decay_roll_in_steps=decay_roll_in_steps)
        check_shares(roll_out_guide_prob=roll_out_guide_prob, decay_roll_in_steps=decay_roll_in_steps)
        check_at_least("roll_out_decay_period", roll_out_decay_period, 0, "decisions")
        check_at_least("max_roll_in_steps", max_roll_in_steps, 0, "decisions")
        super().__init__(observation_space, action_space, **shared)
        self._roll_in_guide, self._decay_roll_in_steps = roll_in_guide, decay_roll_in_steps
        self._roll_out_guide_prob, self._roll_out_decay_period = roll_out_guide_prob, roll_out_decay_period
        self._roll_out_decay_fn = with_gin_values(roll_out_decay_fn)
        self.teaching.horizon = max_roll_in_steps
        # Streams of their own: the student's exploration is what it would be without a guide.
        seeds = np.random.SeedSequence((self._exploration_seed, 1)).generate_state(2)
        self._lengths, self._coins = (DecisionRandom(int(seed)) for seed in seeds)

    def teacher_weight(self) -> float:
        """Return 0: the loss is that of DQN."""
        return 0.0

    def roll_in(self, decision: Decision) -> int:
        """Return h, how many decisions of the decision's episode are its roll-in."""
        horizon = self.teaching.horizon
        return 1 + int(self._lengths.draw(decision.episode, 0, False).integers(horizon)) if horizon > 0 else 0

    def guided(self, decision: Decision, number: int) -> bool:
        """Whether the guide acts: in the roll-in if it rolls in, after it with a probability that falls."""
        if number < self.roll_in(decision):
            return self._roll_in_guide
        steps = self.teaching.online_steps - 1  # before this decision
        decay = self._roll_out_decay_fn(self._roll_out_decay_period, steps, 0, 0.0)
        coin = self._coins.draw(decision.episode, decision.start, False).random()
        return bool(coin < self._roll_out_guide_prob * decay)

    def record_score(self, normalized_score: float) -> None:
        """Shorten the roll-in, whatever the score."""
        self.teaching.horizon = int(self._decay_roll_in_steps * self.teaching.horizon)
