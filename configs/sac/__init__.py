"""SAC: Pendulum (under delay too), Hopper, HalfCheetah, LunarLander."""
