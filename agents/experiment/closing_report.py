"""The closing report of a run: a table of the trained agent against random and no-op, and a learning curve."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np

from async_wrappers.agents.experiment.evaluate import (
    bootstrap_interval,
    difference_interval,
    episodes_of,
    interquartile_mean,
    words_of_equal_episodes,
)
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import name_in, read_facts, read_iterations
from async_wrappers.agents.experiment.progress import closing_table, different_episodes
from async_wrappers.agents.play.play import EpisodeResult, encounter_of
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.baselines import NoopAgent, RandomAgent
from async_wrappers.agents.timing import duration
from async_wrappers.files import refuse_damage, write_atomically, write_text_atomically
from async_wrappers.printing import printable
from async_wrappers.wrapper_statistics import frozen


class ReportRow(NamedTuple):
    """One agent's evaluation: the unclipped return of each episode, frames per second, and how many episodes differ.

    That is None where it is not known.
    """

    agent: str
    scores: list[float]
    frames_per_second: float
    different: int | None = None


def compare_with_baselines(runner: Experiment) -> list[ReportRow]:
    """Evaluate the random, the no-op and the trained agent on the same episodes, and write ``report.json``.

    The no-op agent is left out where the environment has no no-op; `why_no_noop` says so. A line on standard error
    tells of each agent when it has played. A table that was interrupted goes on with the episode that is next.
    """
    agents: dict[str, Agent] = {"random": RandomAgent(runner.environment, seed=runner.settings.seed)}
    if not why_no_noop(runner.environment):
        agents["no-op"] = NoopAgent(runner.environment)
    agents["trained"] = runner.trained_agent()
    rows, settings = [], runner.settings
    kept = _KeptEpisodes(runner)
    total = len(agents) * settings.report_episodes
    with kept, frozen(runner.environment), closing_table(total, runner.progress_file) as show:
        for name, agent in agents.items():
            played = kept.of(name, settings.report_episodes)
            episodes = episodes_of(
                agent, runner.environment, settings.seed, settings.max_steps_per_episode, len(played)
            )
            show(name, kept.count)
            for episode in islice(episodes, settings.report_episodes - len(played)):
                kept.add(name, episode)
                show(name, kept.count)
            seconds, scores = kept.seconds[name], [episode.score for episode in played]
            rate = sum(episode.frames for episode in played) / seconds
            rows.append(ReportRow(name, scores, rate, different_episodes(played)))
            told = f"mean return {statistics.fmean(scores):.1f}, after {duration(seconds)}"
            print(f"closing table, {len(rows)} of {len(agents)}: {name}, {told}", file=sys.stderr, flush=True)
    write_report(runner, rows)
    kept.path.unlink(missing_ok=True)
    return rows


class _KeptEpisodes:
    """The episodes of a closing table so far, in ``metrics/closing.json``, so that an interrupted table goes on.

    The file is written when two seconds have passed since it was, and when the table is interrupted. It is of no use
    to a run that has been trained further. Where an environment has encounters, an episode depends on those before it:
    there nothing is taken from the file.

    Attributes:
        path: Of the file.
        seconds: That the episodes of each agent have taken.
    """

    def __init__(self, runner: Experiment) -> None:
        self.path = runner.base_dir / "metrics" / "closing.json"
        self.seconds: dict[str, float] = {}
        self._of = {"frames": runner.counts.frames, "updates": runner.agent.updates}
        self._episodes: dict[str, list[EpisodeResult]] = {}
        self._written = self._added = time.perf_counter()
        if encounter_of(runner.environment) is None and self.path.is_file():
            with refuse_damage(self.path, "remove it: the closing table begins anew"):
                kept = json.loads(self.path.read_text(encoding="utf-8"))
                if kept["of"] == self._of:
                    self.seconds = kept["seconds"]
                    self._episodes = {
                        name: [EpisodeResult(*each) for each in rows] for name, rows in kept["rows"].items()
                    }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    @property
    def count(self) -> int:
        """How many episodes there are."""
        return sum(map(len, self._episodes.values()))

    def of(self, name: str, most: int) -> list[EpisodeResult]:
        """Return an agent's episodes so far, a list that grows; the time of the next one begins now."""
        self._added = time.perf_counter()
        self.seconds.setdefault(name, 1e-9)
        self._episodes[name] = self._episodes.get(name, [])[:most]
        return self._episodes[name]

    def add(self, name: str, episode: EpisodeResult) -> None:
        """Add an episode."""
        self._episodes[name].append(episode)
        now = time.perf_counter()
        self.seconds[name] += now - self._added
        self._added = now
        if now - self._written > _KEPT_EVERY:
            self._write()

    def _write(self) -> None:
        facts = {"of": self._of, "seconds": self.seconds, "rows": self._episodes}
        write_text_atomically(self.path, json.dumps(facts) + "\n")
        self._written = time.perf_counter()


