"""Rainbow with all six parts: Atari, CartPole, Acrobot."""
