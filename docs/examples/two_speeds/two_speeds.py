"""A policy of one's own with a fast path, bound in gin: ``python docs/examples/two_speeds/two_speeds.py``.

The slow half takes 60 ms and says where the cart should lean; the fast path balances the pole by what is seen now. If
the slow half is late or away, the fast path goes on with what it said last, for `AsyncRunner.max_features_age` frames.
"""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import gin
import gymnasium as gym
import numpy as np

import async_wrappers.configurables  # the names that gin binds  # noqa: F401


class Released(NamedTuple):
    """What `TwoSpeeds` remembers beside its action is nothing."""

    action: int
    state: None = None


@gin.configurable
class TwoSpeeds:
    """`async_wrappers.SplitPolicy` of CartPole; `fast_age` declares that `release` reads ``memory.fresh``."""

    features = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, seconds: float = 0.0, fast_age: int = 0, gains: tuple[float, float] = (1.0, 0.25)) -> None:
        self.seconds, self.fast_age, self.gains = seconds, fast_age, gains

    def encode(self, observation: Any, decision: Any) -> Any:
        """Return how far the cart should lean, against where it stands and goes."""
        time.sleep(self.seconds)
        return np.array([0.05 * observation[0] + 0.1 * observation[1]], np.float32)

    def release(self, features: Any, memory: Any, decision: Any) -> Released:
        """Push towards the side to which the pole falls, beyond that."""
        _, _, angle, turning = memory.fresh
        return Released(int(features[0] + self.gains[0] * angle + self.gains[1] * turning > 0))


def main(*bindings: str) -> Any:
    """Play five episodes, and return the report."""
    gin.parse_config_files_and_bindings([str(Path(__file__).with_suffix(".gin"))], bindings)
    with gin.get_configurable("AsyncRunner")(features=TwoSpeeds.features) as runner:
        return runner.run(episodes=5)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
