"""Gymnasium wrappers: the delay, for one environment and for a vector, and observations that include it."""
