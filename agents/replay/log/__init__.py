"""A replay on disk: append-only segments, and an index for each checkpoint."""
