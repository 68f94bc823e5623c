"""Live runs: the environment does not wait."""
