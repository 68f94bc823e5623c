"""The virtual clock: one thread, real policies, simulated time."""

from __future__ import annotations

from contextlib import ExitStack

from async_wrappers.live.inference.virtual_transport import VirtualTransport
from async_wrappers.live.loop import EnvironmentLoop, Phase
from async_wrappers.live.report.measurements import Record
from async_wrappers.live.run_spec import Job, made_environment

__all__ = ["VirtualBackend"]


class VirtualBackend:
    """Plays the environment loop on simulated time; every inference is really computed, also those never applied.

    Args:
        job: What is to be done; its latency model says how long inferences take.

    Raises:
        ValueError: No latency model, or learners.
    """

    def __init__(self, job: Job) -> None:
        """See the class."""
        terms = job.terms
        if terms.latency is None:
            raise ValueError("latency must be given on the virtual clock, as a model or in seconds, got None")
        if job.learners:
            raise ValueError(f"learners={job.learners} need backend='process', got backend='virtual'")
        with ExitStack() as held:
            env = made_environment(job.make_env)
            held.callback(env.close)
            policies = [job.make_policy() for _ in range(terms.workers)]
            transport = VirtualTransport(policies, env.action_space, terms.latency)
            self._loop = EnvironmentLoop(env, transport, terms, now=transport.now, simulation=transport)
            self._held = held.pop_all()

    def play(self, phase: Phase) -> Record:
        """Play a phase."""
        return self._loop.play(phase)

    def close(self) -> None:
        """Close the environment."""
        self._held.close()
