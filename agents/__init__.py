"""Dopamine-style agents in PyTorch: policies, learners, replay and the experiment runner, bound by gin files."""

__version__ = "0.1.0"  # that of async_wrappers, which agents does not import
