"""Agents of action values, one file each: hyperparameters, values, loss."""
