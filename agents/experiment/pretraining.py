"""Learning from demonstrations before the first iteration, offline, under the delay and spacing of the run.

As in the code of Riemer, Subbaraj, Berseth, Rish (arXiv 2412.14355) the demonstrations are the first content of the
agent's own replay memory, from which the updates draw, and where they stay until newer transitions push them out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
from tqdm import trange

from agents.agent import Agent, Demonstrable
from agents.demonstrations.dataset import read_demonstrations
from agents.demonstrations.playback import Playback, transitions
from agents.experiment.episode import episode_seed
from agents.experiment.events import EventWriter
from agents.files import write_text_atomically

__all__ = ["Pretraining"]

_FILE = Path("metrics") / "pretraining.jsonl"
_DEMONSTRATED = 4  # after the phases and the recordings: episodes have seeds of their own


class Pretraining:
    """Offline updates on a dataset.

    Args:
        dataset: See `agents.demonstrations.read_demonstrations`.
        updates: How many.

    Attributes:
        pending: Whether the demonstrations have been loaded, and the updates are still to do.
        facts: What was loaded: episodes, frames, transitions, and the frames on which the player did something else
            than the default action between two decisions.
    """

    def __init__(self, dataset: str, updates: int) -> None:
        """See the class."""
        self.dataset, self.updates = dataset, updates
        self.pending = False
        self.facts: dict[str, int] = {}

    def load(self, agent: Agent, create_environment: Callable[[], gym.Env[Any, Any]], seed: int) -> None:
        """Put the transitions of each demonstration into the agent's replay.

        Args:
            agent: Learns.
            create_environment: Makes the environment of the run, whose layers the demonstrations go through.
            seed: The run's; of the schedules, where latencies are random.

        Raises:
            ValueError: The dataset cannot be read or does not fit, it is too small for a batch, or the agent does not
                learn.
            gymnasium.error.DependencyNotInstalled: It is a Minari dataset, and Minari is missing.
        """
        if not isinstance(agent, Demonstrable):
            raise ValueError(f"{self._named} is for an agent that learns, got {type(agent).__name__}: bind None")
        environment, playback = Playback.under(create_environment())
        if playback.observation_space.shape is None:
            raise ValueError(
                f"{self._named} is for observations that are arrays, as recorded ones are, got "
                f"{playback.observation_space}: flatten them in a wrapper inside RealtimeDelay, or bind None"
            )
        episodes = frames = departures = shown = 0
        for episode in read_demonstrations(self.dataset):
            try:
                playback.load(episode)
            except ValueError as error:
                raise ValueError(
                    f"{self._named} does not fit, in episode {episodes} {error}: record it with the environment of "
                    "this configuration"
                ) from None
            for transition in transitions(environment, playback, episode_seed(seed, _DEMONSTRATED, episodes)):
                agent.demonstrate(transition)
                shown += 1
            episodes, frames = episodes + 1, frames + len(episode)
            departures += playback.off_schedule_frames
        if agent.transitions < agent.batch_size:
            raise ValueError(
                f"{self._named} gives {agent.transitions} transitions under this delay and "
                f"spacing, fewer than a batch of {agent.batch_size}: record more, or bind a smaller batch_size"
            )
        self.facts = {"episodes": episodes, "frames": frames, "departures": departures, "transitions": shown}
        self.pending = True

    def run(self, agent: Agent, base_dir: Path) -> None:
        """Do the updates, and write what they gave to ``metrics/pretraining.jsonl`` and to TensorBoard."""
        assert isinstance(agent, Demonstrable)
        path = base_dir / _FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        lines: list[dict[str, float]] = [dict(self.facts)]
        # A run of its own in TensorBoard, whose axis is updates: the other axis is training frames, and there are none.
        with closing(EventWriter(path.parent / "tensorboard" / "pretraining", purge_step=1)) as writer:
            for update in trange(1, self.updates + 1, desc="pretraining", unit="update", disable=None):
                scalars = agent.pretrain()
                if update % agent.spec.summary_writing_frequency and update != self.updates:
                    continue
                lines.append({"update": update, **{name: float(value) for name, value in scalars.items()}})
                for name in scalars:
                    writer.scalar(f"Pretraining/{name}", lines[-1][name], update)
        write_text_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
        self.pending = False
        print(f"pretraining: {self._summary(lines[-1])}", flush=True)

    def identity(self) -> dict[str, Any]:
        """Return what two runs must share to continue one another."""
        return {"dataset": self.dataset, "updates": self.updates}

    @property
    def _named(self) -> str:
        return f"Runner.pretrain_dataset {self.dataset!r}"

    def _summary(self, last: dict[str, float]) -> str:
        facts = self.facts
        text = (
            f"{self.updates} updates on {facts['transitions']} transitions ({facts['episodes']} episodes, "
            f"{facts['frames']} frames, {facts['departures']} of them with an action between two decisions)"
        )
        return f"{text}, loss {last['Loss']:.4g}" if "Loss" in last else text
