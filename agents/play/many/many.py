"""Training on many environments at once, played by `VectorAgent`.

The episodes of N environments end at different moments, and the state of an environment is never saved. So games
continue across a checkpoint, while a resumed run begins an episode in each environment. The episodes that ran are then
*cut*: they do not count as returns, and the run differs from an uninterrupted one. With ``Runner.exact_resume`` all are
cut, truncated and bootstrapped, where an iteration ends with a checkpoint, in an uninterrupted run too; both then
continue alike. Where the run is asked to end in a training phase all are cut in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from async_wrappers.agents.config.config import own_modules
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.actor import Ended, RunningEpisodes
from async_wrappers.agents.play.lessons import Lesson
from async_wrappers.agents.play.many.environments import PhaseEnvironments, Seeds, VectorRunner, check
from async_wrappers.agents.play.many.learners import Group, LearnersElsewhere, OtherLearners
from async_wrappers.agents.play.many.rounds import COUNTED, LearnerShare, Share, Trained
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import (
    NOTHING_PLAYED,
    CheckpointRefused,
    DifferentExperiment,
    EpisodeResult,
    EpisodeRow,
    Length,
    Phase,
    PlayedPhase,
    checksum,
    environment_in_words,
)
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import Meters, rate_in_a_table, rate_in_short
from async_wrappers.wrapper_statistics import Statistics, give_statistics, merged

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Run
    from async_wrappers.agents.play.hosts.hosts import OnHosts


class Here:
    """Environments in this process, or in processes of its machine.

    Attributes:
        shares: Into how many equal shares the environments are divided, and the word for them.
    """

    def __init__(self, settings: VectorRunner, run: Run) -> None:
        self.shares = settings.learners, "learners"
        self._envs: Any = None

    def check(self, agent: VectorAgent) -> None:
        """Refuse what cannot be played there with a ValueError: nothing here."""

    def open(self, stack: ExitStack, many: Many) -> LearnerShare:
        """Return what plays and learns in this process, and let `stack` close it."""
        environments, group = many.environments, None
        if many.others.number:
            make = partial(_make_share, many.make_agent, environments.portable(), environments.all_seeds())
            group = many.others.start(stack, make)
        self._envs = stack.enter_context(closing(environments.make(Phase.TRAIN, many.agent.num_envs)))
        return Share(many.agent, self._envs, environments.seeds(0), group)

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint."""
        return {}

    def load_state(self, bundle: Mapping[str, Any]) -> None:
        """Take what `state` returned from a checkpoint's content: nothing here."""

    def facts(self) -> dict[str, str]:
        """Return facts in words."""
        return {}

    def note(self, trained: Sequence[Trained]) -> None:
        """Take in the results of all learners at the end of a phase: nothing here."""

    @property
    def restarts(self) -> int:
        """Processes of this process's environments that died or were late, and were replaced."""
        return int(getattr(self._envs, "restarts", 0))

    def statistics(self) -> dict[str, Any]:
        """Return what is added to a training phase's statistics."""
        return {}

    def table(self, seconds: float) -> list[str]:
        """Return the lines of the closing table on them, after so many seconds of training."""
        return []


