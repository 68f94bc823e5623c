"""Gymnasium wrappers: the delay itself, for one environment and for a vector, and what a policy may know of it."""
