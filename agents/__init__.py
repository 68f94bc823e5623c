"""Dopamine-style agents in PyTorch: policies, learners, replay and the experiment runner, bound by gin files."""