class Others:
    """The learners but the first, of which there may be none.

    Args:
        agent: The first learner's.
        learners: How many there are together.
        run: The experiment.

    Attributes:
        number: How many they are.
        running: They, once they run.
        states: Of the checkpoint that was loaded or written last.
    """

    def __init__(self, agent: VectorAgent, learners: int, run: Run) -> None:
        self._agent, self._learners, self._run = agent, learners, run
        self.number = learners - 1
        self.running: OtherLearners | None = None
        self.states: list[dict[str, Any]] = []

    @property
    def directory(self) -> Path:
        """The directory of checkpoints, as other learners find it too."""
        return self._run.saved.directory.absolute()

    def start(
        self, stack: ExitStack, make_share: Callable[[Group], LearnerShare], elsewhere: LearnersElsewhere | None = None
    ) -> Group | None:
        """Start them, and restore them from the checkpoint that the first one has loaded, if any.

        Args:
            stack: Closes them.
            make_share: Makes the share of one, in its process.
            elsewhere: Where they run; None for this machine.

        Returns:
            All learners together.

        Raises:
            CheckpointRefused: One cannot go on from it.
        """
        threads = self._run.settings.threads
        others = OtherLearners(make_share, self._learners, own_modules(), threads, elsewhere)
        self.running = stack.enter_context(closing(others))
        begun = self._agent.learner.state_dict(), self._agent.rows.statistics[0]
        learner, number = cloudpickle.dumps(begun), self._run.saved.number
        states: list[Any] = [*self.states] or [None] * (self._learners - 1)
        others.tell("restore", each=[(learner, state, self.directory, number) for state in states])
        if refused := [why for why in others.answers() if why]:
            raise CheckpointRefused(refused[0])
        return others.group

    def tell(self, what: str, *arguments: Any) -> None:
        """Give all a command."""
        if self.running is not None:
            self.running.tell(what, *arguments)

    def answers(self) -> list[Any]:
        """Return the answer of each."""
        return [] if self.running is None else self.running.answers()

    def state(self, number: int) -> dict[str, Any]:
        """Let all write their replays, and return the entry of a checkpoint; empty where there are none."""
        if self.running is None:
            return {}
        self.running.tell("save", self.directory, number)
        self.states = self.running.answers()
        return {"shares": self.states}


