"""The settings of many environments, and the environments that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gin
import gymnasium as gym
from absl import logging

from async_wrappers.agents.acting.frames_read import FramesRead, ShowPast, ShowPastRows
from async_wrappers.agents.config.config import portable
from async_wrappers.agents.hyperparameters import (
    POSITIVE_FINITE,
    factory,
    flag,
    must,
    number,
    part,
    setting,
    whole,
    with_gin_values,
)
from async_wrappers.agents.needs_and_offers import bound, refuse
from async_wrappers.agents.play.play import (
    Phase,
    delay_in_words,
    delay_layer,
    encounter_of,
    environment_seed,
    is_game_over,
)
from async_wrappers.agents.spec import Spec
from async_wrappers.own_returns import reward_changers, with_own_returns
from async_wrappers.wrapper_statistics import statistics_of

if TYPE_CHECKING:
    from async_wrappers.agents.experiment.run import Run


def _by_the_agent(name: str, value: Any) -> None:
    """Check nothing: `VectorAgent` checks it."""


@part
class VectorRunner:
    """Many environments that are played at once, with one forward pass for all waiting rows.

    Its other parameters are bound as ``Runner``'s. A training phase ends with the call that completes its frames or
    episodes, not with an episode; environments keep playing from one iteration to the next. In an evaluation phase each
    environment plays the same share of the episodes (or of the frames, in whole episodes), so that short ones are not
    preferred. ``Runner.create_environment_fn`` makes the environment of final evaluations, and those that are played
    unless `create_vector_fn` is given.

    Refused with a ValueError are an agent that plays one environment at a time, a vector whose delay is not that of
    ``Runner.create_environment_fn``, and numbers that cannot be shared out among `learners`.
    """

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
        "Makes a vector of Gymnasium's from ``num_envs=``, such as ``@create_atari_vector`` or "
        "``@create_gym_vector``. None puts environments of ``Runner.create_environment_fn`` side by side, and seeds "
        "each episode. A vector is seeded only where it begins: when a run starts or is resumed, and with "
        "``Runner.exact_resume`` after each checkpoint. ``Runner.max_steps_per_episode`` does not reach into a "
        "vector.",
        "@create_gym_vector (without brackets)",
    )
    double_buffered: bool = flag(
        False, "Play two halves in turns: one half steps while the other half's actions are computed."
    )
    processes: int = whole(
        0,
        "Number of processes that the environments are spread over, for environments that are slow and written in "
        "Python; 0 plays them in this one.",
        0,
        "processes",
    )
    timeout: float | None = number(
        60.0,
        "Seconds that a step or a reset of such a process may take. A slower process is ended and replaced, its "
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
        "Makes the environments from the arguments of `async_wrappers.batched.factory.create_batched_envs`; None for "
        "that function.",
        "@create_batched_envs (without brackets)",
    )


def check(settings: VectorRunner, run: Run, shares: tuple[int, str]) -> None:
    """Refuse settings that do not fit one another, and what is of one environment, with a ValueError.

    Args:
        settings: Of many environments.
        run: Whose settings and environment they go with.
        shares: Into how many equal shares the environments are divided, and the word for them.
    """
    (count, word), of_run = shares, run.settings
    for name in ("num_envs", "processes"):
        given = getattr(settings, name)
        must(given % count == 0, f"VectorRunner.{name} must be a multiple of the {count} {word}, got {given}")
    must(
        encounter_of(run.environment) is None,
        "create_runner.schedule must not be 'vector' where an environment goes from encounter to encounter: many "
        "environments have no common order of them; bind 'continuous_train_and_eval'",
    )
    there = {
        "many": True,
        "many, resumed exactly": of_run.exact_resume,
        "a whole vector": settings.create_vector_fn is not None,
        "two halves": settings.double_buffered and settings.num_envs // count < 2,
        "several learners": settings.learners > 1,
    }
    words: dict[str, Any] = {"learners": settings.learners, "least": 2 * count, "share": word.removesuffix("s")}
    refuse(there, bound(of_run, settings), **words)


class PhaseEnvironments:
    """Makes the environments of a run's phases.

    Args:
        settings: Of many environments.
        run: The experiment.
        spec: The agent's.
        shares: Into how many equal shares those of training are divided.

    Attributes:
        evaluating: Environments of an evaluation phase.
        view: Shows a teacher what it reads in training; None where none is to be shown anything.

    Raises:
        ValueError: The agent reads the effects of actions, and a vector does not report them; or the vector's delay is
            not that of the run's environment.
    """

    def __init__(self, settings: VectorRunner, run: Run, spec: Spec, shares: int) -> None:
        self._settings, self._run, self._spec, self._shares = settings, run, spec, shares
        self.view: Any = None
        create_vector = settings.create_vector_fn
        refuse({"many, effects": spec.needs["critic_at"] == "effect"}, bound(settings), agent=spec.name)
        if create_vector is not None:
            self._check_vector(create_vector)
        # Agents do not import environments: their factory is found by its name in gin.
        self._create = settings.create_batched_envs_fn or gin.get_configurable("create_batched_envs")
        wanted, length = settings.evaluation_envs, run.lengths[Phase.EVAL]
        most = min(8, settings.num_envs) if wanted is None else wanted
        self.evaluating = min(most, length.episodes) if length.episodes else most

    def _check_vector(self, create_vector: Callable[..., Any]) -> None:
        """Refuse a vector whose delay differs from that of final evaluations, or that shows a fast path nothing."""
        here = delay_in_words(self._run.environment)
        vector = create_vector(num_envs=1)
        if not isinstance(vector, gym.vector.VectorEnv):
            return  # it is refused where it is played
        with _closed(vector):
            if (past := self._past_of(Phase.TRAIN)).age is not None:
                ShowPastRows(vector, past)
            if isinstance(vector.unwrapped, gym.vector.AsyncVectorEnv):
                # Its environments are in other processes.
                if hidden := [*statistics_of(self._run.environment), *reward_changers(self._run.environment)]:
                    logging.warning(
                        "an AsyncVectorEnv hides %s: no checkpoint and no evaluation has statistics of its wrappers, "
                        "and returns are of changed rewards: leave VectorRunner.create_vector_fn out, and bind "
                        "VectorRunner.processes",
                        ", ".join(dict.fromkeys(hidden)),
                    )
                return
            delay = delay_layer(vector)
            if delay is not None and delay.terms.asks_for_rows:
                return  # training spreads delays, of which final evaluations play one
            layers = [vector, *getattr(vector.unwrapped, "envs", ())]
            there = next((words for words in map(delay_in_words, layers) if words != "none"), "none")
        if here != there:
            raise ValueError(
                "VectorRunner.create_vector_fn must make environments with the delay of Runner.create_environment_fn, "
                f"which final evaluations play, {here}, got {there}: bind RealtimeDelay and VectorRealtimeDelay alike"
            )

    def make(self, phase: Phase, count: int, **other: Any) -> Any:
        """Make a number of them for a phase, with other arguments than the settings'."""
        return self.checked(phase, self._create(num_envs=count, **{**self.arguments(phase), **other}))

    def checked(self, phase: Phase, envs: Any) -> Any:
        """Return environments whose spaces are those of single ones; others are closed and refused."""
        here = self._run.environment.observation_space, self._run.environment.action_space
        if (past := self._past_of(phase)).parts:
            here = past.space(here[0]), here[1]
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

    def portable(self) -> Callable[..., Any]:
        """Return what makes the environments of training from ``num_envs=`` in another process."""
        return partial(with_gin_values(self._create), **self.arguments(Phase.TRAIN, portable_too=True))

    def all_seeds(self) -> list[Seeds]:
        """Return the seeds of each share of training."""
        return [self.seeds(number) for number in range(self._shares)]

    def seeds(self, share: int) -> Seeds:
        """Return the seeds of a share of training."""
        first = share * self._settings.num_envs // self._shares
        return self.seeds_of(Phase.TRAIN, self._settings.num_envs, first)

    def seeds_of(self, phase: Phase, count: int, first: int = 0) -> Seeds:
        """Return the seeds of a phase with `count` environments, from the environment `first` on."""
        return Seeds(self._run.settings.seed, phase, self._settings.create_vector_fn is not None, first, count)

    def arguments(self, phase: Phase, portable_too: bool = False) -> dict[str, Any]:
        """Return what they are made with: a factory of one, on demand one that works in another process too."""
        each, of_run = self._settings, self._run.settings
        create_environment, create_vector = of_run.create_environment_fn, each.create_vector_fn
        if each.processes or portable_too:
            create_environment = portable(create_environment)
        if create_vector is not None and portable_too:
            create_vector = with_gin_values(create_vector)
        if create_vector is not None:
            create_vector = partial(_with_own_returns, create_vector)
        past = self._past_of(phase)
        if create_vector is not None and past.age is not None:
            create_vector = partial(_showing_past, create_vector, past)
        trains = phase == Phase.TRAIN
        seeded = of_run.seed, phase, each.num_envs if trains else self.evaluating, of_run.max_steps_per_episode
        return {
            "make_env": _Numbered(create_environment, past, *seeded),
            "create_vector_fn": create_vector,
            "double_buffered": each.double_buffered and trains,
            "processes": each.processes // self._shares if trains else each.processes,
            **({"timeout": each.timeout} if each.processes else {}),
        }

    def _past_of(self, phase: Phase) -> FramesRead:
        """Return what the agent reads beside the start of a decision, with its teacher."""
        return FramesRead.of(self._spec, phase == Phase.TRAIN, self.view)


