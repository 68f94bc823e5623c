"""IMPACT: CartPole."""
