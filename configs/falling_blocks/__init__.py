"""Falling blocks in the place of the Game Boy: the same experiments without a ROM."""
