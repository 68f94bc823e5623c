"""What becomes of runs whose checkpoints are damaged: bits flipped, files cut, deleted, and swapped with others.

Small runs are made: turn-based ones with a ring, priorities, a reservoir, of SAC and of PPO, and a live one with two
learners; each with four checkpoints, and with one. Each trial damages one file of a copy at random (or two that change
places), lets a new runner resume in this process, and compares its state with that of the undisturbed run, bit for bit:

* ``right``: the newest checkpoint, unharmed;
* ``earlier``: an earlier checkpoint, unharmed and named;
* ``refused``: one sentence, and no file touched (all checkpoints share a damaged segment of the replay, for example);
* ``FAILED``: begun anew, a state that is none of these, or a traceback.

Where it resumes, it writes its next checkpoint, from which another one must go on with the same state. Live runs are
restored as the learners' processes do it; the last trials start those processes.

    python -m benchmarks.damage [--turn-based 700] [--live 300] [--processes 10] [--seed 0]

Hold: nothing fails.
"""

from __future__ import annotations

import copy
import random
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from logging import Handler, LogRecord
from pathlib import Path
from typing import Any

import gin
import gymnasium as gym
import numpy as np
import torch
from absl import logging

import async_wrappers.agents.configurables  # registers what gin files name
import async_wrappers.configurables  # noqa: F401
from async_wrappers.agents.config.config import load_config
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.value_based.dqn import DQN
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.live import Live
from async_wrappers.agents.play.play import CheckpointRefused
from async_wrappers.agents.play.run_settings import Runner
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.agents.registry import create_runner
from async_wrappers.live.learning.learner_state import (
    read_state,
    restore_learner,
    save_learner,
    state_file,
    write_state,
)
from benchmarks.measuring import held, parser_of

ROOT = Path(__file__).parents[1]
ITERATIONS = 5
DAMAGES = ("flip", "cut", "delete", "swap")
OUTCOMES = ("right", "earlier", "refused", "FAILED")
State = dict[str, Any]
Counts = Counter[tuple[str, str, str]]
"""How often by damage, kind of file, and what came of it."""


def turn_based(base_dir: Path, keep: int, **hyperparameters: Any) -> Experiment:
    """Return a runner of DQN on CartPole with a tiny network."""
    agent = partial(
        TurnBasedAgent.playing,
        DQN,
        stack_size=1,
        network=partial(create_network, torso=partial(MLPTorso, hidden=(8,))),
        min_replay_history=20,
        update_horizon=3,
        update_period=4,
        replay_capacity=400,
        batch_size=4,
        device="cpu",
        **hyperparameters,
    )
    return _runner(base_dir, keep, "CartPole-v1", agent, 120)


def sac(base_dir: Path, keep: int) -> Experiment:
    """Return a runner of SAC on Pendulum with tiny networks."""
    sizes: dict[str, Any] = {"num_layers": 1, "hidden_units": 8, "replay_capacity": 600, "batch_size": 4}
    agent = partial(TurnBasedAgent.playing, SAC, min_replay_history=20, update_period=8, device="cpu", **sizes)
    return _runner(base_dir, keep, "Pendulum-v1", agent, 200)


def ppo(base_dir: Path, keep: int) -> Experiment:
    """Return a runner of PPO on Pendulum, whose rounds are not whole where a checkpoint is written."""
    network = partial(create_policy_value_network, hidden=(8,))
    sizes: dict[str, Any] = {"network": network, "update_period": 48, "batch_size": 16, "num_epochs": 2}
    return _runner(base_dir, keep, "Pendulum-v1", partial(TurnBasedAgent.playing, PPO, device="cpu", **sizes), 200)


def _runner(base_dir: Path, keep: int, environment: str, agent: Any, frames: int) -> Experiment:
    settings = Runner(
        create_environment_fn=partial(gym.make, environment),
        create_agent_fn=agent,
        num_iterations=ITERATIONS,
        training_steps=frames,
        evaluation_steps=0,
        checkpoint_duration=keep,
    )
    return Experiment(base_dir, settings)