_KEPT_EVERY = 2.0  # seconds


def reported_rows(base_dir: Path) -> list[ReportRow]:
    """Return the closing table's rows of ``report.json``; none where it has another report."""
    facts = json.loads((Path(base_dir) / "report.json").read_text(encoding="utf-8"))
    return [ReportRow(*(fact[name] for name in ReportRow._fields)) for fact in facts if "frames_per_second" in fact]


def write_report(runner: Experiment, rows: Sequence[ReportRow]) -> None:
    """Write ``report.json``: a closing table's rows, and the facts of training in the last one.

    Without a closing table the one row is of the last episodes of training, 100 at most, as agent ``"training"``.
    """
    facts: list[dict[str, Any]] = [
        {**row._asdict(), "mean": statistics.fmean(row.scores), "interval": bootstrap_interval(row.scores)}
        for row in rows
    ]
    if not rows and (last := _returns(runner)[-_LAST:]):
        facts = [{"agent": "training", "scores": last, "mean": statistics.fmean(last)}]
        facts[0]["interval"] = bootstrap_interval(last)
    if facts:
        facts[-1] |= training_facts(runner)
        write_text_atomically(runner.base_dir / "report.json", json.dumps(facts, indent=1) + "\n")


_LAST = 100  # episodes


def _returns(runner: Experiment) -> list[float]:
    """Return the returns of all training episodes."""
    return [score for line in runner.history for score in line.get("train_episode_returns", ())]


def training_facts(runner: Experiment) -> dict[str, float | None]:
    """Return the facts of training, as plain data.

    Returns:
        "best_score", of an episode of training; "best_mean_of_100", of 100 consecutive episodes, None where there are
        fewer; "seconds" of wall time, without pauses between two sessions.
    """
    returns = np.array(_returns(runner), np.float64)
    means = np.convolve(returns, np.full(_LAST, 1 / _LAST), "valid") if len(returns) >= _LAST else None
    return {
        "best_score": float(returns.max()) if len(returns) else None,
        "best_mean_of_100": None if means is None else float(means.max()),
        "seconds": runner.clock.seconds,
    }


def in_words(facts: Mapping[str, float | None]) -> str:
    """Return `training_facts` as the end of a line."""
    best, mean, seconds = facts["best_score"], facts["best_mean_of_100"], facts["seconds"]
    parts = [] if best is None else [f"best return {best:g}"]
    parts += [] if mean is None else [f"best mean of 100 episodes {mean:.1f}"]
    return ", ".join([*parts, f"{duration(seconds or 0.0)} in all"])


def why_no_noop(environment: gym.Env[Any, Any]) -> str:
    """Return the sentence that stands below a closing table without no-op; empty where an action is one."""
    try:
        NoopAgent(environment)
    except ValueError:
        return f"no-op is not in the table: no action of {environment.action_space} is known to do nothing"
    return ""


