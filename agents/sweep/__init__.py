"""Sweeps: many trials of one experiment, and the figures they end in."""
