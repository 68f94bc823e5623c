"""Training on many environments at once: the runner's phases, played by `VectorAgent` on batched environments.

The episodes of N environments end at different moments, and the state of an environment is never saved. So games
continue across a checkpoint, while a resumed run begins an episode in each environment. The episodes that ran are then
*cut*: they do not count as returns, and the run differs from an uninterrupted one. With ``Runner.exact_resume`` all are
cut, truncated and bootstrapped, where a checkpoint is written, in an uninterrupted run too; both then continue alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gin
import gymnasium as gym
import numpy as np

from async_wrappers.agents.acting.effect import ShowEffect
from async_wrappers.agents.demonstrations.demonstration import delay_in_words
from async_wrappers.agents.experiment.learners import Group, LearnersElsewhere, OtherLearners
from async_wrappers.agents.experiment.metrics import EpisodeRow
from async_wrappers.agents.experiment.other_run import own_modules, portable
from async_wrappers.agents.experiment.rounds import COUNTED, LearnerShare, Share, SoFar, Trained
from async_wrappers.agents.experiment.runner import DifferentExperiment, Runner
from async_wrappers.agents.learning.learner import Learner
from async_wrappers.agents.play.many.actor import Ended, Rows
from async_wrappers.agents.play.many.seeds import NumberedEpisodes, Seeds
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.play import Episode, Length, Phase, Played, checksum, encounter_of
from async_wrappers.agents.settings import (
    POSITIVE_FINITE,
    factory,
    flag,
    must,
    number,
    runner,
    setting,
    whole,
    with_gin_values,
)
from async_wrappers.agents.spaces.schema import each_array
from async_wrappers.agents.spec import Spec
from async_wrappers.agents.timing import Meters, rate_in_a_table, rate_in_short

__all__ = ["VectorRunner"]


def _by_the_agent(name: str, value: Any) -> None:
    """Check nothing: `VectorAgent` checks it."""


@runner
class VectorRunner(Runner):
    """The iterations of `Runner` on many environments at once, with one forward pass for all waiting rows.

    Its other parameters are bound as ``Runner``'s. A training phase ends with the call that completes its frames or
    episodes, not with an episode; environments keep playing from one iteration to the next. In an evaluation phase each
    environment plays the same share of the episodes (or of the frames, in whole episodes), so that short ones are not
    preferred. ``Runner.create_environment_fn`` makes the environment of final evaluations, and those that are played
    unless `create_vector_fn` is given.

    Refused with a ValueError are an agent that plays one environment at a time, a vector whose delay is not that of
    ``Runner.create_environment_fn``, and numbers that cannot be shared out among `learners`.

    Attributes:
        cut_frames: Frames of episodes that were cut, of all training.
    """

    agent: VectorAgent  # type: ignore[assignment]  # it plays many environments

    num_envs: int = whole(16, "Environments of training, N.", 1, "environment")
    evaluation_envs: int | None = whole(
        None,
        "Environments of evaluation phases.",
        1,
        "environment",
        none="at most 8, and at most `num_envs`",
    )
    create_vector_fn: Callable[..., Any] | None = factory(
        None,
        "From ``num_envs=`` to a vector of Gymnasium's, such as ``@create_atari_vector`` or ``@create_gym_vector``. "
        "None puts environments of ``Runner.create_environment_fn`` side by side. Such episodes are seeded one by one, "
        "those of a vector where it begins: at the start of a run and of a resumed one, and with "
        "``Runner.exact_resume`` after each checkpoint; and ``Runner.max_steps_per_episode`` does not reach into a "
        "vector.",
        "@create_gym_vector (without brackets)",
    )
    double_buffered: bool = flag(
        False, "Play two halves in turns: one half steps while the other half's actions are computed."
    )
    processes: int = whole(
        0,
        "Spread the environments over so many processes; 0 plays them in this one. For environments that are slow and "
        "written in Python.",
        0,
        "processes",
    )
    timeout: float | None = number(
        60.0,
        "Seconds for which a step or a reset of such a process is waited for: then it is ended and replaced, its "
        "episodes are cut, and `restarts` counts it in the statistics and the closing table.",
        POSITIVE_FINITE,
        none="no limit",
    )
    checkpoint_every: int = whole(
        1,
        "Iterations between two checkpoints; the last iteration always writes one. See ``Runner.checkpoint_minutes`` "
        "too.",
        1,
        "iteration",
    )
    replay_ratio: float | None = number(
        None,
        "Transitions learnt from per transition played, in the place of ``num_updates_per_train_step`` updates every "
        "``update_period`` decisions of all environments together.",
        POSITIVE_FINITE,
        none="the agent's own rate",
    )
    act_devices: Sequence[str] | None = setting(
        None,
        'Devices that act, such as ``("cuda:1", "cuda:2")``: each has a copy of the policy\'s network, and the rows of '
        "a call are shared among them in the order of their environments. None acts on the learner's network.",
        _by_the_agent,
    )
    act_sync_period: int = whole(1, "Updates after which these copies take over the learner's weights.", 1, "update")
    learners: int = whole(
        1,
        "Processes that learn together, on this machine or, with ``Hosts.engine = 'ray'``, on a cluster. Each has an "
        "equal share of the environments, of each batch and of the replay; gradients are averaged, so that all have "
        "the same weights. 1 learns in this process alone.",
        1,
        "learner",
    )
    create_batched_envs_fn: Callable[..., Any] | None = factory(
        None,
        "Makes the environments, as `async_wrappers.batched.factory.create_batched_envs` does, which None stands for, "
        "with its arguments.",
        "@create_batched_envs (without brackets)",
    )

    def set_up(self) -> None:
        """See `Runner`."""
        self._check_shares()
        super().set_up()
        spec = getattr(self.agent, "spec", None)
        if not isinstance(spec, Spec):
            kind = type(self.agent).__name__
            raise ValueError(f"create_runner.schedule = 'vector' needs an agent that learns, got {kind}")
        self._refuse_what_is_of_one_environment()
        must(
            not spec.needs_effect or self.create_vector_fn is None,
            f"VectorRunner.create_vector_fn must be None with agent {spec.name!r} and critic_at='effect', as a vector "
            f"does not report the frames on which actions land, got {self.create_vector_fn!r}: bind "
            "Runner.create_environment_fn alone, or critic_at = 'start'",
        )
        self._envs: Any = None
        if self.create_vector_fn is not None:
            self._check_delay(self.create_vector_fn)
        spec.keep_diverged_in(self.base_dir)
        share = self.num_envs // self.learners
        self._make_agent = partial(VectorAgent, spec, share, self.replay_ratio, learners=self.learners)
        agent = self._make_agent(act_devices=self.act_devices, act_sync_period=self.act_sync_period)
        agent.keep_diverged_in(self.base_dir)
        must(
            self.learners == 1 or isinstance(agent.learner, Learner),
            f"VectorRunner.learners must be 1 with agent {spec.name!r}, whose learner is no "
            f"async_wrappers.agents.learning.learner.Learner, got {self.learners}",
        )
        if self.overlap:
            agent.overlap_learning()
        # Agents do not import environments: their factory is found by its name in gin.
        self._create_envs = self.create_batched_envs_fn or gin.get_configurable("create_batched_envs")
        self.agent = agent
        self._evaluating = self._number_of_evaluation_envs(self.evaluation_envs)
        self._evaluated = np.zeros(self._evaluating, np.int64)  # episodes of each environment
        self._others: OtherLearners | None = None
        self._shares: list[dict[str, Any]] = []  # the other learners' state in a checkpoint
        self._gathered: list[dict[str, Any]] = []  # their state for the checkpoint that is being written
        self.cut_frames = 0  # of all training
        self._first_number = 0  # of the running phase's episodes
        self._writes = False  # whether the running iteration ends with a checkpoint
        self._trained: Sequence[Trained] = ()  # of all learners, in the last phase
        self._total = Meters()
        self._seconds = 0.0  # of training, in this process

    def _check_shares(self) -> None:
        """Refuse environments and processes that cannot be shared out."""
        must(
            not self.processes or self.create_vector_fn is None,
            f"VectorRunner.processes must be 0 where create_vector_fn makes a whole vector, got {self.processes}",
        )
        shares, word = self._shares_of_envs
        for name in ("num_envs", "processes"):
            value = getattr(self, name)
            must(
                value % shares == 0,
                f"VectorRunner.{name} must be a multiple of the {shares} {word}, got {value}",
            )
        must(
            not self.double_buffered or self.num_envs // shares >= 2,
            f"VectorRunner.num_envs must be >= {2 * shares} where double_buffered=True, 2 for each "
            f"{word.removesuffix('s')}, got {self.num_envs}",
        )
        must(
            self.act_devices is None or self.learners == 1,
            f"VectorRunner.act_devices must be None where learners={self.learners}, got {self.act_devices!r}",
        )

    def _refuse_what_is_of_one_environment(self) -> None:
        must(
            self.pretrain_dataset is None,
            f"Runner.pretrain_dataset must be None where create_runner.schedule = 'vector', got "
            f"{self.pretrain_dataset!r}",
        )
        must(
            encounter_of(self.environment) is None,
            "create_runner.schedule must not be 'vector' where an environment goes from encounter to encounter: many "
            "environments have no common order of them; bind 'continuous_train_and_eval'",
        )
        must(
            not self.exact_resume or self.checkpoint_minutes is None,
            "Runner.checkpoint_minutes must be None where Runner.exact_resume=True and create_runner.schedule = "
            f"'vector', got {self.checkpoint_minutes}: games that the clock cuts are cut alike in no other run",
        )
        must(
            not self.overlap or self.learners == 1,
            f"Runner.overlap must be False where VectorRunner.learners={self.learners}, got True",
        )

    def _check_delay(self, create_vector: Callable[..., Any]) -> None:
        """Refuse a vector whose delay differs from that of the environment of final evaluations."""
        here = delay_in_words(self.environment)
        vector = create_vector(num_envs=1)
        if not isinstance(vector, gym.vector.VectorEnv):
            return  # it is refused where it is played
        with _closed(vector):
            if isinstance(vector.unwrapped, gym.vector.AsyncVectorEnv):
                return  # of environments in other processes
            layers = [vector, *getattr(vector.unwrapped, "envs", ())]
            there = next((words for words in map(delay_in_words, layers) if words != "none"), "none")
        if here != there:
            raise ValueError(
                "VectorRunner.create_vector_fn must make environments with the delay of Runner.create_environment_fn, "
                f"which final evaluations play, {here}, got {there}: bind RealtimeDelay and VectorRealtimeDelay alike"
            )

    def _number_of_evaluation_envs(self, wanted: int | None) -> int:
        length = self._lengths[Phase.EVAL]
        most = min(8, self.num_envs) if wanted is None else wanted
        return min(most, length.episodes) if length.episodes else most

    # The environments.

    def resume(self) -> bool:
        """See `Runner.resume`; a vector that cannot be made is refused here, before anything is written."""
        if self.create_vector_fn is not None:
            self._make_envs(Phase.TRAIN, 1, double_buffered=False).close()
        return super().resume()

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Make the environments of training and, if there is evaluation, those of evaluation; close them at the end."""
        length = self._lengths[Phase.EVAL]
        with ExitStack() as stack:
            self._share = self._open_share(stack)
            if length.frames or length.episodes:
                evaluation_envs = self._make_envs(Phase.EVAL, self._evaluating)
                self._evaluation_envs = stack.enter_context(closing(evaluation_envs))
            yield

    def _open_share(self, stack: ExitStack) -> LearnerShare:
        """Return what plays and learns, and let `stack` close it."""
        if self.learners > 1:
            self._others = stack.enter_context(closing(self._start_learners()))
        group = None if self._others is None else self._others.group
        self._envs = stack.enter_context(closing(self._make_envs(Phase.TRAIN, self.num_envs // self.learners)))
        return Share(self.agent, self._envs, self._training_seeds(0), group)

    def _start_learners(self) -> OtherLearners:
        """Start the other learners, and restore them from the checkpoint that this one has loaded, if any."""
        make_share, elsewhere = self._share_elsewhere()
        others = OtherLearners(make_share, self.learners, own_modules(), self.threads, elsewhere)
        try:
            learner = cloudpickle.dumps(self.agent.learner.state_dict())
            number = self._replay_number
            states: list[Any] = [*self._shares] or [None] * (self.learners - 1)
            each = [(learner, state, self._checkpoints, number) for state in states]
            others.tell("restore", each=each)
            if lost := sum(others.answers()):
                self._warn_of_lost(number, lost)
        except BaseException:
            others.close()
            raise
        return others

    def _share_elsewhere(self) -> tuple[Callable[[Group], LearnerShare], LearnersElsewhere | None]:
        """Return what makes another learner's share, and where it runs; None is this machine."""
        return partial(_make_share, self._make_agent, self._portable_envs(), self._all_seeds()), None

    @property
    def _checkpoints(self) -> Path:
        """The directory of checkpoints, as other learners find it too."""
        return self._checkpointer.directory.absolute()

    def _make_envs(self, phase: Phase, count: int, **other: Any) -> Any:
        return self._checked(phase, self._create_envs(num_envs=count, **{**self._of_envs(phase), **other}))

    def _checked(self, phase: Phase, envs: Any) -> Any:
        """Return environments whose spaces are those of single ones; others are closed and refused."""
        here = self.environment.observation_space, self.environment.action_space
        if self._critic_of(phase) is not None:
            here = ShowEffect.space(here[0]), here[1]
        for name, ours, theirs in zip(
            ("observation", "action"), here, (envs.observation_space, envs.action_space), strict=True
        ):
            if ours != theirs:
                envs.close()
                raise ValueError(
                    f"VectorRunner.create_vector_fn must make environments with the {name} space of "
                    f"Runner.create_environment_fn, {ours}, got {theirs}"
                )
        return envs

    def _of_envs(self, phase: Phase, portable_too: bool = False) -> dict[str, Any]:
        """Return the factory of environments, on demand one that works in another process too."""
        create_environment, create_vector = self.create_environment_fn, self.create_vector_fn
        if self.processes or portable_too:
            create_environment = portable(create_environment)
        if create_vector is not None and portable_too:
            create_vector = with_gin_values(create_vector)
        of_all = self.num_envs if phase == Phase.TRAIN else self._evaluating
        return {
            "make_env": _Numbered(
                create_environment, self._critic_of(phase), self.seed, phase, of_all, self.max_steps_per_episode
            ),
            "create_vector_fn": create_vector,
            "double_buffered": self.double_buffered and phase == Phase.TRAIN,
            "processes": self.processes // self._shares_of_envs[0] if phase == Phase.TRAIN else self.processes,
            **({"timeout": self.timeout} if self.processes else {}),
        }

    def _portable_envs(self) -> Callable[..., Any]:
        """Return what makes the environments of training from ``num_envs=`` in another process."""
        return partial(with_gin_values(self._create_envs), **self._of_envs(Phase.TRAIN, portable_too=True))

    def _critic_of(self, phase: Phase) -> str | None:
        """Return the name of the agent whose critic reads the effects of a phase; None where none does."""
        spec = self.agent.spec
        return spec.name if spec.needs_effect and phase == Phase.TRAIN else None

    @property
    def _shares_of_envs(self) -> tuple[int, str]:
        """Into how many equal shares the environments of training are divided, and the word for them."""
        return self.learners, "learners"

    def _all_seeds(self) -> list[Seeds]:
        return [self._training_seeds(number) for number in range(self._shares_of_envs[0])]

    def _training_seeds(self, share: int) -> Seeds:
        first = share * self.num_envs // self._shares_of_envs[0]
        return Seeds(self.seed, Phase.TRAIN, self.create_vector_fn is not None, first, self.num_envs)

    # Phases.

    def _run_iteration(self, iteration: int) -> None:
        self._writes = (iteration + 1) % self.checkpoint_every == 0 or iteration == self.num_iterations - 1
        super()._run_iteration(iteration)

    @property
    def _saves_amid(self) -> bool:
        """Whether games may continue across a checkpoint, as they do across timed ones and those at Ctrl+C."""
        return not self.exact_resume

    def _run_phase(self, phase: Phase, length: Length) -> Played:
        self._first_number = self.episodes[phase]
        return self._train(length) if phase == Phase.TRAIN else self._evaluate(phase, length)

    def _train(self, length: Length) -> Played:
        agent, others, carried = self.agent, self._others, self._carried(Phase.TRAIN)
        so_far = SoFar(**carried["so_far"]) if carried else SoFar(agent.updates, self.frames)
        episodes_before = self._first_number = self.episodes[Phase.TRAIN] - len(so_far.over)
        frames_done = self.frames - so_far.frames_before
        episodes_left = None if length.episodes is None else length.episodes - len(so_far.over)
        terms = length.frames - frames_done, episodes_left, self._writes and self.exact_resume
        cut_before = self.cut_frames

        def show(over: Sequence[Ended], frames: int, meters: Meters) -> None:
            self._show(Phase.TRAIN, [*so_far.over, *over], frames_done + frames, meters)

        def count(trained: Sequence[Trained]) -> SoFar:
            """Return the phase's results, and add them to the run's counts."""
            self.frames = sum(each.frames for each in trained)
            self.cut_frames = cut_before + sum(each.cut_frames for each in trained)
            now = so_far.and_then(trained)
            self.episodes[Phase.TRAIN] = episodes_before + len(now.over)
            return now

        def due(harmless: bool) -> int:
            return self._next_replay if self._ending.asked or (harmless and self._is_due()) else 0

        def save(number: int, trained: Trained) -> None:
            answers = [] if others is None else others.answers()
            self._gathered = [state for state, _ in answers]
            now = count([trained, *(each for _, each in answers)])
            self._save_amid({"phase": Phase.TRAIN.name, "so_far": now.plain()})

        if others is not None:
            others.tell("train_along", *terms, self._checkpoints)
        with self._ending.at_once():  # thousands of games take minutes to seed
            self._share.begin()
        with others.watched() if others is not None else nullcontext():
            trained = [self._share.train(*terms, show, due, save)]
        trained += others.answers() if others is not None else []
        self._trained = trained
        now = count(trained)
        for name in COUNTED:
            setattr(agent.meters, name, getattr(now, name))
        frames = self.frames - now.frames_before
        self._show(Phase.TRAIN, now.over, frames, agent.meters)
        return Played(_episodes(now.over), now.actions, agent.updates - now.updates_before, None, frames)

    def _evaluate(self, phase: Phase, length: Length) -> Played:
        """Let each environment play its share, in episodes that no other phase counts."""
        agent, envs, count = self.agent, self._evaluation_envs, self._evaluating
        rows = Rows(agent.spec, count, eval_mode=True)
        rows.episode[:] = self._evaluated - 1
        rows.training_frames = self.frames
        over: list[list[Ended]] = [[] for _ in range(count)]
        digests = [0] * count  # of the running episodes
        seen: list[list[int]] = [[] for _ in range(count)]  # of those in `over`

        def is_done(env_id: int) -> bool:
            if length.episodes:
                return len(over[env_id]) >= length.episodes // count + (env_id < length.episodes % count)
            return sum(episode.frames for episode in over[env_id]) >= -(-length.frames // count)

        seeds = Seeds(self.seed, phase, self.create_vector_fn is not None, 0, count)
        envs.begin(seeds(self._evaluated.tolist()))
        running = {env_id for env_id in range(count) if not is_done(env_id)}
        while running:
            if self._ending.asked:
                self._save_amid(None)  # the evaluation is begun again
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
        self._evaluated += [len(each) for each in over]
        every = [episode for each in over for episode in each]
        self.episodes[phase] += len(every)
        frames = sum(episode.frames for episode in every)
        self._show(phase, every, frames)
        known = [digest for each in seen for digest in each]
        episodes = [episode._replace(digest=digest) for episode, digest in zip(_episodes(every), known, strict=True)]
        return Played(episodes, sum(episode.actions for episode in every), 0, None, frames)

    def _write_rows(self, phase: Phase, over: Sequence[Ended]) -> None:
        """Write the episodes of a phase, which are all so far, into the table, but for those that are in it."""
        if self._table is None:
            return
        name, first, now = phase.name.lower(), self._first_number, time.time()
        written = max(self._table.count(name) - first, 0)
        rows = []
        for place, each in enumerate(over[written:], first + written):
            # An evaluation's episodes are played on constant weights.
            frames, updates = (each.training_frames, each.updates) if each.when else (self.frames, self.agent.updates)
            seconds = self._seconds_at(each.when or now)
            row = (name, place, self.start_iteration, each.score, each.frames, frames, updates, seconds, each.won)
            rows.append(EpisodeRow(*row))
        self._table.add(rows)

    def _show(self, phase: Phase, over: Sequence[Ended], frames: int, meters: Meters | None = None) -> None:
        """Show a phase's progress, the newest return and, in training, the rates."""
        self._write_rows(phase, over)
        if self._progress is None:
            return
        self._played[phase] = 0, 0
        words = [f"last return {over[-1].score:g}"] if over else []
        if meters is not None:
            rates = {**meters.rates(), **self._fill()}
            words += [rate_in_short(name, value) for name, value in rates.items()]
        self._tell(phase, len(over), frames, ", ".join(words))

    def _summarize(
        self, phase: Phase, played: Played, seconds: float, line: dict[str, Any], scalars: dict[str, float]
    ) -> None:
        super()._summarize(phase, played, seconds, line, scalars)
        if phase != Phase.TRAIN:
            return
        meters = self.agent.meters
        self._seconds += seconds
        for name in ("acted", "added", "updates", "sampled", "lag"):
            setattr(self._total, name, getattr(self._total, name) + getattr(meters, name))
        rates = {**meters.rates(seconds), **self._fill()}
        scalars |= {f"Vector/{name}": value for name, value in rates.items()}
        line["train_rates"] = rates
        line["cut_frames"] = self.cut_frames
        if self.processes:
            line["restarts"] = self._restarts

    @property
    def _restarts(self) -> int:
        """Processes of this process's training environments that died or were late, and were replaced."""
        return int(getattr(self._envs, "restarts", 0))

    def _fill(self) -> dict[str, float]:
        """Return how full the replay is, if the learner has one."""
        replay = getattr(self.agent.learner, "replay", None)
        return {} if replay is None else {"ReplayFill": len(replay) / replay.facts()["capacity"]}

    def run_experiment(self) -> None:
        """Run the iterations that are still to do, and print a table of rates."""
        super().run_experiment()
        if self._seconds:
            print(self.table(), flush=True)

    def table(self) -> str:
        """Return the rates of all training in this process, and how much of it was cut."""
        rates = {**self._total.rates(self._seconds), **self._fill()}
        lines = [rate_in_a_table(name, value) for name, value in rates.items()]
        share = self.cut_frames / max(self.frames, 1)
        if self.processes:
            lines.append(f"{'processes replaced':<38}{self._restarts:>12,}")
        return "\n".join([*lines, f"{'frames of cut episodes':<38}{share:>12.2%}"])

    # Checkpoints.

    def _save(self, iteration: int) -> None:
        if self._writes:
            super()._save(iteration)

    def _bundle(self, agent: Mapping[str, Any], done: int) -> dict[str, Any]:
        vector: dict[str, Any] = {"evaluated": self._evaluated.tolist(), "cut_frames": self.cut_frames}
        if self._others is not None:
            if not self._gathered:
                self._others.tell("save", self._checkpoints, self._replay_number)
                self._gathered = self._others.answers()
            vector["shares"] = self._shares = self._gathered
            self._gathered = []
        return {**super()._bundle(agent, done), "vector": vector}

    def _take_counts(self, bundle: Mapping[str, Any]) -> None:
        super()._take_counts(bundle)
        self._shares = bundle["vector"].get("shares", [])
        # Episodes that ran when the checkpoint was written are not continued.
        all_rows = [each["rows"] for each in (bundle["agent"], *self._shares)]
        self.cut_frames = bundle["vector"]["cut_frames"] + sum(sum(rows.get("cut", ())) for rows in all_rows)
        evaluated = bundle["vector"]["evaluated"]
        # Another number of evaluation environments continues after the longest.
        same = len(evaluated) == self._evaluating
        self._evaluated = np.array(evaluated if same else [max(evaluated)] * self._evaluating, np.int64)

    def _check_identity(self, saved: Mapping[str, Any]) -> None:
        if "environments" not in saved:
            raise DifferentExperiment(
                f"base_dir {self.base_dir} holds checkpoints of an experiment with one environment: choose another "
                "base_dir"
            )
        super()._check_identity(saved)

    def facts(self) -> dict[str, str]:
        """Return the run's facts, in words, with the number of environments."""
        facts = super().facts()
        learners = f", {self.learners} learners" if self.learners > 1 else ""
        return {**facts, "environment": f"{facts['environment']}, {self.num_envs} at once{learners}"}


def _make_share(
    make_agent: Callable[..., VectorAgent],
    make_envs: Callable[..., Any],
    seeds: Sequence[Seeds],
    group: Group,
) -> Share:
    """Make the share of a learner in its process."""
    agent = make_agent(number=group.number)
    return Share(agent, make_envs(num_envs=agent.num_envs), seeds[group.number], group)


class _Numbered:
    """Makes an environment whose episodes are seeded by their numbers; it pickles.

    Args:
        make_env: Makes the environment.
        critic: The name of the agent whose critic reads the effects; None shows none.
        *arguments: Of `NumberedEpisodes`.
    """

    def __init__(self, make_env: Callable[[], Any], critic: str | None, *arguments: Any) -> None:
        self._make_env, self._critic, self.arguments = make_env, critic, arguments

    def __call__(self) -> NumberedEpisodes:
        environment = self._make_env()
        if self._critic is not None:
            environment = ShowEffect(environment, self._critic)
        return NumberedEpisodes(environment, *self.arguments)


@contextmanager
def _closed(envs: Any) -> Iterator[Any]:
    try:
        yield envs
    finally:
        envs.close()


def _episodes(over: Sequence[Ended]) -> list[Episode]:
    return [Episode(episode.score, episode.frames, episode.actions, episode.won) for episode in over]