def _with_own_returns(create_vector: Callable[..., Any], num_envs: int) -> Any:
    """Make a vector that reports its own returns where wrappers change rewards."""
    return with_own_returns(create_vector(num_envs=num_envs))


def _showing_past(create_vector: Callable[..., Any], past: FramesRead, num_envs: int) -> ShowPastRows:
    """Make a vector that shows a fast path what it reads."""
    return ShowPastRows(create_vector(num_envs=num_envs), past)


class _Numbered:
    """Makes an environment whose episodes are seeded by their numbers; it pickles.

    Args:
        make_env: Makes the environment.
        past: What it shows beside the start of a decision.
        *arguments: Of `NumberedEpisodes`.
    """

    def __init__(self, make_env: Callable[[], Any], past: FramesRead, *arguments: Any) -> None:
        self._make_env, self._past, self.arguments = make_env, past, arguments

    def __call__(self) -> NumberedEpisodes:
        environment = with_own_returns(self._make_env())
        if self._past.parts:
            environment = ShowPast(environment, self._past)
        return NumberedEpisodes(environment, *self.arguments)


@contextmanager
def _closed(envs: Any) -> Iterator[Any]:
    try:
        yield envs
    finally:
        envs.close()


# Seeds of the episodes of many environments.


class NumberedEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds each episode of one of N environments by its number, and truncates it after `max_frames`.

    ``reset(seed=n * N + l)`` begins episode n of environment l; a reset without a seed begins the next one. So every
    episode is a function of the run's seed, the phase, n and l (`environment_seed`). Where ``info["game_over"]`` is
    False at an end, a reset without a seed begins the same episode's next life. It is seeded from inside, because
    `BatchedEnvs` seeds an environment at its start and never again: vectors cannot do more.

    Args:
        env: The environment.
        seed: The run's.
        phase: What the episodes are for.
        num_envs: N.
        max_frames: Frames after which an episode is truncated; None for no limit.
    """

    def __init__(
        self, env: gym.Env[Any, Any], seed: int, phase: int, num_envs: int, max_frames: int | None = None
    ) -> None:
        super().__init__(env)
        self._seed, self._phase, self._num_envs, self._max_frames = seed, phase, num_envs, max_frames
        self._number: int | None = None
        self._env_id = self._frames = self._before = 0  # frames of the episode, and of its lives before this one
        self._goes_on = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        goes_on, self._goes_on = self._goes_on, False
        if goes_on and seed is None:
            self._before = self._frames
            return self.env.reset(options=options)
        self._frames = self._before = 0
        if seed is not None:
            self._number, self._env_id = divmod(seed, self._num_envs)
        elif self._number is not None:
            self._number += 1
        else:
            return self.env.reset(options=options)
        seed = environment_seed(self._seed, self._phase, self._number, self._env_id)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate the episode if it has become too long."""
        outcome = self.env.step(action)
        try:
            observation, reward, terminated, truncated, info = outcome
            realtime = info.get("realtime")
        except (AttributeError, TypeError, ValueError):
            return outcome  # no step: whoever plays this environment refuses it
        self._frames = self._frames + 1 if realtime is None else self._before + int(realtime["frame"])
        too_long = self._max_frames is not None and self._frames >= self._max_frames
        self._goes_on = terminated and not too_long and not is_game_over(info)
        if terminated and too_long and not is_game_over(info):
            info = {**info, "game_over": True}
        return observation, reward, terminated, truncated or (too_long and not terminated), info


@dataclass(frozen=True)
class Seeds:
    """Maps the numbers of episodes, one in each environment, to the seeds of the environments' resets.

    Attributes:
        seed: The run's.
        phase: What the episodes are for.
        whole: Whether the environments exist only as a vector.
        first: Number of the first environment.
        of_all: Environments of all learners.
    """

    seed: int
    phase: Phase
    whole: bool
    first: int
    of_all: int

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        """Return the seed of each environment's reset."""
        of_envs = enumerate(numbers, self.first)
        if self.whole:
            return [environment_seed(self.seed, self.phase, number, env_id) for env_id, number in of_envs]
        return [number * self.of_all + env_id for env_id, number in of_envs]  # as `NumberedEpisodes` reads it
