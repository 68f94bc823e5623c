"""Exploration: epsilon as a function of the frame count, the policy that is greedy but for it, and networks with noise.

Nothing here depends on what was asked before, so a resumed run explores as an uninterrupted one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import gin
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import DecisionRandom, Decisions, PolicyOutput, only_decision
from async_wrappers.agents.hyperparameters import SHARE, factory, number, settings, whole
from async_wrappers.agents.learning.captured import OFTEN, Captured, copies
from async_wrappers.agents.losses.loss import Host
from async_wrappers.agents.needs_and_offers import refuse_unknown_frames
from async_wrappers.agents.networks.noisy import NoisyLinear
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.agents.spaces.schema import MAX_VALUE, VALUE, each_array
from async_wrappers.policy import Decision


@gin.configurable(module="agents")
def linearly_decaying_epsilon(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
    """Epsilon that stays 1 during the warm-up, then falls linearly (Mnih et al. 2015; formula of Dopamine, 2018).

    epsilon + clip((1 - epsilon) (decay_period + warmup_frames - frame) / decay_period, 0, 1 - epsilon).

    Args:
        decay_period: Frames that the fall takes; 0 falls at once after the warm-up.
        frame: Frames played so far; the agent fills it in, as the other three.
        warmup_frames: Frames before the fall begins.
        epsilon: The value after the fall, in [0, 1].

    Returns:
        The probability of a random action at `frame`.

    Raises:
        ValueError: `decay_period` is negative.
    """
    if decay_period < 0:
        raise ValueError(f"decay_period must be >= 0 frames, got {decay_period}")
    if decay_period == 0:
        return 1.0 if frame < warmup_frames else epsilon
    bonus = (1.0 - epsilon) * (decay_period + warmup_frames - frame) / decay_period
    return epsilon + min(max(bonus, 0.0), 1.0 - epsilon)


@gin.configurable(module="agents")
def identity_epsilon(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
    """`epsilon` at every frame.

    Args:
        decay_period: Not used.
        frame: Not used.
        warmup_frames: Not used.
        epsilon: What is returned, in [0, 1]; the agent fills it in.
    """
    return epsilon


@gin.configurable(module="agents")
def zero_epsilon(decay_period: int, frame: int, warmup_frames: int, epsilon: float) -> float:
    """0 at every frame, the greedy policy.

    Args:
        decay_period: Not used.
        frame: Not used.
        warmup_frames: Not used.
        epsilon: Not used.
    """
    return 0.0


@gin.configurable(module="agents")
def per_actor_epsilon(
    decay_period: int,
    frame: int,
    warmup_frames: int,
    epsilon: float,
    actor: int = 0,
    actors: int = 1,
    base: float = 0.4,
    last_exponent: float = 8.0,
) -> float:
    """An epsilon for each actor, the same at every frame (Horgan et al. 2018, Ape-X, section 4).

    base ** linspace(1, last_exponent, actors)[actor]; an actor alone has `base`.

    Args:
        decay_period: Not used.
        frame: Not used.
        warmup_frames: Not used.
        epsilon: Not used.
        actor: Which one, from 0; the agent fills it in for the policy of each worker.
        actors: How many there are; the agent fills it in.
        base: The first actor's epsilon, in [0, 1].
        last_exponent: Exponent of the last actor, whose epsilon is ``base ** last_exponent``.

    Raises:
        ValueError: `actor` is not one of `actors`, or `base` is out of range.
    """
    if not 0 <= actor < actors:
        raise ValueError(f"actor must lie in [0, {actors}), one for each of the actors, got {actor}")
    if not 0.0 <= base <= 1.0:
        raise ValueError(f"base must lie in [0, 1], got {base}")
    return float(base ** np.linspace(1.0, last_exponent, actors)[actor])


def is_per_actor(schedule: Callable[..., Any]) -> bool:
    """Return whether a schedule of epsilon takes the number of its actor."""
    return "actor" in inspect.signature(_plain(schedule)).parameters


# By name, for another process has a function that was sent to it as a copy.
_WITHOUT_WARMUP = [each.__qualname__ for each in (identity_epsilon, zero_epsilon, per_actor_epsilon)]


def has_warmup(schedule: Callable[..., Any]) -> bool:
    """Return whether a schedule of epsilon depends on its warm-up; a user's own schedule counts as one that does."""
    plain = _plain(schedule)
    ours = getattr(plain, "__module__", None) == __name__
    return not (ours and getattr(plain, "__qualname__", None) in _WITHOUT_WARMUP)


