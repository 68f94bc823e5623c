"""DQN: Atari, CartPole, Acrobot."""
