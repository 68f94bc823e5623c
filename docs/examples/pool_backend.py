"""A backend of one's own for `AsyncRunner`: its workers run in a thread pool."""

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy

import gymnasium as gym

from async_wrappers import AsyncRunner
from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.inference.worker import infer
from async_wrappers.live.loop.loop import EnvironmentLoop
from async_wrappers.policy import as_act


def make_policy():
    """Return a policy that takes 30 ms."""

    def act(observation):
        time.sleep(0.030)  # thinks for 30 ms
        return int(observation[2] > 0)

    return act


class PoolBackend:
    """Runs the workers of an `AsyncRunner` in a thread pool; it is its own transport."""

    def __init__(self, spec):
        self.env, self.errors, self.events = spec.make_env(), [], queue.SimpleQueue()
        self.pool = ThreadPoolExecutor(spec.config.workers)
        self.extras, self.space = spec.extras, spec.config.policy_space(self.env.action_space)
        self.acts = [as_act(spec.make_policy()) for _ in range(spec.config.workers)]
        for worker in range(spec.config.workers):
            self.events.put(Ready(worker))
        self.loop = EnvironmentLoop(self.env, self, spec.config, stops=lambda: bool(self.errors))

    def show(self, number, observation):
        """Show the workers a frame."""
        self.shown = deepcopy(observation)

    def start(self, worker, ticket):
        """Let a worker infer the frame that was shown last."""
        self.pool.submit(self.infer, worker, ticket, deepcopy(self.shown))

    def infer(self, worker, ticket, observation):
        """Infer, in a thread of the pool."""
        try:
            act = self.acts[worker]
            self.events.put(infer(worker, ticket, observation, act, self.space, extras=self.extras))
        except Exception as error:
            error.add_note(f"raised in worker {worker}")
            self.errors.append(error)

    def collect(self, until):
        """Return the events so far; wait for the first one until then (nanoseconds of the monotonic clock)."""
        events = []
        with suppress(queue.Empty):
            events.append(self.events.get(timeout=max(0, until - time.monotonic_ns()) / 1e9))
            while True:
                events.append(self.events.get_nowait())
        return events

    def play(self, phase):
        """Play a phase; raise the first error of a worker."""
        record = self.loop.play(phase)
        if self.errors:
            raise self.errors.pop()
        return record

    def close(self):
        """End the threads, and close the environment."""
        self.pool.shutdown()
        self.env.close()


if __name__ == "__main__":
    runner = AsyncRunner(
        lambda: gym.make("CartPole-v1"), make_policy, 4, 50, backend=PoolBackend, latency=0.030, default_action="repeat"
    )
    print(runner.run(episodes=2).frames)
