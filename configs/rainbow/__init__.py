"""Rainbow (Dopamine's): Atari, CartPole, Acrobot."""