def live(base_dir: Path, keep: int) -> Experiment:
    """Return a runner of CartPole that does not wait, with two learners."""
    gin.clear_config()
    bindings = (
        "AsyncRunner.fps = 30",  # slow enough for a busy machine
        "AsyncRunner.calibration_time = 0.1",
        "AsyncRunner.learners = 2",
        f"Runner.num_iterations = {ITERATIONS}",
        "Runner.training_steps = 150",
        "Runner.evaluation_steps = 0",
        f"Runner.checkpoint_duration = {keep}",
        "DQNAgent.min_replay_history = 20",
        "DQNAgent.batch_size = 8",
        "DQNAgent.replay_scheme = 'prioritized'",
        "MLPTorso.hidden = (8,)",
    )
    load_config(["configs/live/cartpole.gin"], bindings, search_paths=[ROOT])
    runner: Experiment = create_runner(base_dir)
    return runner


class Restored:
    """What `LiveRunner` asks of an `AsyncRunner` with checkpoints, without processes: learners and their files."""

    def __init__(self, runner: Experiment, learners: int) -> None:
        """Make the learners."""
        assert isinstance(runner.agent, TurnBasedAgent)
        self.learners: list[Learner] = [make_learner(runner.agent.spec, n, learners) for n in range(learners)]

    def put_states(self, directory: Path, iteration: int, states: list[Any]) -> None:
        """Write the states where a learner's process looks for them."""
        for number, state in enumerate(states):
            write_state(state_file(directory, iteration, number), state)

    def take_states(self, directory: Path, iteration: int) -> list[Any]:
        """Read and delete what the learners wrote."""
        paths = [state_file(directory, iteration, number) for number in range(len(self.learners))]
        states = [read_state(path) for path in paths]
        self.drop_states(directory, iteration)
        return states

    def drop_states(self, directory: Path, iteration: int) -> None:
        """Delete what `put_states` wrote."""
        for number in range(len(self.learners)):
            state_file(directory, iteration, number).unlink(missing_ok=True)

    def restore(self, directory: Path, iteration: int) -> None:
        """Restore the learners as their processes do."""
        for number, learner in enumerate(self.learners):
            restore_learner(learner, directory, iteration, number)

    def save(self, directory: Path, iteration: int) -> None:
        """Save the learners as their processes do."""
        for number, learner in enumerate(self.learners):
            save_learner(learner, directory, iteration, number)

    def forget(self, directory: Path, keep: set[int]) -> None:
        """Forget replays as the learners' processes do."""
        for number, learner in enumerate(self.learners):
            learner.forget_replays(directory / f"replay_{number}", keep)


class Case:
    """A run with checkpoints, and its state at each of them.

    Args:
        name: Says which run.
        base_dir: Where it lies.
        make: Makes a runner of a directory.
    """

    def __init__(self, name: str, base_dir: Path, make: Callable[[Path], Experiment]) -> None:
        """Make the run."""
        self.name, self.base_dir, self.make = name, base_dir, make
        runner = make(base_dir)
        with redirect_stdout(StringIO()):
            runner.run_experiment()
        self.numbers = runner.saved.checkpointer.numbers()
        self.states: dict[int, State] = {}
        for number in self.numbers:
            with self.copied(base_dir.with_name("reference")) as copied:
                for later in [later for later in self.numbers if later > number]:
                    for path in (copied / "checkpoints").glob(f"*.{later}"):
                        path.unlink()
                self.states[number] = self.resumed(copied)[1]
        assert self.states[self.numbers[0]]["learners"][0]["updates"], f"{name}: nothing was learnt"

    @contextmanager
    def copied(self, place: Path) -> Iterator[Path]:
        """Yield a copy of the run that can be damaged."""
        try:
            yield shutil.copytree(self.base_dir, place)
        finally:
            shutil.rmtree(place)

    def resumed(self, base_dir: Path) -> tuple[Experiment, State]:
        """Return a runner that has resumed, and its state; None stands for one that began anew."""
        runner = self.make(base_dir)
        if not runner.resume():
            raise BeganAnew
        if isinstance(runner.play, Live):
            runner.play.live = Restored(runner, runner.play.live.learners)
            while True:
                try:
                    runner.play.restore()
                    break
                except CheckpointRefused as error:
                    runner.go_back(error)
        return runner, state_of(runner)


