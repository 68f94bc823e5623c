"""IQN: Atari, CartPole, Acrobot."""
