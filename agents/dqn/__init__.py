"""DQN (Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015).

* `policy`: epsilon-greedy, a pure function of (observation, weights, decision).
* `learner`: the update, from replay to weights.
* `parts`: the hyperparameters, with Dopamine's names, and what they make: policies, learners.
* `agent`: all of it, asked in turn, with Dopamine's interface.
"""

from agents.dqn.agent import DQNAgent
from agents.dqn.learner import DQNLearner
from agents.dqn.parts import DQN
from agents.dqn.policy import DQNPolicy

__all__ = ["DQN", "DQNAgent", "DQNLearner", "DQNPolicy"]
