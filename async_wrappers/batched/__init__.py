"""Many environments at once, in one form for every kind of vector, for processes and for halves that take turns."""

from async_wrappers.batched.double_buffered import DoubleBuffered
from async_wrappers.batched.local import LocalEnvs
from async_wrappers.batched.processes import ProcessEnvs
from async_wrappers.batched.protocol import BatchedEnvs, Shown
from async_wrappers.batched.vector_envs import VectorEnvs

__all__ = ["BatchedEnvs", "DoubleBuffered", "LocalEnvs", "ProcessEnvs", "Shown", "VectorEnvs"]
