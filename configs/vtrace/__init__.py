"""V-trace: Atari, CartPole, CartPole without velocities."""
