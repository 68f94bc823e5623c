"""DQN: Atari, CartPole, Acrobot, falling blocks."""
