"""`score_policy`: a policy of any library on realtime MinAtar, beside our scores.

The games, the limit of frames and the sticky actions are those of ``configs/minatar/vtrace.gin``; the scores beside it
are in ``minatar_scores.csv``, which ``benchmarks/studies/minatar_scores.py`` makes from the grid. On a game

    normalised score = (score - random) / (our score without delay - random)

with the mean score of the random player without delay, and ours as the mean over seeds; both are taken as exact. A game
on which our score without delay is not above random has no such scale, and is left out of the interquartile mean over
games: the mean without the lowest and the highest quarter, rounded down (Agarwal et al., "Deep reinforcement learning
at the edge of the statistical precipice", NeurIPS 2021).

A score is counted below the delay and all wrappers of the user's, so that no wrapper can change it.
"""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from async_wrappers.analysis.regret import AGENT_METHODS, RESAMPLES, Estimate, as_player, episode_seeds
from async_wrappers.checks import choice, function, whole, whole_frames
from async_wrappers.envs.minatar import MINATAR_GAMES, create_minatar_environment, find_minatar_game
from async_wrappers.extras import ignored_warnings
from async_wrappers.files import path_of, refuse_damage, write_text_atomically
from async_wrappers.printing import OwnCodeFailed, in_one_line
from async_wrappers.wrappers.delay import RealtimeDelay

DELAYS = (0, 2, 8)  # frames, the grid's
# Those of the grid that are late with all they do, in its order, and the fast path: told nothing, and told.
WAYS = ("sequential", "asynchronous", "core at release", "chunks", "told", "fast path alone", "fast path")
COLUMNS = ("game", "way", "delay", "seeds", "mean", "low", "high", "random")  # of minatar_scores.csv
PLAYED = ("asynchronous", "sequential")  # the ways that any policy can play
_NAMES = ("game", "delay", "env")  # what a factory may ask for
_POLICY = (
    "a function of the observation, an object with predict(observation, deterministic=True) as in Stable-Baselines3, "
    "or with act(observation, decision)"
)


class GameScore(NamedTuple):
    """A policy's episodes of a game at a delay, in the order of the seeds.

    Attributes:
        game: One of MinAtar's.
        delay: Age of the observation behind an action, in frames.
        scores: Sum of the game's rewards, by episode.
        frames: Length of each episode, in frames.
    """

    game: str
    delay: int
    scores: tuple[float, ...]
    frames: tuple[int, ...]

    @property
    def estimate(self) -> Estimate:
        """The mean score, and its 95 % bootstrap interval over episodes."""
        return _estimate(np.mean(self.scores), _resampled(self.scores, 0))

    def __str__(self) -> str:
        """Return a line."""
        episodes = f"{len(self.scores)} episode{'s' if len(self.scores) > 1 else ''}"
        return f"{self.game}, delay {self.delay}: {_cell(self.estimate)} in {episodes}, {sum(self.frames):,} frames"


