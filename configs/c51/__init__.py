"""C51: Atari, CartPole, Acrobot."""
