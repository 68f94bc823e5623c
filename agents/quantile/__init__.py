"""QR-DQN (Dabney, Rowland, Bellemare, Munos, "Distributional RL with quantile regression", AAAI 2018).

* `policy`: epsilon-greedy on the means of the quantiles.
* `learner`: quantile regression to the target's quantiles.
* `parts`: the hyperparameters, and what they make.
* `agent`: all of it, asked in turn.
"""

from agents.quantile.agent import QuantileAgent
from agents.quantile.learner import QuantileLearner
from agents.quantile.parts import Quantile
from agents.quantile.policy import QuantilePolicy

__all__ = ["Quantile", "QuantileAgent", "QuantileLearner", "QuantilePolicy"]
