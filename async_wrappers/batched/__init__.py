"""Many environments at once, in one form for every kind of vector, for processes and for halves that take turns."""

from async_wrappers.batched.protocol import BatchedEnvs, Shown

__all__ = ["BatchedEnvs", "Shown"]
