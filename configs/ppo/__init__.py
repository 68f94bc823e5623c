"""SAC: Pendulum, HalfCheetah."""