@dataclass(frozen=True)
class Reference:
    """Our scores, and the random player's.

    Attributes:
        scores: Mean over seeds and its 95 % interval, by (game, way, delay); delay 0 is under ``"asynchronous"``.
        random: The random player's mean score without delay, by game.
    """

    scores: Mapping[tuple[str, str, int], Estimate]
    random: Mapping[str, float]

    def ours(self, game: str, way: str, delay: int) -> Estimate | None:
        """Return our score; without delay, sequential play is asynchronous play. None if there is no such score."""
        return self.scores.get((game, "asynchronous" if way == "sequential" and delay == 0 else way, delay))

    def normalised(self, game: str, score: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        """Return scores where random is 0 and ours without delay is 1; None if the game has no such scale."""
        random, top = self.random.get(game), self.ours(game, "asynchronous", 0)
        if random is None or top is None or not top.low > random:
            return None
        found: npt.NDArray[np.float64] = (np.asarray(score, np.float64) - random) / (top.mean - random)
        return found


@dataclass(frozen=True)
class MinAtarScores:
    """The result of `score_policy`; printed, it is a table.

    Attributes:
        way: ``"asynchronous"``, an action on every frame, or ``"sequential"``, an action every ``delay + 1`` frames.
        default_action: The action on the other frames.
        seed: Of the episodes.
        played: The scores, game by game, each at all delays.
        reference: Our scores.
    """

    way: str
    default_action: Any
    seed: int
    played: tuple[GameScore, ...]
    reference: Reference = field(repr=False)

    @cached_property
    def games(self) -> tuple[str, ...]:
        """The games, in the order in which they were played."""
        return tuple(dict.fromkeys(each.game for each in self.played))

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """The delays, in the order in which they were played."""
        return tuple(dict.fromkeys(each.delay for each in self.played))

    @cached_property
    def _by_point(self) -> dict[tuple[str, int], GameScore]:
        return {(each.game, each.delay): each for each in self.played}

    def score(self, game: str, delay: int) -> GameScore:
        """Return the episodes of a game at a delay.

        Raises:
            KeyError: It was not played.
        """
        return self._by_point[game, delay]

    def normalised(self, game: str, delay: int) -> float | None:
        """Return the normalised score; None if the game has no scale."""
        found = self.reference.normalised(game, np.mean(self.score(game, delay).scores))
        return None if found is None else float(found)

    def over_games(self, delay: int) -> Estimate | None:
        """Return the interquartile mean of the normalised scores of all games that have a scale; None if none has.

        Its 95 % bootstrap interval resamples the episodes of each game, and the games stay.
        """
        means, drawn = [], []
        for number, game in enumerate(self.games):
            scores = self.score(game, delay).scores
            if (mean := self.reference.normalised(game, np.mean(scores))) is not None:
                means.append(mean)
                drawn.append(self.reference.normalised(game, _resampled(scores, number)))
        return _estimate(interquartile_mean(means), interquartile_mean(drawn)) if means else None

    def ours_over_games(self, way: str, delay: int) -> float | None:
        """Return the same of our scores; None if one of those games has no score of ours."""
        games = [game for game in self.games if self.normalised(game, delay) is not None]
        ours = {game: self.reference.ours(game, way, delay) for game in games}
        means = [self.reference.normalised(game, score.mean) for game, score in ours.items() if score is not None]
        return float(interquartile_mean(means)) if means and len(means) == len(games) else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data with each episode's score, ready for JSON but for a default action that is an array."""
        return {
            "way": self.way,
            "default_action": self.default_action,
            "seed": self.seed,
            "played": [
                {
                    **each._asdict(),
                    **each.estimate._asdict(),
                    "random": self.reference.random.get(each.game),
                    "normalised": self.normalised(each.game, each.delay),
                }
                for each in self.played
            ],
            "over_games": [
                {"delay": delay, **(dict.fromkeys(Estimate._fields) if found is None else found._asdict())}
                for delay, found in ((delay, self.over_games(delay)) for delay in self.delays)
            ],
            "ours": [
                {"game": game, "way": way, "delay": delay, **ours._asdict()}
                for game, way, delay in product(self.games, WAYS, self.delays)
                if (ours := self.reference.ours(game, way, delay)) is not None
            ],
        }

    def to_csv(self, file: str | Path) -> None:
        """Write a row per episode: ``game, way, delay, episode, score, frames``.

        Raises:
            OSError: The file cannot be written.
        """
        rows: list[tuple[object, ...]] = [("game", "way", "delay", "episode", "score", "frames")]
        for each in self.played:
            episodes = enumerate(zip(each.scores, each.frames, strict=True))
            rows += [(each.game, self.way, each.delay, number, *episode) for number, episode in episodes]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_text_atomically(path_of(file), text.getvalue())

    def __str__(self) -> str:
        """Return the table, in Markdown: a row for the policy and one for each of our ways, game by game."""
        shown = [f"delay {delay}" for delay in self.delays]
        rows = [["game", "policy", "random", *shown, *(f"normalised {delay}" for delay in self.delays)]]
        for game in self.games:
            random = self.reference.random.get(game)
            yours = [_cell(self.score(game, delay).estimate) for delay in self.delays]
            own = [_share(self.normalised(game, delay)) for delay in self.delays]
            rows.append([game, "yours", "-" if random is None else f"{random:.1f}", *yours, *own])
            for way in WAYS:
                ours = [self.reference.ours(game, way, delay) for delay in self.delays]
                shares = [None if each is None else self.reference.normalised(game, each.mean) for each in ours]
                rows.append(["", f"ours, {way}", "", *map(_cell, ours), *map(_share, shares)])
        blank = ["" for _ in self.delays]
        rows.append(["over games", "yours", "", *blank, *(_cell(self.over_games(each), 2) for each in self.delays)])
        for way in WAYS:
            means = [self.ours_over_games(way, delay) for delay in self.delays]
            rows.append(["", f"ours, {way}", "", *blank, *map(_share, means)])
        count = len(self.played[0].scores)
        episodes = f"{count} episode{'s' if count > 1 else ''}"
        lines = [
            f"realtime MinAtar, {self.way}, delays in frames, {episodes} each from seed {self.seed}, "
            f"default action {self.default_action!r}",
            "",
            *_aligned(rows),
            "",
            "[low, high]: 95 % intervals, of yours over episodes, of ours over seeds of training",
            "normalised: (score - random) / (our score without delay - random); over games: their interquartile mean",
        ]
        without = [game for game in self.games if self.normalised(game, self.delays[0]) is None]
        if without:
            lines.append(f"no score of ours without delay above random, so not normalised: {', '.join(without)}")
        return "\n".join(lines)


def score_policy(
    make_policy: Callable[..., Any],
    games: Sequence[str] = MINATAR_GAMES,
    delays: Sequence[int] = DELAYS,
    way: str = "asynchronous",
    episodes: int = 30,
    *,
    seed: int = 0,
    default_action: Any = "noop",
    wrappers: Sequence[Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]] = (),
    progress: Callable[[GameScore], object] | None = None,
) -> MinAtarScores:
    """Play a policy on games of realtime MinAtar under delays, and compare its scores with ours.

    Example:
        >>> from async_wrappers import score_policy
        >>> found = score_policy(lambda: lambda observation: 1, ["breakout"], delays=[0, 2], episodes=2)
        >>> found.score("breakout", 2).scores
        (0.0, 0.0)

    Args:
        make_policy: Called with those of the names ``game``, ``delay`` and ``env`` that its signature has (``env`` is
            the delayed environment in its wrappers, for its spaces; another one than is played). It is called once for
            all that would give it the same values: once in all without any of the names, once per game with ``game``
            alone. It returns a function of the observation; an object with Stable-Baselines3's
            ``predict(observation, state, episode_start, deterministic=True)``, of which the state and
            `episode_start` may be missing; or one of the policies of `decompose`. A method ``reset()`` is called at
            the beginning of each episode.
        games: Names of games, in any of the spellings of `create_minatar_environment`.
        delays: In frames; each game is played at each of them.
        way: ``"asynchronous"``: an action on every frame, of an observation that is `delay` frames old.
            ``"sequential"``: observe, think for `delay` frames, act, and observe again.
        episodes: Episodes of each game at each delay.
        seed: Of the episodes: episode n has the same environment seed in every game, at every delay.
        default_action: On the frames without an action of the policy's, as in `RealtimeDelay`; our scores are with the
            no-op.
        wrappers: Applied to the delayed environment, the first one innermost, such as
            ``[gymnasium.wrappers.FlattenObservation]``.
        progress: Called with each game's score at each delay, when it has been played.

    Returns:
        All scores.

    Raises:
        ValueError: An argument is out of range; `make_policy` cannot be called with these names, fails, or returns no
            policy; a wrapper does not fit; or the policy raises an error or gives an action outside the action space.
            An error of the user's code is the cause of this one.
        DependencyNotInstalled: The extra `minatar` is missing.
    """
    wanted = _wanted(make_policy)
    names = list(dict.fromkeys(map(find_minatar_game, _several("games", games, "one game or more", "['breakout']"))))
    given = _several("delays", delays, "one number of frames or more", "[0, 2, 8]")
    frames = list(dict.fromkeys(whole_frames("delays", delay) for delay in given))
    choice("way", way, PLAYED)
    seed = whole("seed", seed, 0)
    seeds = episode_seeds(seed, whole("episodes", episodes, 1))
    wrappers = _several("wrappers", wrappers, "functions", "[gymnasium.wrappers.FlattenObservation]", least=0)
    for wrapper in wrappers:
        function("wrappers", wrapper, "wraps the delayed environment")
    if progress is not None:
        function("progress", progress, "is called with each score")
    reference = read_reference()
    played: list[GameScore] = []
    made: dict[tuple[Any, ...], Any] = {}
    for game, delay in product(names, frames):  # what does not fit is refused before anything is played
        _environment(game, delay, way, default_action, wrappers)[0].close()
    for game, delay in product(names, frames):
        with ExitStack() as closing_all:
            env, tally = _environment(game, delay, way, default_action, wrappers)
            closing_all.callback(env.close)
            values: dict[str, Any] = {"game": game, "delay": delay}
            if "env" in wanted:
                values["env"] = _environment(game, delay, way, default_action, wrappers)[0]
                closing_all.callback(values["env"].close)
            arguments = {name: values[name] for name in wanted}
            key = (game, delay) if "env" in wanted else tuple(arguments.values())
            policy = made[key] if key in made else _made(make_policy, arguments, game, delay)
            if len(key) < 2:  # the others play once, and need not be kept in memory
                made[key] = policy
            played.append(_Match(game, delay, env, tally, policy).play(seeds))
        if progress is not None:
            progress(played[-1])
    return MinAtarScores(way, default_action, seed, tuple(played), reference)


