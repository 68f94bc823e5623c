"""Demonstrations of a run: recorded episodes of a person, a script or an agent, learnt from before iteration 0.

Learning from them is offline, under the delay and spacing of the run. As in the code of Riemer, Subbaraj, Berseth, Rish
(arXiv 2412.14355) the demonstrations are the first content of the agent's own replay memory, from which the updates
draw, and where they stay until newer transitions push them out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import numpy.typing as npt
from absl import logging
from tqdm import trange

from async_wrappers.agents.acting.frames_read import report_effect
from async_wrappers.agents.demonstrations.dataset import FLATTEN, DatasetWriter, read_demonstrations, recorded_delay
from async_wrappers.agents.demonstrations.demonstration import EpisodeRecorder, Playback, frames_of, transitions
from async_wrappers.agents.demonstrations.players import Keyboard, Script, make_player
from async_wrappers.agents.experiment.metrics import EventWriter
from async_wrappers.agents.play.play import environment_seed
from async_wrappers.agents.play.turns.turns import play_episode
from async_wrappers.files import write_text_atomically

_FILE = Path("metrics") / "pretraining.jsonl"
_RECORDED, _DEMONSTRATED = 3, 4  # after the phases: episodes have seeds of their own


def _pretrains(agent: Any) -> bool:
    """Return whether an agent learns from demonstrations, by the methods of `TurnBasedAgent` that do."""
    return all(callable(getattr(agent, name, None)) for name in ("demonstrate", "pretrain"))


class Pretraining:
    """Offline updates on a dataset.

    Args:
        dataset: See `async_wrappers.agents.demonstrations.dataset.read_demonstrations`.
        updates: How many.

    Attributes:
        pending: Whether the demonstrations have been loaded, and the updates have not been made.
        facts: What was loaded: episodes, frames, transitions, and the frames on which the player did something else
            than the default action between two decisions.
    """

    def __init__(self, dataset: str, updates: int) -> None:
        self.dataset, self.updates = dataset, updates
        self.pending = False
        self.facts: dict[str, int] = {}

    def load(self, agent: Any, create_environment: Callable[[], gym.Env[Any, Any]], seed: int) -> None:
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
        if not _pretrains(agent):
            raise ValueError(f"{self._named} is for an agent that learns, got {type(agent).__name__}: bind None")
        if agent.spec.extras is not None:
            raise ValueError(
                f"{self._named} is for an agent that learns from observations, actions and rewards alone, and agent "
                f"{agent.spec.name!r} also needs what its own policy said of each action: bind None"
            )
        environment, playback = Playback.under(create_environment())
        if playback.observation_space.shape is None:
            raise ValueError(
                f"{self._named} is for observations that are arrays, as recorded ones are, got "
                f"{playback.observation_space}: {FLATTEN}, or bind None"
            )
        if agent.spec.fast_age is not None:
            raise ValueError(
                f"{self._named} is for an agent that reads what a demonstration holds, and agent {agent.spec.name!r} "
                "has a fast path: bind None, or fast = None for its network"
            )
        if agent.spec.needs_effect:
            report_effect(environment, agent.spec.name)
        episodes = frames = departures = shown = 0
        delays: list[int] = []
        for episode in read_demonstrations(self.dataset):
            try:
                playback.load(episode)
            except ValueError as error:
                raise ValueError(
                    f"{self._named} does not fit, in episode {episodes} {error}: record it with the environment of "
                    "this configuration"
                ) from None
            seed_of_it = environment_seed(seed, _DEMONSTRATED, episodes)
            for transition in transitions(environment, playback, seed_of_it, agent.spec.needs_effect):
                agent.demonstrate(transition)
                shown += 1
            episodes, frames = episodes + 1, frames + len(episode)
            departures += playback.off_schedule_frames
            delays += playback.delays
        if agent.transitions < agent.batch_size:
            raise ValueError(
                f"{self._named} gives {agent.transitions} transitions under this delay and "
                f"spacing, fewer than a batch of {agent.batch_size}: record more, or bind a smaller batch_size"
            )
        self._compare_delays(delays)
        self.facts = {"episodes": episodes, "frames": frames, "departures": departures, "transitions": shown}
        self.pending = True

    def _compare_delays(self, delays: Sequence[int]) -> None:
        """Warn if the dataset was recorded under another delay than that of the run, `delays` of its decisions.

        One without delay is not compared: a player who answers each frame at once is what demonstrations are.
        """
        recorded = recorded_delay(self.dataset)
        if recorded is None or not delays or not recorded["most"]:
            return
        median, own = recorded["median"], float(np.median(delays))
        if abs(median - own) >= 1:
            logging.warning(
                "%s was recorded under a delay of %g frames (%g to %g), and this run has one of %g: its actions "
                "answer other observations than this agent will see; train under that delay, or record under this one",
                self._named,
                median,
                recorded["least"],
                recorded["most"],
                own,
            )

    def run(self, agent: Any, base_dir: Path) -> None:
        """Make the updates, and write their scalars to ``metrics/pretraining.jsonl`` and to TensorBoard."""
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


# Plays and records the episodes, and returns where they went.
Recording = Callable[[], DatasetWriter]


def bound_environment() -> gym.Env[Any, Any]:
    """Make the environment that ``Runner.create_environment_fn`` is bound to, without a runner and its agent.

    Raises:
        ValueError: None is bound.
    """
    create = gin.get_bindings("Runner").get("create_environment_fn")
    if create is None:
        raise ValueError("Runner.create_environment_fn must be bound to record: name a configuration with --gin_files")
    environment: gym.Env[Any, Any] = create()
    return environment


def _record(
    environment: gym.Env[Any, Any], writer: DatasetWriter, play: Callable[[gym.Env[Any, Any], EpisodeRecorder], object]
) -> DatasetWriter:
    """Let `play` play in the environment, whose frames below its delay are recorded.

    Finished episodes are kept even if this is interrupted or fails.
    """
    with writer:
        play(*EpisodeRecorder.inside(environment, writer.add))
    return writer


def record_player(
    environment: gym.Env[Any, Any],
    dataset: str,
    player: str,
    *,
    episodes: int,
    seed: int = 0,
    max_frames: int | None = None,
    fps: float | None = None,
) -> Recording:
    """Prepare to record a player without delay: of what the environment's delay wraps.

    Args:
        environment: Any.
        dataset: See `DatasetWriter`.
        player: ``"human"`` (a window and the keyboard), ``"random"``, or ``"module:function"``, a function from the
            environment to a function from observation to action.
        episodes: How many; a person may end earlier, with ESC.
        seed: Of the episodes, and of a random player.
        max_frames: Frames after which an episode is cut; not of a person's.
        fps: Frames per second for a person, instead of the environment's.

    Raises:
        ValueError: The dataset exists, there is no such player, or a person cannot play this.
        gymnasium.error.DependencyNotInstalled: Minari is missing, or pygame for a person.
    """
    frames, seeds = frames_of(environment), _seeds(seed, episodes)
    playing = Keyboard(frames, fps) if player == "human" else Script(make_player(player, frames, seed), max_frames)
    return partial(
        _record, environment, _writer(dataset, frames, player), lambda _, recorder: playing.play(recorder, seeds)
    )


def record_agent(
    agent: Any,
    environment: gym.Env[Any, Any],
    dataset: str,
    *,
    episodes: int,
    seed: int = 0,
    max_frames: int | None = None,
) -> Recording:
    """Prepare to record the frames of an agent that plays under its own delay, default actions among them.

    The dataset's metadata have that delay (``delay_frames``), with which a pretraining compares its own.

    Raises:
        ValueError: The dataset exists.
        gymnasium.error.DependencyNotInstalled: Minari is missing.
    """
    agent.eval_mode = True
    writer = _writer(dataset, frames_of(environment), type(agent).__name__)

    def play(played: gym.Env[Any, Any], recorder: EpisodeRecorder) -> None:
        noted = _NotesDelays(played, writer)
        for each in _seeds(seed, episodes):
            play_episode(agent, noted, each, max_frames)
            recorder.truncate_episode()

    return partial(_record, environment, writer, play)


class _NotesDelays(gym.Wrapper[Any, Any, Any, Any]):
    """Tells a dataset the delay of each decision that was applied; without a report of the environment's it is 0."""

    def __init__(self, env: gym.Env[Any, Any], writer: DatasetWriter) -> None:
        super().__init__(env)
        self._writer = writer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        realtime = answer[4].get("realtime", {"delay": 0, "applied": True})
        if realtime["applied"]:
            self._writer.note_delay(int(realtime["delay"]))
        return answer