def _plain(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a schedule as it was written, without arguments and without gin's values, which a pickled one brings."""
    inner: Any = schedule
    while inner is not None:
        schedule = inner
        inner = schedule.func if isinstance(schedule, partial) else getattr(schedule, "function", None)
    plain: Callable[..., Any] = inspect.unwrap(schedule)
    return plain


@dataclass(frozen=True)
class Epsilon:
    """The probability of a random action, as a function of the decision.

    Attributes:
        schedule: From (decay period, frame, warm-up, final epsilon) to epsilon in training.
        decay_period: Frames.
        warmup: Frames.
        train: Final epsilon in training.
        evaluation: Epsilon in evaluation.
        per_actor: Whether the schedule takes the keywords ``actor`` and ``actors``.
        environments: How many environments the policy plays, each of which is an actor of the schedule; None where
            the actor is fixed.
    """

    schedule: Callable[..., float]
    decay_period: int
    warmup: int
    train: float
    evaluation: float
    per_actor: bool = False
    environments: int | None = None

    def of_actor(self, actor: int, actors: int) -> Epsilon:
        """Return the epsilon of one of several actors: another one where the schedule takes the number of its actor."""
        if not self.per_actor:
            return self
        return replace(self, schedule=partial(self.schedule, actor=actor, actors=actors))

    def of_environments(self, environments: int) -> Epsilon:
        """Return the epsilon of several environments: each its own where the schedule takes the number of its actor."""
        return replace(self, environments=environments) if self.per_actor else self

    def __call__(self, decision: Decision) -> float:
        """Return epsilon for a decision."""
        if decision.eval_mode:
            return self.evaluation
        if self.environments is not None:
            return self._in_training(decision.frame, decision.env_id)
        return self.schedule(self.decay_period, decision.frame, self.warmup, self.train)

    def of_rows(self, decisions: Decisions) -> npt.NDArray[np.float64]:
        """Return epsilon for R decisions `[R]`; the schedule is called once for each (frame, actor) among them."""
        epsilons = np.full(len(decisions), float(self.evaluation))
        training = np.flatnonzero(~decisions.eval_mode)
        if not training.size:
            return epsilons
        if self.environments is not None and not has_warmup(self.schedule):  # not a function of the frame
            epsilons[training] = self._each_environments[decisions.env_id[training]]
            return epsilons
        frames = decisions.frame[training]
        actors = decisions.env_id[training] if self.environments is not None else np.zeros_like(frames)
        if (frames == frames[0]).all() and (actors == actors[0]).all():  # as where all run in step
            epsilons[training] = self._in_training(int(frames[0]), int(actors[0]))
            return epsilons
        distinct, which = np.unique(np.stack([frames, actors]), axis=1, return_inverse=True)
        values = [self._in_training(int(frame), int(actor)) for frame, actor in distinct.T]
        epsilons[training] = np.array(values)[which.reshape(-1)]
        return epsilons

    def _in_training(self, frame: int, actor: int) -> float:
        of_actor = {} if self.environments is None else {"actor": actor, "actors": self.environments}
        return self.schedule(self.decay_period, frame, self.warmup, self.train, **of_actor)

    @cached_property
    def _each_environments(self) -> npt.NDArray[np.float64]:
        """Each environment's epsilon, where it is the same on every frame."""
        return np.array([self._in_training(0, actor) for actor in range(self.environments or 1)])


@settings
class EpsilonSettings:
    """What an agent that explores by epsilon declares beside its own settings; a base before `NetworkAgent`."""

    epsilon_fn: Callable[..., float] = factory(
        linearly_decaying_epsilon,
        "Returns epsilon in training from (decay period, frame, warm-up, final epsilon), in frames.",
        "@linearly_decaying_epsilon",
    )
    epsilon_train: float = number(0.01, "Final epsilon in training.", SHARE)
    epsilon_eval: float = number(0.001, "Epsilon in evaluation.", SHARE)
    epsilon_decay_period: int = whole(250_000, "Frames over which epsilon falls.", 0, "frames")
    epsilon_warmup: int | None = whole(
        None,
        "Frames before epsilon falls. None stands for ``min_replay_history * decision_interval``, when learning "
        "begins, and is refused where decisions have no constant interval.",
        0,
        "frames",
        none="until learning begins",
    )

    # Of the agent.
    min_replay_history: int
    decision_interval: int | None

    def check_warmup(self) -> None:
        """Check that epsilon's warm-up is known in frames, though the frames between two decisions vary.

        Raises:
            ValueError: It is not set, and epsilon depends on it.
        """
        history = self.min_replay_history
        if self.epsilon_warmup is None and history and has_warmup(self.epsilon_fn):
            refuse_unknown_frames("DQNAgent.epsilon_warmup", history)

    @property
    def epsilon(self) -> Epsilon:
        """The schedule of exploration."""
        warmup = self.epsilon_warmup
        if warmup is None:
            warmup = self.min_replay_history * (self.decision_interval or 1)
        return Epsilon(
            self.epsilon_fn,
            self.epsilon_decay_period,
            warmup,
            self.epsilon_train,
            self.epsilon_eval,
            is_per_actor(self.epsilon_fn),
        )


# Noise on the weights.


def noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    """Return the noisy layers of `network`, none where it has none."""
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]