def _several(name: str, values: Any, words: str, example: str, least: int = 1) -> list[Any]:
    """Return the values of a list, a tuple or an array; a text or a single value is refused."""
    try:
        found = None if isinstance(values, str) else list(values)
    except TypeError:
        found = None
    if found is None or len(found) < least:
        raise ValueError(f"{name} must be a list of {words}, such as {example}, got {values!r}")
    return found


def interquartile_mean(values: Any) -> Any:
    """Return the mean along the first axis without the lowest and the highest quarter of the values, rounded down."""
    ordered = np.sort(np.asarray(values, np.float64), axis=0)
    cut = len(ordered) // 4
    return ordered[cut : len(ordered) - cut].mean(axis=0)


def read_reference(path: Path | None = None) -> Reference:
    """Return the scores of a table of the columns `COLUMNS`; None is the one that comes with the package.

    A row without a way holds a random player alone.

    Raises:
        ValueError: It is no such table.
        OSError: It cannot be read.
    """
    source = files("async_wrappers.analysis").joinpath("minatar_scores.csv") if path is None else path
    scores, random = {}, {}
    with refuse_damage(Path(str(source)), "make it again with python -m benchmarks.studies.minatar_scores results.csv"):
        for row in csv.DictReader(io.StringIO(source.read_text(encoding="utf-8"))):
            if row["random"]:
                random[row["game"]] = float(row["random"])
            if row["way"]:
                numbers = (float(row[name]) for name in ("mean", "low", "high"))
                scores[row["game"], row["way"], int(row["delay"])] = Estimate(*numbers)
    return Reference(scores, random)


