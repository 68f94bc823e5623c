"""What a run measures, and the timing report that it ends with."""
