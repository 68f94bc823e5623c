"""IQN (Dabney, Ostrovski, Silver, Munos, "Implicit quantile networks for distributional RL", ICML 2018).

* `policy`: epsilon-greedy on the means of drawn quantiles.
* `learner`: quantile regression at drawn quantiles.
* `parts`: the hyperparameters, and what they make.
* `agent`: all of it, asked in turn.
"""

from agents.implicit_quantile.agent import ImplicitQuantileAgent
from agents.implicit_quantile.learner import ImplicitQuantileLearner
from agents.implicit_quantile.parts import ImplicitQuantile
from agents.implicit_quantile.policy import ImplicitQuantilePolicy

__all__ = ["ImplicitQuantile", "ImplicitQuantileAgent", "ImplicitQuantileLearner", "ImplicitQuantilePolicy"]
