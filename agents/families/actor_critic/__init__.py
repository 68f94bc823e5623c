"""Agents of a policy and a value, one file each: hyperparameters, acting, loss."""
