"""V-trace: Atari, CartPole, CartPole without velocities, CartPole on hosts."""
