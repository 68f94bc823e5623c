"""CleanRL's scripts as contestants of `benchmarks.agent_speed`, with the options they have: its own loop, run as it is.

    PYTHON -m benchmarks.players.cleanrl dqn THREADS LEARNING_STARTS
    PYTHON -m benchmarks.players.cleanrl full_rainbow THREADS LEARNING_STARTS RAINBOW_ATARI.PY

The DQN is that of the package; the package has no Rainbow, so its script is a file, from CleanRL's repository. Both
take a vector of one environment, and that is where the turnstile stands.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.players.turnstile import (
    ALPHA,
    ATOMS,
    BATCH,
    BETA,
    CAPACITY,
    EPSILON,
    FOREVER,
    GAME,
    GAMMA,
    HORIZON,
    TARGET_PERIOD,
    UPDATE_PERIOD,
    VMAX,
    Told,
    Turnstile,
    limit_threads,
    told,
)

SHARED: dict[str, Any] = {
    "env-id": GAME,
    "total-timesteps": FOREVER,
    "buffer-size": CAPACITY,
    "batch-size": BATCH,
    "train-frequency": UPDATE_PERIOD,
    "target-network-frequency": TARGET_PERIOD,
    "gamma": GAMMA,
    "start-e": EPSILON,
    "end-e": EPSILON,
}
RAINBOW: dict[str, Any] = {
    "n-step": HORIZON,
    "n-atoms": ATOMS,
    "v-min": -VMAX,
    "v-max": VMAX,
    "prioritized-replay-alpha": ALPHA,
    "prioritized-replay-beta": BETA,
}


def stand_in_vectors() -> None:
    """Put a turnstile into every ``SyncVectorEnv`` that is made from now on."""
    import ale_py.registration
    import gymnasium as gym

    turnstile = Turnstile()

    class Watched(gym.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            turnstile.enter()
            return super().step(actions)

    gym.vector.SyncVectorEnv = Watched  # type: ignore[misc]
    ale_py.registration.register_v0_v4_envs()  # Gymnasium 0.29 does not look for this version's


def script_of(player: Told) -> Path:
    """Return the file of the script."""
    if player.agent == "full_rainbow":
        return Path(player.how[0]).resolve()
    import cleanrl

    (folder,) = cleanrl.__path__
    return Path(folder) / "dqn_atari.py"


def main() -> None:
    player = told()
    limit_threads(player.threads)
    stand_in_vectors()
    script, options = script_of(player), SHARED | {"learning-starts": player.learning_starts}
    if player.agent == "full_rainbow":
        options |= RAINBOW
    sys.argv = [str(script), *(f"--{name}={value}" for name, value in options.items())]
    os.chdir(tempfile.mkdtemp())  # where it writes its scalars
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