class BeganAnew(Exception):
    """A runner took a directory with checkpoints for an empty one."""


def state_of(runner: Experiment) -> State:
    """Return all that a run is between two iterations, copied."""
    if isinstance(runner.play, Live):
        learners = runner.play.live.learners
    else:
        assert isinstance(runner.agent, TurnBasedAgent)
        learners = [runner.agent.learner]
    return copy.deepcopy(
        {
            "number": runner.start_iteration - 1,
            "frames": runner.counts.frames,
            "episodes": runner.counts.episodes,
            "logs": runner.history,
            "learners": [learner.state_dict() for learner in learners],
            "replays": [learner.replay.state_dict() for learner in learners],
        }
    )


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two states are the same, bit for bit."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(are_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_alike, one, other))
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other)


def damage(base_dir: Path, how: str, rng: random.Random) -> str:
    """Damage a file of a run's checkpoints, and return what kind of file it was."""
    files = sorted(path for path in (base_dir / "checkpoints").rglob("*") if path.is_file())
    kinds = sorted({_kind(path) for path in files})
    kind = rng.choice(kinds)  # each kind as often, however many files there are of it
    path = rng.choice([each for each in files if _kind(each) == kind])
    content = bytearray(path.read_bytes())
    if how == "flip":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(content[: rng.randrange(len(content))])
    elif how == "delete":
        path.unlink()
    else:
        alike = [each for each in files if each != path and (_kind(each) == kind or rng.random() < 0.2)]
        other = rng.choice(alike or [each for each in files if each != path])
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    return kind


def _kind(path: Path) -> str:
    return path.name.partition(".")[0].partition("_")[0]


def trial(case: Case, how: str, rng: random.Random, place: Path) -> tuple[str, str, str]:
    """Return the kind of file that was damaged, what came of it, and what was said."""
    with case.copied(place) as base_dir:
        kind = damage(base_dir, how, rng)
        before = _contents(base_dir)
        with _told() as told:
            try:
                runner, state = case.resumed(base_dir)
                outcome = _outcome(case, state, told)
                if outcome != "FAILED" and not _goes_on(case, runner, base_dir):
                    outcome = "FAILED"
                    told.append("what it wrote next does not load")
            except ValueError as error:
                one_line = "\n" not in str(error) and str(base_dir) in str(error)
                outcome = "refused" if one_line and _contents(base_dir) == before else "FAILED"
                told.append(str(error))
            except Exception:
                outcome = "FAILED"
                told.append(traceback.format_exc())
    return kind, outcome, "\n".join(told)


def _outcome(case: Case, state: State, told: list[str]) -> str:
    number = state["number"]
    if number not in case.states:
        return "FAILED"
    said = "\n".join(told)
    whole = case.states[number]
    if number < case.numbers[0] and f"the run goes on from checkpoint {number}," not in said:
        return "FAILED"
    if not are_alike(state, whole):
        return "FAILED"
    return "right" if number == case.numbers[0] else "earlier"


def _goes_on(case: Case, runner: Experiment, base_dir: Path) -> bool:
    """Return whether the runner's next checkpoint is one that another goes on from."""
    state = state_of(runner)
    runner.write(runner.start_iteration)
    with _told() as told:
        again = case.resumed(base_dir)[1]
    again["number"] -= 1
    return not told and are_alike(again, state)


def _contents(base_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in base_dir.rglob("*") if path.is_file()}


@contextmanager
def _told() -> Iterator[list[str]]:
    """Collect what is logged."""
    told: list[str] = []

    class Collect(Handler):
        def emit(self, record: LogRecord) -> None:
            told.append(record.getMessage())

    handler, logger = Collect(), logging.get_absl_logger()
    propagate = logger.propagate
    handlers, logger.handlers, logger.propagate = logger.handlers, [handler], False
    try:
        yield told
    finally:
        logger.handlers, logger.propagate = handlers, propagate


RUNS: Mapping[str, Callable[[Path, int], Experiment]] = {
    "turn-based, ring": turn_based,
    "turn-based, priorities": partial(turn_based, replay_scheme="prioritized"),
    "turn-based, reservoir": partial(turn_based, replay_eviction="reservoir"),
    "turn-based, SAC": sac,
    "turn-based, PPO": ppo,
    "live": live,
}


