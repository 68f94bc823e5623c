"""DQN (Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015).

* `policy`: epsilon-greedy, a pure function of (observation, weights, decision).
* `learner`: the update, from replay to weights.
* `agent`: both, asked in turn, with Dopamine's interface and parameter names.
"""

from agents.dqn.agent import DQNAgent
from agents.dqn.learner import DQNLearner
from agents.dqn.policy import DQNPolicy

__all__ = ["DQNAgent", "DQNLearner", "DQNPolicy"]
