"""JSRL (Uchendu et al., "Jump-start reinforcement learning", ICML 2023), with the roll-out mixture of LOLS.

Chang et al., "Learning to search better than your teacher", ICML 2015, is LOLS: roll in with one policy, roll out with
a mixture of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.acting.exploration import linearly_decaying_epsilon
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.hyperparameters import SHARE, agent, factory, flag, number, whole, with_gin_values
from async_wrappers.agents.teaching.methods.augmentation import Augmented
from async_wrappers.agents.teaching.student import Student
from async_wrappers.policy import Decision


@agent("JSRLAgent")
class JSRL(Augmented, Student, DQN):
    """DQN that explores with a guide, its teacher; ``JSRLAgent`` in gin.

    An episode begins with h decisions of the roll-in, h drawn from 1 .. H, the first one counted. In the roll-in the
    guide acts, or the student; after it the guide acts with a probability that falls to 0, else the student. After each
    iteration H is multiplied by a factor. The guide's transitions are learnt from like any others.
    """

    name: ClassVar[str] = "jsrl_dqn"
    learner_kind: str = "JSRLLearner"
    labelled: ClassVar[bool] = False
    follows_score: bool = False

    roll_in_guide: bool = flag(
        True,
        "Let the guide, the teacher, play the first decisions of an episode (the roll-in); False lets the student.",
    )
    roll_out_guide_prob: float = number(0.0, "Probability that the guide acts after the roll-in, at first.", SHARE)
    roll_out_decay_fn: Callable[[int, int, int, float], float] = factory(
        linearly_decaying_epsilon,
        "Returns the factor of that probability from (decay period, decisions so far, 0, 0.0).",
        "@linearly_decaying_epsilon",
    )
    roll_out_decay_period: int = whole(250_000, "Decisions in which it falls to 0.", 0, "decisions")
    decay_roll_in_steps: float = number(
        0.8, "Factor of the longest roll-in after each iteration; the product is rounded down.", SHARE
    )
    max_roll_in_steps: int = whole(
        1000, "H, the longest roll-in in decisions, in the first iteration; 0 for no roll-in.", 0, "decisions"
    )

    def settle(self) -> None:
        super().settle()
        self.roll_out_decay_fn = with_gin_values(self.roll_out_decay_fn)
        self.teaching.horizon = self.max_roll_in_steps
        # Streams of their own: the student's exploration is what it would be without a guide.
        seeds = np.random.SeedSequence((self.exploration_seed, 1)).generate_state(2)
        self._lengths, self._coins = (DecisionRandom(int(seed)) for seed in seeds)

    def teacher_weight(self) -> float:
        """Return 0: the loss is that of DQN."""
        return 0.0

    def roll_in(self, decision: Decision) -> int:
        """Return h, how many decisions of the decision's episode are its roll-in."""
        horizon = self.teaching.horizon
        if horizon <= 0:
            return 0
        return 1 + int(self._lengths.draw(decision.episode, 0, False, decision.env_id).integers(horizon))

    def guided(self, decision: Decision, number: int) -> bool:
        """Whether the guide acts: in the roll-in if it rolls in, after it with a probability that falls."""
        if number < self.roll_in(decision):
            return self.roll_in_guide
        steps = self.teaching.online_steps - 1  # before this decision
        decay = self.roll_out_decay_fn(self.roll_out_decay_period, steps, 0, 0.0)
        coin = self._coins.draw(decision.episode, decision.start, False, decision.env_id).random()
        return bool(coin < self.roll_out_guide_prob * decay)

    def record_score(self, normalized_score: float) -> None:
        """Shorten the roll-in, whatever the score."""
        self.teaching.horizon = int(self.decay_roll_in_steps * self.teaching.horizon)