def make_cases(directory: Path, schedules: tuple[str, ...] = ("turn-based", "live")) -> list[Case]:
    """Make the runs that are damaged."""
    cases = []
    for name, make in RUNS.items():
        for keep in (4, 1) if name.startswith(schedules) else ():
            base_dir = directory / f"{name.replace(', ', '_')}_{keep}" / "run"
            base_dir.parent.mkdir()
            cases.append(Case(name, base_dir, partial(make, keep=keep)))
    return cases


def trials(cases: list[Case], number: int, seed: int, place: Path, processes: bool = False) -> Counts:
    """Damage the cases in turn; return how often what came of which damage to which kind of file; print failures.

    Args:
        cases: The runs.
        number: Of trials.
        seed: Of chance.
        place: For the damaged copies.
        processes: Let them play another iteration with all of their processes.
    """
    rng, counts = random.Random(seed), Counts()
    for k in range(number):
        case, how = cases[k % len(cases)], DAMAGES[k // len(cases) % len(DAMAGES)]
        kind, outcome, told = (played_on if processes else trial)(case, how, rng, place)
        counts[how, kind, outcome] += 1
        if outcome == "FAILED":
            print(f"trial {k}, {case.name}: {how} of {kind}: FAILED\n{told}", flush=True)
    return counts


def played_on(case: Case, how: str, rng: random.Random, place: Path) -> tuple[str, str, str]:
    """Let a damaged live run play another iteration, with all of its processes; see `trial`."""
    with case.copied(place) as base_dir, _told() as told:
        kind = damage(base_dir, how, rng)
        runner = case.make(base_dir)
        runner.num_iterations += 1
        outcome = "FAILED"
        try:
            if runner.resume():
                used = runner.start_iteration - 1
                with redirect_stdout(StringIO()):
                    runner.run_experiment()
                said = "\n".join(told)
                if used == case.numbers[0]:
                    outcome = "right"
                elif f"goes on from checkpoint {used}," in said:
                    outcome = "earlier"
        except ValueError as error:
            outcome = "refused" if "\n" not in str(error) else "FAILED"
        except Exception:
            told.append(traceback.format_exc())
    return kind, outcome, "\n".join(told)


def table(counts: Counts) -> str:
    """Return the counts as a table."""
    rows = sorted({(how, kind) for how, kind, _ in counts}, key=lambda row: (DAMAGES.index(row[0]), row[1]))
    lines = [f"{'damage':8}{'of':10}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES)]
    for how, kind in rows:
        lines.append(f"{how:8}{kind:10}" + "".join(f"{counts[how, kind, outcome]:9}" for outcome in OUTCOMES))
    return "\n".join([*lines, f"{'all':18}" + "".join(f"{total(counts, outcome):9}" for outcome in OUTCOMES)])


def total(counts: Counts, outcome: str) -> int:
    """Return how often something came of any damage."""
    return sum(count for (_, _, what), count in counts.items() if what == outcome)


def main() -> None:
    parser = parser_of(
        __doc__,
        turn_based=(700, "trials"),
        live=(300, "trials"),
        processes=(10, "trials of live runs with all processes"),
        seed=(0, "of chance"),
    )
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        cases: dict[str, list[Case]] = {}
        for schedule, number, processes in (
            ("turn-based", args.turn_based, False),
            ("live", args.live, False),
            ("live", args.processes if args.live else 0, True),
        ):
            if not number:
                continue
            began = time.monotonic()
            if schedule not in cases:
                cases[schedule] = make_cases(directory, (schedule,))
            own = cases[schedule][:1] if processes else cases[schedule]
            counts = trials(own, number, args.seed, directory / "damaged", processes)
            failed += total(counts, "FAILED")
            what = f"{schedule}{', with all processes' * processes}, {number} trials"
            print(f"\n{what}, {time.monotonic() - began:.0f} s\n{table(counts)}", flush=True)
    print(f"\nfailed: {failed}: {held(not failed)}")


if __name__ == "__main__":
    main()