def resample_noise(layers: Sequence[NoisyLinear], rng: np.random.Generator | None) -> None:
    """Draw new noise for every layer, each its own, or with None have none.

    What `rng` gives depends on the layers alone, so that a generator at the same place gives the same noise.
    """
    for layer in layers:
        layer.resample(rng)


# The epsilon-greedy policy of agents whose networks give a value to each action.


Values = Callable[[nn.Module, Any, np.random.Generator], Tensor]
"""From (network, inputs, generator) to Q-values [R, A]."""


class EpsilonGreedyPolicy:
    """Chooses ``argmax_a Q(o, a)``, or with probability epsilon an action drawn uniformly.

    All that it draws (epsilon's coin, the noise of noisy layers, quantiles) comes from the decision's own stream
    (`DecisionRandom`). Evaluation is without noise.

    Args:
        network: Read in place.
        values: From (network, inputs, generator) to Q-values [R, A].
        num_actions: A.
        epsilon: The probability of a random action, as a function of the decision.
        seed: Of the exploration.
        compute: Where the forward pass runs; the network must have been placed there.
        first_action: Number of the first action.
        read: Turns batches of stacks into what the network reads; None is for arrays that it reads as they are.
        values_draw: Whether `values` draws from its generator; each row then has a forward pass of its own.
        leaves_values: Leave ``value``, Q(o, a) of the chosen action, and ``max_value``, the largest Q(o, .), as extras,
            float32 [R] each.
    """

    def __init__(
        self,
        network: nn.Module,
        values: Values,
        num_actions: int,
        epsilon: Callable[[Decision], float],
        seed: int = 0,
        compute: Compute | None = None,
        first_action: int = 0,
        read: Callable[[Any], Any] | None = None,
        values_draw: bool = False,
        leaves_values: bool = False,
    ) -> None:
        self.network = network
        self._values = values
        self._noisy_layers = noisy_layers(network)
        self._num_actions = num_actions
        self.epsilon = epsilon
        self._random = DecisionRandom(seed)
        self.compute = compute or Compute()
        self._first_action = first_action
        self._read = read or self.compute.tensor
        self._row_by_row = values_draw or bool(self._noisy_layers)
        self._leaves_values = leaves_values
        self._captured: Captured | None = None
        if self.compute.graphs:
            self._captured = Captured(self._values_of, self.compute, "values to act by", often=OFTEN)

    def act(self, inputs: Any, state: Any, decisions: Sequence[Decision]) -> PolicyOutput:
        """Return the chosen actions [R] for stacks [R, k, *shape], or for a dict of them."""
        if not self._leaves_values and (decision := only_decision(decisions)) is not None:
            return PolicyOutput(np.array([self._first_action + self._act_on_one(inputs, decision)]))
        rows = Decisions.of(decisions)
        # A worker's warm-up inference belongs to no episode and has the number -1.
        episodes = np.maximum(rows.episode, 0)
        uniforms, actions = self._random.uniforms_and_actions(
            self._num_actions, episodes, rows.start, rows.eval_mode, rows.env_id
        )
        greedy = uniforms >= self._epsilons(rows)
        if self._leaves_values:
            return self._act_with_values(inputs, rows, greedy, actions)
        chosen = np.flatnonzero(greedy)
        if self._row_by_row:  # noise and quantiles of a row come from its own stream
            for row in chosen:
                one = each_array(lambda array, row=row: array[row : row + 1], inputs)
                actions[row] = self._act_on_one(one, rows[row])
        elif 2 * len(chosen) > len(rows):
            # A few unused values cost less than selecting the other rows.
            np.copyto(actions, self._greedy_actions(inputs), where=greedy)
        elif len(chosen):
            actions[chosen] = self._greedy_actions(each_array(lambda array: array[chosen], inputs))
        return PolicyOutput(actions + self._first_action)

    def _act_with_values(
        self, inputs: Any, rows: Decisions, greedy: npt.NDArray[np.bool_], actions: npt.NDArray[np.int64]
    ) -> PolicyOutput:
        """Return the greedy actions, the given ones where a row is not greedy, with their values as extras."""
        if self._row_by_row:
            each = [
                self._values_of_row(each_array(lambda array, row=row: array[row : row + 1], inputs), rows[row])
                for row in range(len(rows))
            ]
            values = torch.cat(each)
        else:
            values = self.q_values(inputs)
        q = values.float().cpu().numpy()
        actions = np.where(greedy, q.argmax(axis=1), actions)
        extras = {VALUE: q[np.arange(len(q)), actions], MAX_VALUE: q.max(axis=1)}
        return PolicyOutput(actions + self._first_action, extras=extras)

    def _greedy_actions(self, inputs: Any) -> npt.NDArray[np.int64]:
        actions: npt.NDArray[np.int64] = self.q_values(inputs).argmax(dim=1).cpu().numpy()
        return actions

    def _epsilons(self, rows: Decisions) -> npt.NDArray[np.float64]:
        if isinstance(self.epsilon, Epsilon):
            return self.epsilon.of_rows(rows)
        return np.array([self.epsilon(decision) for decision in rows], np.float64)

    def _act_on_one(self, one: Any, decision: Decision) -> int:
        """Return an action for a stack [1, k, *shape]."""
        rng, uniform, random_action = self._coin(decision)
        if uniform < self.epsilon(decision):
            return random_action
        return int(self._q_values(one, rng, noisy=not decision.eval_mode)[0].argmax())

    def _values_of_row(self, one: Any, decision: Decision) -> Tensor:
        """Return the values [1, A] that `_act_on_one` chooses by."""
        return self._q_values(one, self._coin(decision)[0], noisy=not decision.eval_mode)

    def _coin(self, decision: Decision) -> tuple[np.random.Generator, float, int]:
        """Return a decision's generator and coin: noise and quantiles are drawn after the coin."""
        rng = self._random.draw(max(decision.episode, 0), decision.start, decision.eval_mode, decision.env_id)
        return rng, rng.random(), int(rng.integers(self._num_actions))

    def q_values(self, inputs: Any) -> Tensor:
        """Return the Q-values [R, A] of stacks [R, k, *shape], without noise."""
        return self._q_values(inputs, self._random.draw(0, 0, eval_mode=True), noisy=False)

    @torch.inference_mode()
    def _q_values(self, inputs: Any, rng: np.random.Generator, noisy: bool) -> Tensor:
        if self._captured is not None:
            return copies(self._captured({"inputs": self._read(inputs), "noisy": noisy}, rng))["values"]
        return self._computed(self._read(inputs), rng, noisy)

    def prepare(self, inputs: Any) -> None:
        """Capture decisions of as many rows, where there are graphs: a worker has no time for it later."""
        for noisy in (False, True) if self._noisy_layers else (False,):
            if self._captured is not None:
                self._captured.capture(partial(self._q_values, inputs, self._random.draw(0, 0, eval_mode=True), noisy))

    def _values_of(self, given: Mapping[str, Any], rng: Any, host: Host) -> dict[str, Tensor]:
        """Return values; a function of tensors (`learning.captured`)."""
        return {"values": self._computed(given["inputs"], rng, given["noisy"])}

    def _computed(self, inputs: Any, rng: np.random.Generator, noisy: bool) -> Tensor:
        if self._noisy_layers:
            resample_noise(self._noisy_layers, rng if noisy else None)
        if not self.compute.bf16:
            return self._values(self.network, inputs, rng)
        with self.compute.autocast():
            return self._values(self.network, inputs, rng)

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Read these tensors in place from now on; those on another device are copied. `version` is not needed.

        With graphs all are copied, since a graph reads the same places.
        """
        device = self.compute.torch_device
        here = {name: tensor.to(device) for name, tensor in weights.items()}
        self.network.requires_grad_(False).load_state_dict(here, assign=not self.compute.graphs)

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights in the layout that inference reads; not a copy."""
        return self.network.state_dict()
