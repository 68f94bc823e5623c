"""PPO: CartPole, Pendulum (under delay too), Hopper, HalfCheetah."""