def table(rows: list[ReportRow]) -> str:
    """Return the comparison as text: means with 95 % intervals, and the trained agent's lead over each other.

    A note below it names the agents whose episodes are not all different.
    """
    trained = rows[-1]
    heads = f"{'agent':<10}{'mean return':>12}  {'95 % interval':<22}{'episodes':>8}{'frames/s':>10}"
    lines = [f"{heads}  trained minus this"]
    for row in rows:
        low, high = bootstrap_interval(row.scores)
        lead = ""
        if row is not trained:
            least, most = difference_interval(trained.scores, row.scores)
            difference = statistics.fmean(trained.scores) - statistics.fmean(row.scores)
            lead = f"{difference:.1f} [{least:.1f}, {most:.1f}]"
        interval = f"[{low:.1f}, {high:.1f}]"
        lines.append(
            f"{row.agent:<10}{statistics.fmean(row.scores):>12.1f}  {interval:<22}{len(row.scores):>8}"
            f"{row.frames_per_second:>10.0f}  {lead}".rstrip()
        )
    equal = [words_of_equal_episodes(len(row.scores), row.different, row.agent) for row in rows]
    return "\n".join([*lines, *filter(None, equal)])


def draw_learning_curve(base_dir: Path, rows: list[ReportRow] | None = None) -> Path:
    """Draw return against training frames into ``learning_curve.png`` and return its path.

    Its title says environment, agent, delay and seed.

    Args:
        base_dir: A run's directory.
        rows: Baselines to draw as horizontal lines; the trained agent's row is drawn as the last point.
    """
    # Takes a third of a second to import.
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    iterations = read_iterations(base_dir)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot(xlabel="training frames", ylabel="return of an episode")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 400k and 2M
    axes.set_title(_title(read_facts(base_dir)) or printable(Path(base_dir).name), fontsize="medium", wrap=True)
    begin = 0
    for index, line in enumerate(iterations):
        # Episodes of many environments overlap: none has ended after the iteration.
        ends = np.minimum(begin + np.cumsum(line.get("train_episode_lengths", [])), line["frames"])
        begin = line["frames"]
        label = "training episodes" if index == 0 else None
        axes.plot(ends, line.get("train_episode_returns", []), ".", color="0.6", markersize=4, label=label)
    frames = [line["frames"] for line in iterations]
    # Of many environments none need have ended an episode in an iteration, and offline updates are made without any.
    trained = [line for line in iterations if "train_average_return" in line]
    returns = [line["train_average_return"] for line in trained]
    axes.plot([line["frames"] for line in trained], returns, color="#0072B2", label="training, mean")
    if evaluated := [line for line in iterations if "eval_average_return" in line]:
        returns = [line["eval_average_return"] for line in evaluated]
        at = [line["frames"] for line in evaluated]
        axes.plot(at, returns, "s-", color="#D55E00", markersize=4, label="evaluation, mean")
    for row, style in zip(rows or [], ("--", ":"), strict=False):
        if row.agent != "trained":
            axes.axhline(statistics.fmean(row.scores), color="black", linestyle=style, linewidth=1, label=row.agent)
    if rows:
        mean, (low, high) = statistics.fmean(rows[-1].scores), bootstrap_interval(rows[-1].scores)
        error = [[mean - low], [high - mean]]
        axes.errorbar(frames[-1:] or [0], [mean], error, fmt="D", color="#009E73", capsize=4, label="final evaluation")
    axes.legend(fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path = Path(base_dir) / "learning_curve.png"
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=130))
    return path


def _title(facts: Mapping[str, str]) -> str:
    """Return a run's facts in one line; empty where none are known."""
    if not facts:
        return ""
    agent = name_in(facts["agent"])
    delay = "no delay" if facts["delay"] == "none" else f"delay {facts['delay']}".replace("delay latency", "latency")
    return f"{facts['environment']}, {agent}, {delay}, seed {facts['seed']}"


def evaluation_facts(episodes: Sequence[Any]) -> dict[str, Any]:
    """Return an evaluation as plain data: mean, median and interquartile mean, 95 % intervals, and each episode.

    ``different`` is how many episodes there are of which no two are equal; it is left out where that is not known.
    """
    scores = [episode.score for episode in episodes]
    return {
        "mean": statistics.fmean(scores),
        "interval": bootstrap_interval(scores),
        "median": statistics.median(scores),
        "iqm": float(interquartile_mean(scores)),
        "iqm_interval": bootstrap_interval(scores, interquartile_mean),
        "returns": scores,
        "frames": [episode.frames for episode in episodes],
        **({} if (different := different_episodes(episodes)) is None else {"different": different}),
    }