class _Tally(gym.Wrapper[Any, Any, Any, Any]):
    """Counts an episode's rewards and frames where they arise, below the delay."""

    score: float = 0.0
    frames: int = 0

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self.score, self.frames = 0.0, 0
        return super().reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        shown = super().step(action)
        self.score += float(shown[1])
        self.frames += 1
        return shown


def _environment(
    game: str, delay: int, way: str, default_action: Any, wrappers: Sequence[Callable[[Any], Any]]
) -> tuple[gym.Env[Any, Any], _Tally]:
    """Return the environment of configs/minatar/vtrace.gin in the wrappers, and the tally inside it."""
    tally = _Tally(create_minatar_environment(game))
    env: Any = RealtimeDelay(tally, delay, delay if way == "sequential" else 0, default_action)
    for wrapper in wrappers:
        where = f"wrappers must wrap the delayed environment, and {_named(wrapper)!r} at {game}, delay {delay}, "
        try:
            env = wrapper(env)
            if isinstance(env, gym.Env):
                shows_realtime = "realtime" in env.reset(seed=0)[1]
        except Exception as error:
            raise OwnCodeFailed(f"{where}raised {in_one_line(error)}") from error
        if not isinstance(env, gym.Env):
            raise ValueError(f"{where}returned {_short(env)}, which is no gymnasium.Env")
        if not shows_realtime:
            raise ValueError(f"{where}took 'realtime' out of info: let it keep the info's entries")
    return env, tally


