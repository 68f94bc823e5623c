"""QR-DQN: Atari, CartPole, Acrobot."""
