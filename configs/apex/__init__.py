"""Ape-X: Atari, CartPole."""
