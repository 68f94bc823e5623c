"""Sweeps: the grids of the paper, the same in the published arithmetic, and small ones for two cores."""