def _wanted(make_policy: Any) -> tuple[str, ...]:
    """Return the names that a factory is called with."""
    function("make_policy", make_policy, "makes the policy")
    try:
        parameters = inspect.signature(make_policy).parameters
    except ValueError:  # a builtin without a signature
        return ()
    by_name = {
        name for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    if any(each.kind == each.VAR_KEYWORD for each in parameters.values()):
        by_name |= set(_NAMES)
    for name, each in parameters.items():
        optional = each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        if not optional and (name not in _NAMES or name not in by_name):
            raise ValueError(
                f"make_policy must be a function of some or none of the names {', '.join(_NAMES)} that returns the "
                f"policy, got {_named(make_policy)!r}, which needs {name!r}: give that argument a default, or write a "
                "function that returns the policy"
            )
    return tuple(name for name in _NAMES if name in by_name)


def _made(make_policy: Callable[..., Any], arguments: Mapping[str, Any], game: str, delay: int) -> Any:
    """Return what a factory returns for a game and a delay."""
    where = f"make_policy must return a policy for {game} at delay {delay}"
    try:
        policy = make_policy(**arguments)
    except Exception as error:
        raise OwnCodeFailed(f"{where}, and {_named(make_policy)!r} raised {in_one_line(error)}") from error
    # By a method of each kind that no text, array or dict has.
    plays = any(callable(getattr(policy, name, None)) for name in ("predict", "act", "release", AGENT_METHODS[0]))
    if isinstance(policy, type) or not (plays or callable(policy)):
        raise ValueError(f"{where}, {_POLICY}, got {_short(policy)}")
    return policy


class _Predicting:
    """A policy with the ``predict`` of Stable-Baselines3, or of SB3-Contrib's with memory, as a player.

    It is called with those of ``state``, ``episode_start`` and ``deterministic`` that it takes. The state begins as
    None with each episode; `episode_start` is bool `[1]`, as of one environment.
    """

    def __init__(self, policy: Any) -> None:
        self._predict = policy.predict
        parameters = inspect.signature(self._predict).parameters
        everything = any(each.kind == each.VAR_KEYWORD for each in parameters.values())
        self._takes = {name for name in ("state", "episode_start", "deterministic") if everything or name in parameters}

    def begin_episode(self, observation: Any, realtime: Mapping[str, Any]) -> Any:
        self._state: Any = None
        return self._ask(observation, True)

    def step(self, reward: float, observation: Any, realtime: Mapping[str, Any]) -> Any:
        return self._ask(observation, False)

    def end_episode(self, reward: float, terminal: bool, observation: Any, realtime: Mapping[str, Any]) -> None:
        pass

    def _ask(self, observation: Any, first: bool) -> Any:
        known = {"state": self._state, "episode_start": np.array([first]), "deterministic": True}
        answer = self._predict(observation, **{name: known[name] for name in self._takes})
        if not isinstance(answer, tuple):
            return answer
        action, self._state = answer
        return action


class _Match:
    """A policy and a game at a delay; every mistake of the policy's is a sentence that names both."""

    def __init__(self, game: str, delay: int, env: gym.Env[Any, Any], tally: _Tally, policy: Any) -> None:
        self.game, self.delay, self._env, self._tally = game, delay, env, tally
        self._player = _Predicting(policy) if hasattr(policy, "predict") else as_player(policy)
        reset = getattr(policy, "reset", None)
        is_told = hasattr(policy, AGENT_METHODS[0])  # an agent, by ``begin_episode``
        self._reset: Callable[[], object] = reset if callable(reset) and not is_told else lambda: None

    def play(self, seeds: Sequence[int]) -> GameScore:
        """Play an episode of each seed."""
        episodes = []
        for seed in seeds:
            self._play_episode(seed)
            episodes.append((self._tally.score, self._tally.frames))
        scores, frames = zip(*episodes, strict=True)
        return GameScore(self.game, self.delay, scores, frames)

    def _play_episode(self, seed: int) -> None:
        player, ask = self._player, self._ask
        observation, info = self._env.reset(seed=seed)
        ask(self._reset)
        action = ask(player.begin_episode, observation, info["realtime"])
        while True:
            observation, reward, terminated, truncated, info = self._env.step(self._checked(action))
            if terminated or truncated:
                ask(player.end_episode, float(reward), bool(terminated), observation, info["realtime"])
                return
            action = ask(player.step, float(reward), observation, info["realtime"])

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise OwnCodeFailed(
                f"the policy for {self.game} at delay {self.delay} must answer observations of "
                f"{self._env.observation_space}, and raised {in_one_line(error)}: wrap the environment as in training "
                "(wrappers, or --wrapper), or make a policy for each game and delay"
            ) from error

    def _checked(self, action: Any) -> Any:
        """Return an element of the action space, or refuse what the policy gave."""
        space = self._env.action_space
        found = _whole(action) if isinstance(space, Discrete) else action
        with ignored_warnings():  # a Box warns of what it converts
            if found is not None and space.contains(found):
                return found
        remedy = "give an element of that space"
        if isinstance(space, Discrete):
            remedy = f"give a whole number from {space.start} to {space.start + space.n - 1}"
        raise ValueError(
            f"the policy for {self.game} at delay {self.delay} must give an action of {space}, got {_short(action)}: "
            f"{remedy}, or wrap the environment as in training (wrappers, or --wrapper)"
        )


def _whole(value: Any) -> int | None:
    """Return an int of Python's, or what a NumPy scalar or array of one whole number or bool holds; None for others."""
    if isinstance(value, int):
        return int(value)
    if not hasattr(value, "__array__"):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # a tensor that is not in this machine's memory, or has a gradient
        return None
    return int(array.item()) if array.shape in ((), (1,)) and array.dtype.kind in "biu" else None


# Statistics, and how they are written.


def _resampled(scores: Sequence[float], number: int) -> npt.NDArray[np.float64]:
    """Return the means of resampled episodes; the generator's seed is fixed, so that an interval can be repeated."""
    drawn = np.random.default_rng(number).integers(len(scores), size=(RESAMPLES, len(scores)))
    found: npt.NDArray[np.float64] = np.asarray(scores, np.float64)[drawn].mean(axis=1)
    return found


def _estimate(value: Any, drawn: Any) -> Estimate:
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Estimate(float(value), float(low), float(high))


def _cell(estimate: Estimate | None, digits: int = 1) -> str:
    if estimate is None:
        return "-"
    mean, low, high = (f"{number:.{digits}f}" for number in estimate)
    return mean if estimate.low == estimate.high else f"{mean} [{low}, {high}]"


def _share(value: Any) -> str:
    return "-" if value is None else f"{float(value):.2f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in rows]
    return [lines[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines[1:]]


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or _short(function))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:100]}..."