class Many:
    """Plays many environments at once with one agent; its methods are those of `Turns`.

    Args:
        settings: Of the environments and learners.
        run: The experiment.
        worlds: Makes what plays the environments of training.

    Attributes:
        agent: Plays and learns.
        make_agent: Makes that of another learner, from ``number=``.
        environments: What makes the environments.
        worlds: What plays those of training.
        others: The learners but the first.
    """

    unrecordable = ""

    def __init__(
        self, settings: VectorRunner, run: Run, worlds: Callable[[VectorRunner, Run], Here | OnHosts] = Here
    ) -> None:
        self._settings, self._run, self.worlds = settings, run, worlds(settings, run)
        self.checkpoint_every = settings.checkpoint_every
        check(settings, run, self.worlds.shares)
        made = self.new_agent()
        spec = getattr(made, "spec", None)
        if not isinstance(spec, Spec):
            kind = type(made).__name__
            raise ValueError(f"create_runner.schedule = 'vector' needs an agent that learns, got {kind}")
        self.environments = PhaseEnvironments(settings, run, spec, self.worlds.shares[0])
        spec.keep_diverged_in(run.base_dir)
        learners = settings.learners
        share = settings.num_envs // learners
        self.make_agent: Callable[..., VectorAgent] = partial(
            VectorAgent, spec, share, settings.replay_ratio, learners=learners
        )
        self.agent = agent = self.make_agent(act_devices=settings.act_devices, act_sync_period=settings.act_sync_period)
        agent.keep_diverged_in(run.base_dir)
        refuse({"an own learner": not isinstance(agent.learner, Learner)}, bound(settings), agent=spec.name)
        if run.settings.overlap:
            agent.overlap_learning()
        self.others = Others(agent, learners, run)
        self.worlds.check(agent)
        self.evaluated = np.zeros(self.environments.evaluating, np.int64)  # episodes of each environment
        self._statistics: Statistics = {}  # of the wrappers, merged over all environments of training
        self._total, self._seconds = Meters(), 0.0  # of training, in this process

    def new_agent(self) -> Agent:
        settings = self._run.settings
        return settings.create_agent_fn(self._run.environment, seed=settings.seed)

    def check_here(self) -> None:
        """Refuse a vector that cannot be made, before anything is written."""
        if self._settings.create_vector_fn is not None:
            self.environments.make(Phase.TRAIN, 1, double_buffered=False).close()
        self.agent.spec.check_chunks()

    def teach(self, lesson: Lesson) -> None:
        """Where the teacher reads what the student reads, environments need show it nothing."""
        if lesson.reads_alike:
            lesson = lesson._replace(view=None, label_at="start")
        settings, spec = self._settings, self.agent.spec
        there = {
            "several learners": settings.learners > 1 and lesson.keeps_replay,
            "many lanes": settings.num_envs > 1,
            "many, a teacher": True,
            "many, a teacher that reads otherwise": lesson.view is not None,
        }
        of_teacher = {
            "RunnerWithTeacher.teacher_steps": int(lesson.collects),
            "load_replay": getattr(spec, "reloads_replay", False),
        }
        # `check` has refused those of the settings beside several learners.
        needs = {**bound(settings), **spec.needs, **of_teacher}
        refuse(there, needs, agent=spec.name, learners=settings.learners, num_envs=settings.num_envs)
        self.environments.view = lesson.view
        self.make_agent = partial(_taught, self.make_agent, lesson)
        _give(self.agent, lesson)

    def tell_lessons(self, what: str, *arguments: Any) -> None:
        self.others.tell("tell_lessons", what, *arguments)
        self.agent.meters = Meters()  # nothing is played meanwhile
        with self.others.running.watched() if self.others.running is not None else nullcontext():
            getattr(self.agent.lessons, what)(*arguments)
        self.others.answers()

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Make the environments of training and, if there is evaluation, those of evaluation; close them at the end."""
        length = self._run.lengths[Phase.EVAL]
        with ExitStack() as stack:
            self.share = self.worlds.open(stack, self)
            if length.frames or length.episodes:
                envs = self.environments.make(Phase.EVAL, self.environments.evaluating)
                self._evaluation_envs = stack.enter_context(closing(envs))
            self.agent.times.take()
            yield

    def train(self, length: Length) -> PlayedPhase:
        agent, run, others, counts, began = self.agent, self._run, self.others, self._run.counts, time.perf_counter()
        before, updates, first = counts.frames, agent.updates, counts.episodes[Phase.TRAIN]
        # What a teacher has begun to play, its student does not play on.
        collects = agent.lessons is not None and agent.lessons.collects
        cuts = collects or (run.writes and run.settings.exact_resume)
        agent.set_time(run.clock.seconds)
        others.tell("train_along", length, cuts, run.clock.seconds)
        with others.running.watched() if others.running is not None else nullcontext():
            trained = [self.share.train(length, cuts, partial(self.show, Phase.TRAIN, first), run.due)]
        trained += others.answers()
        self.worlds.note(trained)
        self._statistics = merged([known for each in trained for known in each.statistics])
        over = [episode for each in trained for episode in each.over]
        counts.frames = sum(each.frames for each in trained)
        counts.cut_frames += sum(each.cut_frames for each in trained)
        counts.episodes[Phase.TRAIN] = first + len(over)
        for name in COUNTED:
            of_others = [getattr(each.meters, name) for each in trained[1:] if name != "updates"]  # all make the same
            setattr(agent.meters, name, getattr(agent.meters, name) + sum(of_others))
            setattr(self._total, name, getattr(self._total, name) + getattr(agent.meters, name))
        self._seconds += time.perf_counter() - began
        frames = counts.frames - before
        self.show(Phase.TRAIN, first, over, frames, agent.meters)
        actions, made = sum(each.actions for each in trained), agent.updates - updates
        whole = length.is_reached(frames, len(over))
        return PlayedPhase(_episodes(over), actions, made, None, frames, times=agent.times.take(), whole=whole)

    def evaluate(self, length: Length) -> PlayedPhase:
        """Let each environment play its share, in episodes that no other phase counts."""
        agent, run, envs, count = self.agent, self._run, self._evaluation_envs, self.environments.evaluating
        rows = RunningEpisodes(agent.spec, count, eval_mode=True)
        rows.episode[:] = self.evaluated - 1
        rows.training_frames = run.counts.frames
        over: list[list[Ended]] = [[] for _ in range(count)]
        digests = [0] * count  # of the running episodes
        seen: list[list[int]] = [[] for _ in range(count)]  # of those in `over`

        def is_done(env_id: int) -> bool:
            if length.episodes:
                return len(over[env_id]) >= length.episodes // count + (env_id < length.episodes % count)
            return sum(episode.frames for episode in over[env_id]) >= -(-length.frames // count)

        seeds = self.environments.seeds_of(Phase.EVAL, count)
        give_statistics(envs, [self._statistics] * count, frozen=True)
        envs.begin(seeds(self.evaluated.tolist()))
        running = {env_id for env_id in range(count) if not is_done(env_id)}
        while running:
            if run.ending.asked:
                envs.cut()
                return NOTHING_PLAYED._replace(whole=False)
            shown = envs.recv()
            for episode in rows.note(shown):
                digest, digests[episode.env_id] = digests[episode.env_id], 0
                if episode.env_id in running and not episode.lost:
                    seen[episode.env_id].append(digest)
                    over[episode.env_id].append(episode)
                    if is_done(episode.env_id):
                        running.remove(episode.env_id)
            actions = rows.decide(shown, agent.policy)
            observations = agent.spec.without_tuples(shown.observation)
            for row, i in enumerate(shown.env_ids.tolist()):
                observation = each_array(lambda array, row=row: array[row], observations)
                digests[i] = checksum(actions[row], checksum(observation, digests[i]))
            envs.send(shown.env_ids, actions)
        envs.cut()
        self.evaluated += [len(each) for each in over]
        every = [episode for each in over for episode in each]
        first = run.counts.episodes[Phase.EVAL]
        run.counts.episodes[Phase.EVAL] += len(every)
        frames = sum(episode.frames for episode in every)
        self.show(Phase.EVAL, first, every, frames)
        agent.times.take()
        known = [digest for each in seen for digest in each]
        episodes = [episode._replace(digest=digest) for episode, digest in zip(_episodes(every), known, strict=True)]
        return PlayedPhase(episodes, sum(episode.actions for episode in every), 0, None, frames)

    def show(self, phase: Phase, first: int, over: Sequence[Ended], frames: int, meters: Meters | None = None) -> None:
        """Show a phase's progress, the newest return and, in training, the rates.

        Args:
            phase: Which.
            first: The number of its first episode.
            over: Its episodes so far; those that are not in the table yet are written there.
            frames: Its frames so far.
            meters: Its counts, in training.
        """
        run, name, now = self._run, phase.name.lower(), self._run.clock.seconds
        written = max(run.table.count(name) - first, 0)
        rows = []
        for place, each in enumerate(over[written:], first + written):
            # An evaluation's episodes are played on constant weights.
            of_all, updates = run.counts.frames, self.agent.updates
            of_all, updates = (each.training_frames, each.updates) if each.when else (of_all, updates)
            row = (name, place, run.start_iteration, each.score, each.frames, of_all, updates)
            rows.append(EpisodeRow(*row, min(each.when or now, now), each.won))
        run.table.add(rows)
        words = [f"last return {over[-1].score:g}"] if over else []
        if meters is not None:
            rates = {**meters.rates(), **self._fill()}
            words += [rate_in_short(rate, value) for rate, value in rates.items()]
        run.shown.tell(phase, len(over), frames, ", ".join(words))

    def _fill(self) -> dict[str, float]:
        """Return how full the replay is, if the learner has one."""
        replay = getattr(self.agent.learner, "replay", None)
        return {} if replay is None else {"ReplayFill": len(replay) / replay.facts()["capacity"]}

    def statistics(self, phase: Phase, played: PlayedPhase, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
        if phase != Phase.TRAIN:
            return {}, {}
        rates = {**self.agent.meters.rates(seconds), **self._fill()}
        times = {f"Time/{name}": each for name, each in played.times.items()}
        scalars = {**times, **{f"Vector/{name}": value for name, value in rates.items()}}
        restarts = {"restarts": self.worlds.restarts} if self._settings.processes else {}
        cut_frames = self._run.counts.cut_frames
        return {"train_rates": rates, "cut_frames": cut_frames, **restarts, **self.worlds.statistics()}, scalars

    def table(self) -> str:
        """Return the rates of all training in this process, and how much of it was cut."""
        if not self._seconds:
            return ""
        rates, counts = {**self._total.rates(self._seconds), **self._fill()}, self._run.counts
        lines = [rate_in_a_table(name, value) for name, value in rates.items()]
        share = counts.cut_frames / max(counts.frames, 1)
        if self._settings.processes:
            lines.append(f"{'processes replaced':<38}{self.worlds.restarts:>12,}")
        lines.append(f"{'frames of cut episodes':<38}{share:>12.2%}")
        return "\n".join([*lines, *self.worlds.table(self._seconds)])

    def summary(self) -> Mapping[str, float]:
        return self.agent.summary() if self.agent.updates else {}

    def state(self, directory: Path, number: int) -> dict[str, Any]:
        state = self.agent.bundle_and_checkpoint(directory, number)
        cut_frames = self._run.counts.cut_frames
        vector = {"evaluated": self.evaluated.tolist(), "cut_frames": cut_frames, **self.others.state(number)}
        known = merged(_statistics_in([state, *self.others.states])) or self._statistics
        return {"agent": state, "vector": vector, **({"statistics": known} if known else {}), **self.worlds.state()}

    def check_kind(self, bundle: Mapping[str, Any], continues: bool = True) -> None:
        if continues and "environments" not in bundle.get("identity", {}):
            raise DifferentExperiment(
                f"base_dir {self._run.base_dir} holds checkpoints of an experiment with one environment: choose "
                "another base_dir"
            )

    def load_state(self, directory: Path, number: int, bundle: Mapping[str, Any]) -> None:
        """Episodes that ran when the checkpoint was written are not continued."""
        self.agent.unbundle(directory, number, bundle["agent"])
        vector, count = bundle["vector"], len(self.evaluated)
        self.others.states = vector.get("shares", [])
        all_rows = [each["rows"] for each in (bundle["agent"], *self.others.states)]
        self._run.counts.cut_frames += sum(sum(rows.get("cut", ())) for rows in all_rows)
        evaluated = vector["evaluated"]
        # Another number of evaluation environments continues after the longest.
        self.evaluated = np.array(evaluated if len(evaluated) == count else [max(evaluated)] * count, np.int64)
        self._statistics = merged(_statistics_in([bundle["agent"], *self.others.states]))
        self.worlds.load_state(bundle)

    def begin_with(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self.agent.rows.statistics = [statistics] * self.agent.num_envs

    def forget(self, directory: Path, keep: set[int]) -> None:
        self.agent.forget_checkpoints(directory, keep)

    def identity(self) -> dict[str, Any]:
        return self.agent.identity()

    def facts(self) -> dict[str, str]:
        """Return the environment with its number, and where it is played."""
        settings, name = self._settings, environment_in_words(self._run.environment)
        learners = f", {settings.learners} learners" if settings.learners > 1 else ""
        return {"environment": f"{name}, {settings.num_envs} at once{learners}", **self.worlds.facts()}

    def final(self, episodes: int, newest: Callable[[], Mapping[str, Any]]) -> None: ...


def _taught(make_agent: Callable[..., VectorAgent], lesson: Lesson, **which: Any) -> VectorAgent:
    """Make the agent of a learner, a student."""
    agent = make_agent(**which)
    _give(agent, lesson)
    return agent


def _give(agent: VectorAgent, lesson: Lesson) -> None:
    assert agent.lessons is not None
    agent.lessons.set_teacher(lesson, agent.num_envs)


def _make_share(
    make_agent: Callable[..., VectorAgent],
    make_envs: Callable[..., Any],
    seeds: Sequence[Seeds],
    group: Group,
) -> Share:
    """Make the share of a learner in its process."""
    agent = make_agent(number=group.number)
    return Share(agent, make_envs(num_envs=agent.num_envs), seeds[group.number], group)


def _statistics_in(states: Iterable[Mapping[str, Any]]) -> list[Statistics]:
    """Return the statistics of all environments in the states of learners."""
    return [known for state in states for known in state["rows"].get("statistics", ())]


def _episodes(over: Sequence[Ended]) -> list[EpisodeResult]:
    return [EpisodeResult(episode.score, episode.frames, episode.actions, episode.won) for episode in over]
