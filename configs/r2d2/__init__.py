"""R2D2: Atari, CartPole without velocities."""