def import_demonstrations(source: str, dataset: str) -> DatasetWriter:
    """Write the episodes of a pickle (or of another dataset) into a dataset of its own.

    Raises:
        ValueError: The source cannot be read, its episodes differ in what they observe, or the dataset exists.
        gymnasium.error.DependencyNotInstalled: Minari is missing.
    """
    episodes = list(read_demonstrations(source))
    observation_space = _box("observations", source, [episode.observations for episode in episodes])
    action_space: gym.Space[Any] = _box("actions", source, [episode.actions for episode in episodes])
    if action_space.shape == () and np.issubdtype(action_space.dtype, np.integer):
        first = min(0, *(int(episode.actions.min()) for episode in episodes))
        last = max(int(episode.actions.max()) for episode in episodes)
        if last - first + 1 >= 2**63:
            raise ValueError(f"{source} must hold the numbers of actions, which begin at 0, got {first} to {last}")
        action_space = gym.spaces.Discrete(last - first + 1, start=first)
    with DatasetWriter(dataset, observation_space, action_space, player=Path(source).name) as writer:
        for episode in episodes:
            writer.add(episode)
    return writer


def _box(what: str, source: str, arrays: Sequence[npt.NDArray[Any]]) -> gym.spaces.Box:
    """Return a Box that holds all rows of arrays, which are alike."""
    (dtype, *shape), *others = {(each.dtype, *each.shape[1:]) for each in arrays}
    if others:
        raise ValueError(f"{source} holds episodes with {what} of several shapes or types: import them apart")
    return gym.spaces.Box(*_limits(dtype), tuple(shape), dtype.type)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return (0, 1) if dtype == np.bool_ else (-np.inf, np.inf)


def _seeds(seed: int, episodes: int) -> list[int]:
    return [environment_seed(seed, _RECORDED, number) for number in range(episodes)]


def _writer(dataset: str, frames: gym.Env[Any, Any], player: str) -> DatasetWriter:
    spec = None
    with suppress(Exception):  # a wrapper that does not record its arguments
        spec = frames.spec
    return DatasetWriter(dataset, frames.observation_space, frames.action_space, spec=spec, player=player)
