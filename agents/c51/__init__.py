"""C51 (Bellemare, Dabney, Munos, "A distributional perspective on reinforcement learning", ICML 2017).

* `policy`: epsilon-greedy on the means of the distributions.
* `learner`: the cross-entropy to the projected target.
* `parts`: the hyperparameters, and what they make.
* `agent`: all of it, asked in turn.
"""

from agents.c51.agent import C51Agent
from agents.c51.learner import C51Learner
from agents.c51.parts import C51
from agents.c51.policy import C51Policy

__all__ = ["C51", "C51Agent", "C51Learner", "C51Policy"]
