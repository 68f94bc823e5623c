"""The trained agent of a run as one file, with its score, for others to play, to teach with and to begin from."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from async_wrappers.agents.config.config import config_text
from async_wrappers.agents.experiment.checkpoint import newest_bundle
from async_wrappers.agents.experiment.evaluate import bootstrap_interval, evaluate
from async_wrappers.agents.experiment.experiment import Experiment
from async_wrappers.agents.experiment.metrics import read_facts
from async_wrappers.agents.experiment.other_run import trained_agent
from async_wrappers.agents.play.turns.agents import Agent
from async_wrappers.agents.play.turns.baselines import RandomAgent
from async_wrappers.agents.trained.agent_file import SUFFIX, write_agent
from async_wrappers.agents.trained.export import ActsDifferently
from async_wrappers.version import __version__


def ship(
    runner: Experiment, output: Path, episodes: int = 100, *, command: str = "", licence: str = ""
) -> dict[str, Any]:
    """Write the weights of a run's newest checkpoint into a file, and check that what it holds acts as the agent does.

    The file is first written without a score, and loaded. Then the agent plays its evaluation episodes, and the loaded
    one has to choose the same action at each of its decisions.

    Args:
        runner: Of the run, whose configuration gin holds; it plays in turn.
        output: The file, which ends in ``.safetensors``.
        episodes: Of the evaluation that gives the score, and of random play.
        command: The command that trained it, for the file to tell.
        licence: That of the weights, likewise.

    Returns:
        What the file tells of the agent.

    Raises:
        ValueError: The agent does not learn, or its state cannot be stored.
        ActsDifferently: The file acts differently from the agent; it is not written.
    """
    agent: Any = runner.trained_agent()
    if not hasattr(agent, "spec") or not hasattr(agent, "learner"):
        raise ValueError(f"an agent that learns can be exported, got {type(agent).__name__} in {runner.base_dir}")
    _, bundle = newest_bundle(runner.base_dir)
    facts = runner.facts()
    about: dict[str, Any] = {
        "environment": facts["environment"],
        "agent": facts["agent"],
        # That of its training, which a live run or a binding may not share with the play that gives the score.
        "delay": read_facts(runner.base_dir).get("delay", facts["delay"]),
        "seed": runner.settings.seed,
        "frames": bundle["frames"],
        "command": command,
        "version": __version__,
        "licence": licence,
    }
    state = agent.learner.policy_state(bundle["agent"]["learner"])
    content = config_text(), agent.identity(), state, bundle.get("statistics")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / f"agent{SUFFIX}"
        _write(draft, content, about)
        loaded, _ = trained_agent(draft)
    both: Any = _Both(agent, loaded, output)
    scores = [episode.score for episode in runner.evaluation(both, episodes)]
    at_random = RandomAgent(runner.environment, runner.settings.seed)
    played = evaluate(
        at_random, runner.environment, episodes, runner.settings.seed, runner.settings.max_steps_per_episode
    )
    about["score"] = {
        **_summary(scores),
        "delay": facts["delay"],
        "protocol": f"the episodes of `train.py evaluate` with seed {runner.settings.seed}, {_acting(agent.spec)}",
        "random": _summary([episode.score for episode in played]),
    }
    _write(output, content, about)
    return about


def _write(path: Path, content: tuple[str, Any, Any, Any], about: Mapping[str, Any]) -> None:
    config, identity, state, statistics = content
    write_agent(path, config, about, identity, state, statistics)


def _summary(scores: list[float]) -> dict[str, Any]:
    return {"mean": statistics.fmean(scores), "interval": bootstrap_interval(scores), "episodes": len(scores)}


def _acting(spec: Any) -> str:
    """Return how the agent chooses its actions in evaluation, in words."""
    if (drawn := getattr(spec, "drawn_evaluation", None)) is not None:
        return "drawn actions" if drawn else "the likeliest actions"
    if (epsilon := getattr(spec, "epsilon_eval", None)) is not None:
        return f"the best actions, and one at random with probability {epsilon:g}" if epsilon else "the best actions"
    return "the actions of its evaluation"


class _Both:
    """Plays as one agent, and refuses another one that is shown the same and acts differently.

    Args:
        agent: Plays.
        other: Is shown what the agent is shown.
        output: The file that `other` is of, for the message.
    """

    learns = False

    def __init__(self, agent: Agent, other: Agent, output: Path) -> None:
        self._agents, self._output, self._decisions = (agent, other), output, 0

    @property
    def eval_mode(self) -> bool:
        return self._agents[0].eval_mode

    @eval_mode.setter
    def eval_mode(self, value: bool) -> None:
        for agent in self._agents:
            agent.eval_mode = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agents[0], name)

    def begin_episode(self, *shown: Any) -> Any:
        return self._agreed(*(agent.begin_episode(*shown) for agent in self._agents))

    def step(self, *shown: Any) -> Any:
        return self._agreed(*(agent.step(*shown) for agent in self._agents))

    def end_episode(self, *shown: Any, **named: Any) -> None:
        for agent in self._agents:
            agent.end_episode(*shown, **named)

    def _agreed(self, action: Any, other: Any) -> Any:
        self._decisions += 1
        if not np.array_equal(action, other):
            raise ActsDifferently(
                f"{self._output} would act differently from the agent, {other} in the place of {action} at decision "
                f"{self._decisions}: nothing is written"
            )
        return action
