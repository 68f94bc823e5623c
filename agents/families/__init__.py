"""The agents, from DQN to PPO: each declares its hyperparameters, its network and its loss in one file."""
