"""The settings of every run, as records that gin binds by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import gymnasium as gym

from async_wrappers.agents.config.unread import ByName
from async_wrappers.agents.hyperparameters import POSITIVE_FINITE, factory, flag, number, part, text, whole
from async_wrappers.agents.play.play import Length, Phase
from async_wrappers.agents.play.turns.agents import Agent

CreateAgent = Callable[..., Agent]
CreateEnvironment = Callable[..., gym.Env[Any, Any]]


@part
class Runner:
    """What is run: an environment, an agent, and iterations of a training and an evaluation phase.

    After Dopamine (Castro et al. 2018), whose phases follow Machado et al. 2018, section 4. All lengths count frames:
    steps of the innermost environment, which are the agent's steps where nothing delays it. A setting out of range, and
    an environment that the agent cannot play, are refused with a ValueError.
    """

    create_environment_fn: CreateEnvironment = factory(
        gin.REQUIRED,
        "Makes the environment, such as ``@create_atari_environment``.",
        "@create_gym_environment (without brackets)",
    )
    create_agent_fn: CreateAgent = factory(
        ByName("agents.create_agent"),
        "Makes the agent from (environment, seed=).",
        "@create_agent (without brackets)",
    )
    seed: int = whole(
        0, "Of the whole run: environment, evaluation, agent, replay and default action.", 0, "", most=2**4096
    )
    num_iterations: int = whole(200, "Iterations in all, those already done included.", 0, "iterations")
    training_steps: int = whole(250_000, "Frames of a training phase, at least; it ends with an episode.", 1, "frame")
    evaluation_steps: int = whole(
        125_000,
        "Frames of an evaluation phase, at least; 0 leaves it out, whatever `evaluation_episodes` is.",
        0,
        "frames",
    )
    training_episodes: int | None = whole(
        None, "Length of a training phase in episodes.", 1, "episode", none="`training_steps`"
    )
    evaluation_episodes: int | None = whole(
        None,
        "Length of an evaluation phase in episodes; 0 leaves it out.",
        0,
        "episodes",
        none="`evaluation_steps`",
    )
    max_steps_per_episode: int | None = whole(
        27_000, "Frames after which an episode is cut (a truncation).", 1, "frame", none="no limit"
    )
    checkpoint_duration: int = whole(4, "How many of the newest checkpoints are kept.", 1, "checkpoint")
    initial_checkpoint: str | None = text(
        "A checkpoint file, a run's directory, an agent's file or the name of one that ships (``\"cartpole\"``), whose "
        "weights the first iteration begins with. All else is new: settings, schedules, counts, replay and statistics.",
        "new weights",
    )
    initial_optimizer: bool = flag(False, "Begin with that checkpoint's moments of the optimiser, too.")
    pretrain_dataset: str | None = text(
        "Demonstrations that the agent learns from before the first iteration: a Minari id, a directory, or a pickle "
        "of the published layout (`async_wrappers.agents.demonstrations`).",
        "none",
    )
    pretrain_updates: int = whole(16_000, "Updates on them.", 0, "updates")
    report_episodes: int = whole(
        0,
        "Episodes of each of the trained, the random and the no-op agent that the closing table compares, with seeds "
        "that are the same for all three; 0 leaves the table out.",
        0,
        "episodes",
    )
    threads: int = whole(1, "Intra-op threads of PyTorch in this process.", 1, "thread")
    overlap: bool = flag(
        False,
        "Compute each update in a thread while the environment steps on (`learning_agent.Overlap`): the agent acts on "
        "weights of one update earlier, so results differ from those without, and are the same from run to run.",
    )
    exact_resume: bool = flag(
        False,
        "Where many environments are played at once, cut all games where an iteration ends with a checkpoint, in the "
        "uninterrupted run too, so that a run that was killed goes on as that one, bit for bit. False lets games go on "
        "over checkpoints, and a run that is resumed begins new ones, and differs from there on. One environment is "
        "between two episodes there anyway.",
    )
    checkpoint_minutes: float | None = number(
        None,
        "Minutes after which a checkpoint is written in the midst of an iteration, where games go on.",
        POSITIVE_FINITE,
        none="no such checkpoint",
    )

    def lengths(self, evaluates: bool = True) -> dict[Phase, Length]:
        """Return the lengths of the phases; one that is left out has 0 frames and no episodes."""
        evaluation = Length(self.evaluation_steps, self.evaluation_episodes)
        # Files bind one of the two, and binding the other one to 0 has the same meaning.
        evaluates = evaluates and 0 not in evaluation
        return {
            Phase.TRAIN: Length(self.training_steps, self.training_episodes),
            Phase.EVAL: evaluation if evaluates else Length(0, None),
        }


@part
class TrainRunner:
    """A run without evaluation phases; its settings are bound as ``Runner``'s."""
