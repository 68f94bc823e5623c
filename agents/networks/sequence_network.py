"""Networks over sequences of observations: a torso, a core that remembers, a head.

    observation [T, B, ...] -> encode -> features [T, B, F]
    features, previous action, previous reward -> core, which carries a state from row to row -> [T, B, C]
    -> head -> outputs [T, B, ...]                                                           (`decide`, core and head)

The core's state starts afresh, as zeros, on each row that is the ``first`` of an episode. So a sequence may hold the
end of one episode and the beginning of another, and acting, which is a sequence of one row, is the same function.

The core reads the previous action and reward beside the features, as in IMPALA (Espeholt et al. 2018, figure 3), R2D2
(Kapturowski et al. 2019) and SEED RL (Espeholt et al. 2020).

With a window it reads the last K actions too, w_t = (a_{t-K}, .., a_{t-1}), with zeros before the episode. Under a
delay of K decisions the observation and these actions determine what an action meets (Katsikopoulos and Engelbrecht,
"Markov decision processes with delays and asynchronous cost collection", 2003). The window is a part of the state:

    (core's state, w_{t-1}), a_{t-1} -> w_t = w_{t-1} shifted by a_{t-1}, zeros where an episode begins

What follows the torso is the *light half* of a network: core, hidden layers and head. Under delay it is computed when
an action is due. Without a core and without hidden layers the head is linear in (features, window), so that what an
action on its way means cannot depend on what is observed: with a window there is a hidden layer unless it is left out.

With a *fast path* the light half also reads the newest observation there is when the action is due, by a small torso of
its own. What that gives is read by core, hidden layers and head; the head reads it directly, so that it can act by the
fresh observation before the other layers have learnt what to do with theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from numbers import Real
from typing import Any

import gin
import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.networks.cores import CORES, NoCore
from async_wrappers.agents.networks.q_network import HEADS, TORSOS, DictTorso, HeadFactory, checked_shapes, resolved
from async_wrappers.agents.networks.torsos import (
    Initializer,
    TorsoFactory,
    check_sizes,
    initialize,
    output_size,
    read_observation,
)
from async_wrappers.agents.spaces.actions import Actions, DiscreteActions
from async_wrappers.agents.spaces.compute import without_autocast
from async_wrappers.agents.spaces.schema import EFFECT, START, STATE, WHOLE_NUMBER, each_array, first_array
from async_wrappers.checks import whole


@gin.configurable(module="agents")
class ActorCriticHead(nn.Module):
    """Two linear layers on the same features: a policy's logits `[B, num_actions]` and a value `[B]`.

    Args:
        input_size: Number of features.
        num_actions: Number of actions, A.
        chunk: Actions given at once, H, for logits `[B, H, A]`; None for one.

    Raises:
        ValueError: A size is not positive.
    """

    def __init__(self, input_size: int, num_actions: int, chunk: int | None = None) -> None:
        super().__init__()
        check_sizes("input_size", [input_size])
        check_sizes("num_actions", [num_actions])
        self._logits = (num_actions,) if chunk is None else (*check_sizes("chunk", [chunk]), num_actions)
        self.policy = nn.Linear(input_size, math.prod(self._logits))
        self.value = nn.Linear(input_size, 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map features `[B, input_size]` to logits and values."""
        return self.policy(features).unflatten(1, self._logits), self.value(features).squeeze(1)


def checked_window(action_window: int | None, actions: Actions) -> int | None:
    """Return a number of last actions; a ValueError or TypeError names one that is none, and a window of chunks."""
    refuse({"chunks, a window": actions.chunk is not None}, {"action_window": action_window})
    return (
        None if action_window is None else whole("action_window", action_window, least=1, unit="actions", or_none=True)
    )


def action_windows(actions: Actions, previous_action: Tensor, first: Tensor, before: Tensor) -> Tensor:
    """Return the window of each row, `[T, B, K * inputs]`, oldest action first.

    Args:
        actions: How an action is read.
        previous_action: As stored, `[T, B, ...]`.
        first: Bool `[T, B]`, True where an episode begins.
        before: The window before the first row, `[B, K * inputs]`.
    """
    inputs, window, windows = actions.inputs, before, []
    chosen = actions.read(previous_action.flatten(0, 1)).to(before.dtype).view(*first.shape, inputs)
    for row, begins in zip(chosen.unbind(), first.unsqueeze(2).unbind(), strict=True):
        window = torch.cat([window[:, inputs:], row], dim=1).masked_fill(begins, 0.0)
        windows.append(window)
    return torch.stack(windows)


class SequenceNetwork(nn.Module):
    """A head on a core on a torso, for sequences of observations.

    Args:
        observation_shape: Shape of one observation, without time and batch; for a Dict, the shapes by key.
        num_actions: Number of actions, A.
        torso: Makes the torso from `observation_shape`.
        head: Makes the head from the number of its inputs and A.
        core: Makes the core from the number of its inputs; None for a network without memory.
        feed_previous: Whether the core (the head, where there is none) reads the previous action, one-hot and zeros
            where there was none, and the previous reward, clipped to [-1, 1], beside the features.
        initializer: How the weights of linear and convolutional layers begin (`torsos.initialize`); a core's begin as
            PyTorch's.
        actions: How the previous action is read; None for one of `num_actions`, counted from 0.
        skip: Whether the head reads the torso's features beside what the core gives; without a core there is nothing
            to skip.
        action_window: Last actions that the core (the head, where there is none) reads beside the features, K; None for
            none. Under delay these are the actions of the last K decisions that were applied.
        hidden: Units of each layer, followed by a ReLU, between what the core gives (with `skip` the torso's features
            too) and the head; None for one of 128 with a window, and for none without.
        fast: Makes the torso of a fast path from the shape of one observation, `[1, *shape]`; None for no fast path.
            The observation is then a dict of ``"start"`` and ``"effect"`` (`agents.acting.frames_read`).
        fast_age: How old the observation is that it reads, in frames, when the action is due.

    Attributes:
        fast_age: As given; None without a fast path.
        state_size: Numbers that the network remembers: the core's, and then those of the window; 0 without both.
        num_actions: As given.
        action_window: As given.

    Raises:
        TypeError: The torso or the core has no integer `output_size`.
        ValueError: A size is not positive, the torso, core or head refuses its arguments, or there is a window of
            chunks.
    """

    def __init__(
        self,
        observation_shape: Any,
        num_actions: int,
        torso: Callable[[Any], nn.Module],
        head: Callable[..., nn.Module],
        core: Callable[[int], nn.Module] | None = None,
        feed_previous: bool = True,
        initializer: Initializer = "torch",
        actions: Actions | None = None,
        skip: bool = False,
        action_window: int | None = None,
        hidden: Sequence[int] | None = None,
        fast: Callable[[Any], nn.Module] | None = None,
        fast_age: int = 0,
    ) -> None:
        super().__init__()
        self.observation_shape = checked_shapes(observation_shape)
        (self.num_actions,) = check_sizes("num_actions", [num_actions])
        self.torso = torso(self.observation_shape)
        self.feed_previous = feed_previous
        self._actions = DiscreteActions(0, self.num_actions) if actions is None else actions
        self.action_window = checked_window(action_window, self._actions)
        of_window = self._actions.inputs * (self.action_window or 0)
        features = output_size(self.torso) + (self._actions.inputs + 1 if feed_previous else 0) + of_window
        self._fresh_shape = each_array(lambda shape: (1, *shape[1:]), self.observation_shape)
        self.fast = None if fast is None else fast(self._fresh_shape)
        self.fast_age = None if fast is None else whole("fast_age", fast_age, 0, unit="frames")
        of_fast = 0 if self.fast is None else output_size(self.fast)
        features += of_fast
        made: Any = (core or NoCore)(features)
        self.core, self._core_size = made, int(made.state_size)
        self.state_size = self._core_size + of_window
        self._skips = skip and core is not None
        read = output_size(self.core) + self._skips * output_size(self.torso)
        units = _HIDDEN * (self.action_window is not None) if hidden is None else check_sizes("hidden", hidden)
        layers = [(nn.Linear(size, to), nn.ReLU()) for size, to in pairwise((read, *units))]
        self.hidden = nn.Sequential(*chain.from_iterable(layers))  # none pass features unchanged
        read = units[-1] if units else read
        self._both = self.fast is not None and (core is not None or bool(units))
        self.head = head(read + self._both * of_fast, self.num_actions)
        initialize(self, initializer)

    def forward(
        self, observation: Any, previous_action: Tensor, previous_reward: Tensor, first: Tensor, state: Tensor
    ) -> tuple[Any, Tensor]:
        """Compute the outputs of T rows of B sequences.

        Args:
            observation: `[T, B, *observation_shape]`, as `q_network.QNetwork.forward` takes it; for a Dict, such
                tensors by key. With a fast path a dict of two, of which only the newest one of ``"effect"`` is read.
            previous_action: As stored, `[T, B, ...]`: whole numbers counted from 0, -1 where there was none; real ones.
            previous_reward: `[T, B]`; 0 where there was none.
            first: Bool `[T, B]`, True where an episode begins.
            state: What was left before the first row, `[B, state_size]`; zeros begin.

        Returns:
            What the head gives, a tensor `[T, B, ...]` in float32 or a tuple of such, and the state after the last row.

        Raises:
            TypeError: The observation is neither uint8 nor floating point.
            ValueError: The observation has another shape, or other keys.
        """
        fresh = None
        if self.fast is not None:
            observation, fresh = observation[START], observation[EFFECT]
        if isinstance(observation, Tensor):
            rows, flat = observation.shape[:2], observation.flatten(0, 1)
        else:
            rows = first_array(observation).shape[:2]
            flat = each_array(lambda tensor: tensor.flatten(0, 1), observation)
        return self.decide(self.encode(flat).view(*rows, -1), previous_action, previous_reward, first, state, fresh)

    def decide(
        self,
        features: Tensor,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
        fresh: Any = None,
    ) -> tuple[Any, Tensor]:
        """Compute the outputs of T rows of B sequences from what `encode` gives of them, `[T, B, F]`: the light half.

        Under delay this half is computed when an action is due, `encode` when its decision starts.

        Args:
            features: What `encode` gives.
            previous_action: See `forward`.
            previous_reward: The same.
            first: The same.
            state: The same.
            fresh: With a fast path, the newest observation when the action is due, `[T, B, k, *shape]`, of which the
                last of k is read; for a Dict, such tensors by key.

        Returns:
            See `forward`.
        """
        rows = tuple(features.shape[:2])
        features = seen = features.flatten(0, 1)
        if self.feed_previous:
            chosen = self._actions.read(previous_action.flatten(0, 1)).to(features.dtype)
            reward = previous_reward.reshape(-1, 1).clamp(-1.0, 1.0).to(features.dtype)
            features = torch.cat([features, chosen, reward], dim=1)
        fast = None
        if self.fast is not None:
            fast = self.fast(read_observation(_newest_of(fresh), self._fresh_shape, "fresh"))
            features = torch.cat([features, fast], dim=1)
        windows = None
        if self.action_window is not None:
            windows = action_windows(self._actions, previous_action, first, state[:, self._core_size :])
            state = state[:, : self._core_size]
            features = torch.cat([features, windows.flatten(0, 1).to(features.dtype)], dim=1)
        outputs, state = self.core(features.view(*rows, -1), state, first)
        if windows is not None:
            state = torch.cat([state.float(), windows[-1]], dim=1)
        with without_autocast(outputs):
            # bfloat16 holds three digits, and the differences of two values are less than that.
            read = outputs.flatten(0, 1).float()
            read = self.hidden(torch.cat([read, seen.float()], dim=1) if self._skips else read)
            heads = self.head(torch.cat([read, fast.float()], dim=1) if fast is not None and self._both else read)
        if isinstance(heads, tuple):
            return tuple(each.float().view(*rows, *each.shape[1:]) for each in heads), state.float()
        return heads.float().view(*rows, *heads.shape[1:]), state.float()

    def decide_by_window(self, features: Tensor, window: Tensor | None, fresh: Any = None) -> Any:
        """Compute the outputs of B decisions, each with a window of its own, as a replay of transitions draws them.

        It is `decide` of one row, for a network whose window is all that it remembers.

        Args:
            features: What `encode` gives, `[B, F]`.
            window: The last K actions as they are stored, oldest first, `[B, K, ...]`; with the stored action that
                stands for none before an episode's first (`agents.spaces.actions`). None without a window.
            fresh: With a fast path, what it reads, `[B, k, *shape]`.

        Returns:
            What the head gives, a tensor `[B, ...]` in float32 or a tuple of such.

        Raises:
            ValueError: The network reads more than a window: the previous reward, or a core's state; or there is no
                window where it has one, or one where it has none.
        """
        if (self.action_window is None) != (window is None) or self.feed_previous or self._core_size:
            raise ValueError(
                "decide_by_window needs a network with action_window, without a core and with feed_previous=False, got "
                f"action_window={self.action_window}, feed_previous={self.feed_previous} and a core's state of "
                f"{self._core_size}"
            )
        none = torch.zeros((1, len(features)), device=features.device)
        before, newest = features.new_zeros((len(features), 0)), none
        if window is not None:
            read = self._actions.read(window.flatten(0, 1)).view(len(window), -1).float()
            # The newest action is read as the previous one.
            before, newest = read.roll(self._actions.inputs, dims=1), window[None, :, -1]
        fresh = None if fresh is None else each_array(lambda tensor: tensor.unsqueeze(0), fresh)
        outputs, _ = self.decide(features.unsqueeze(0), newest, none, none > 0, before, fresh)
        return tuple(each[0] for each in outputs) if isinstance(outputs, tuple) else outputs[0]

    def encode(self, observation: Any) -> Tensor:
        """Map observations `[N, *observation_shape]` to the torso's features `[N, F]`."""
        features: Tensor = self.torso(read_observation(observation, self.observation_shape))
        return features

    def initial_state(self, rows: int) -> Tensor:
        """Return the state that episodes begin with, zeros `[rows, state_size]`."""
        return torch.zeros((rows, self.state_size), device=next(self.parameters()).device)


def _newest_of(stacks: Any) -> Any:
    """Return the last observations [T * B, 1, *shape] of stacks [T, B, k, *shape]; of a dict of such by key."""
    if isinstance(stacks, Tensor):
        return stacks[:, :, -1:].flatten(0, 1)
    return {key: _newest_of(inner) for key, inner in stacks.items()}


_HIDDEN = (128,)  # units, where there is a window


@gin.configurable(module="agents")
def create_actor_critic(
    observation_shape: Any,
    num_actions: int,
    *,
    torso: str | TorsoFactory = "auto",
    core: str | Callable[[int], nn.Module] | None = None,
    feed_previous: bool = True,
    initializer: Initializer = "torch",
    head_scale: float = 1.0,
    skip: bool = False,
    action_window: int | None = None,
    hidden: Sequence[int] | None = None,
    fast: str | TorsoFactory | None = None,
    fast_age: int = 0,
    chunk: int | None = None,
) -> SequenceNetwork:
    """Build a network of a policy and a value, for agents such as `actor_critic.vtrace.VTrace`.

    Args:
        observation_shape: Shape of one observation; for a Dict, the shapes by key.
        num_actions: Number of actions.
        torso: As in `q_network.create_network`.
        core: "lstm", "gru", a factory such as ``@LSTMCore``, or None for no memory.
        feed_previous: Whether the core reads the last action and reward beside the features (`SequenceNetwork`).
        initializer: As in `q_network.create_network`.
        head_scale: Factor of the head's first weights, >= 0: with a small one all actions begin about equally likely,
            and values near 0; with a large one the first policy holds on to an action for some decisions.
        skip: Whether the head reads the torso's features beside what the core gives: what an LSTM gives at first is
            near 0, and the actions then are about equally likely.
        action_window: Number of last applied actions that the core reads; None for none (`SequenceNetwork`).
        hidden: Units of each layer between core and head; by default one of 128 with a window, and none without.
        fast: The torso of a fast path, which is named or made as `torso` is; None for no fast path.
        fast_age: How many frames old what the fast path reads is when the action is due.
        chunk: Actions that a decision gives at once, H, for logits `[H, num_actions]`; None for one. The agent gives
            it.

    Raises:
        TypeError: `torso`, `core` or `initializer` is neither a name nor a factory.
        ValueError: A name is unknown, a size does not suit the torso or core, `head_scale`, `skip` or `action_window`
            is out of range, or there is a window of chunks.
    """
    if not isinstance(skip, bool):
        raise ValueError(f"create_actor_critic.skip must be True or False, got {skip!r}")
    if isinstance(head_scale, bool) or not isinstance(head_scale, Real) or not 0 <= head_scale < math.inf:
        raise ValueError(f"create_actor_critic.head_scale must be a number >= 0 and finite, got {head_scale!r}")
    head = ActorCriticHead if chunk is None else partial(ActorCriticHead, chunk=chunk)
    network = _create(
        observation_shape,
        num_actions,
        torso,
        head,
        core,
        feed_previous,
        initializer,
        chunk,
        skip=skip,
        action_window=action_window,
        hidden=hidden,
        fast=fast,
        fast_age=fast_age,
    )
    if head_scale != 1:
        with torch.no_grad():
            for parameter in network.head.parameters():
                parameter.mul_(head_scale)
    return network


@gin.configurable(module="agents")
def create_recurrent_q_network(
    observation_shape: Any,
    num_actions: int,
    *,
    torso: str | TorsoFactory = "auto",
    core: str | Callable[[int], nn.Module] | None = "lstm",
    head: str | HeadFactory = "dueling",
    feed_previous: bool = True,
    initializer: Initializer = "torch",
    action_window: int | None = None,
    hidden: Sequence[int] | None = None,
    fast: str | TorsoFactory | None = None,
    fast_age: int = 0,
) -> SequenceNetwork:
    """Build a Q-network with memory, for agents such as `value_based.r2d2.R2D2`.

    Args:
        observation_shape: Shape of one observation; for a Dict, the shapes by key.
        num_actions: Number of actions.
        torso: As in `q_network.create_network`.
        core: "lstm", "gru", a factory such as ``@LSTMCore``, or None for no memory.
        head: As in `q_network.create_network`.
        feed_previous: Whether the core reads the last action and reward beside the features (`SequenceNetwork`).
        initializer: As in `q_network.create_network`.
        action_window: Number of last applied actions that the core reads; None for none (`SequenceNetwork`).
        hidden: Units of each layer between core and head; by default one of 128 with a window, and none without.
        fast: The torso of a fast path, which is named or made as `torso` is; None for no fast path.
        fast_age: How many frames old what the fast path reads is when the action is due.

    Raises:
        TypeError: `torso`, `core`, `head` or `initializer` is neither a name nor a factory.
        ValueError: A name is unknown, a size does not suit the torso, core or head, or `action_window` is out of range.
    """
    made = resolved("head", head, HEADS)
    light: dict[str, Any] = {"action_window": action_window, "hidden": hidden, "fast": fast, "fast_age": fast_age}
    return _create(observation_shape, num_actions, torso, made, core, feed_previous, initializer, **light)


def _create(
    observation_shape: Any,
    num_actions: int,
    torso: str | TorsoFactory,
    head: Callable[..., nn.Module],
    core: str | Callable[[int], nn.Module] | None,
    feed_previous: bool,
    initializer: Initializer,
    chunk: int | None = None,
    fast: str | TorsoFactory | None = None,
    **light: Any,
) -> SequenceNetwork:
    actions = DiscreteActions(0, num_actions, chunk)
    made = torso_of(observation_shape, "torso", torso)
    remembers = None if core is None else resolved("core", core, CORES)
    return SequenceNetwork(
        observation_shape,
        num_actions,
        made,
        head,
        remembers,
        feed_previous,
        initializer,
        actions,
        fast=None if fast is None else torso_of(observation_shape, "fast", fast),
        **light,
    )


def torso_of(observation_shape: Any, name: str, torso: str | TorsoFactory) -> Callable[[Any], nn.Module]:
    """Return what makes the torso that a name or a factory says, for an observation or for a Dict of such."""
    made = resolved(name, torso, TORSOS)
    return partial(DictTorso, torso=made) if isinstance(observation_shape, Mapping) else made


@torch.no_grad()
def check_sequence_fit(
    network: nn.Module,
    observation: Any,
    output_shapes: Sequence[tuple[int, ...]],
    agent: str,
    actions: Actions | None = None,
) -> None:
    """Call a network once, on a sequence of one observation, without gradients.

    Args:
        network: Any module; its mode, training or evaluation, is left as it was.
        observation: [1, k, *shape], or a dict of such.
        output_shapes: The shapes of what it gives for one observation, without time and batch.
        agent: The agent's name, for the message.
        actions: The action space; None for one Discrete action.

    Raises:
        ValueError: The network is none over sequences, raises an error, gives something else, or does not begin its
            memory afresh where `first` is.
    """
    kind, training = type(network).__name__, network.training
    if not hasattr(network, "initial_state"):
        raise ValueError(
            f"network must be one over sequences with agent {agent!r}, such as @create_actor_critic's, got {kind}"
        )
    rows = torch.zeros((1, 1))
    shape, dtype = WHOLE_NUMBER if actions is None else actions.column
    action = torch.from_numpy(np.full((1, 1, *shape), -1 if actions is None else actions.none, dtype))
    arguments = action, rows, rows == 0
    if getattr(network, "fast_age", None) is not None:
        observation = {START: observation, EFFECT: observation}
    carries = False
    try:
        stacks = each_array(lambda tensor: tensor.unsqueeze(0), observation)
        begin: Tensor = network.initial_state(1)  # type: ignore[operator]
        outputs, _ = network.eval()(stacks, *arguments, begin)
        if begin.numel():
            afresh, after = (network(stacks, *arguments, state) for state in (begin, torch.ones_like(begin)))
            carries = any(not torch.equal(one, other) for one, other in zip(_flat(afresh), _flat(after), strict=True))
    except Exception as error:  # a user's network may raise anything
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"network must take sequences of observations, and {kind} does not: {what}") from error
    network.train(training)
    given = [tuple(each.shape) for each in (outputs if isinstance(outputs, tuple) else (outputs,))]
    wanted = [(1, 1, *shape) for shape in output_shapes]
    if given != wanted:
        raise ValueError(
            f"network must give {wanted} to agent {agent!r} for a sequence of one observation, got {given} from {kind}"
        )
    if carries:
        raise ValueError(
            f"network must begin its memory afresh where `first` is True with agent {agent!r}, and what {kind} gives "
            "there depends on the state before: let its core mask the state on those rows"
        )


def _flat(given: tuple[Any, Tensor]) -> list[Tensor]:
    """Return what a network gives, and the state after it, in one list."""
    outputs, state = given
    return [*(outputs if isinstance(outputs, tuple) else (outputs,)), state]


# The input of a loss: a batch of sequences.


def sequence_tensors(
    batch: Mapping[str, Any], read: Callable[[Any], Any], tensor: Callable[[Any], Tensor], stack_size: int | None
) -> dict[str, Any]:
    """Return the tensors of a batch of sequences for a loss.

    Args:
        batch: a batch of a source, see `replay.sequences`.
        read: makes a network's input from single observations `[N, 1, *shape]`, or from a dict of such; from stacks
            `[N, k, *shape]` where `stack_size` is None.
        tensor: makes a tensor from an array.
        stack_size: observations in a stack, k; None where an observation is a stack `[k, *shape]`.

    Returns:
        Tensors by name, on the device; "observation" in stacks `[T + 1, B, k, *shape]`, with zeros before an episode.
    """
    tensors: dict[str, Any] = {}
    for name, array in batch.items():
        if name == "extras":
            tensors[name] = each_array(tensor, array)
        elif name not in ("observation", "index"):
            tensors[name] = tensor(array)
    rows, first = np.shape(batch["first"]), tensors["first"]
    if STATE not in tensors:
        tensors[STATE] = tensor(np.zeros((rows[1], 0), np.float32))

    if stack_size is None:
        found = read(each_array(lambda array: array.reshape(-1, *array.shape[2:]), batch["observation"]))
        tensors["observation"] = each_array(lambda each: each.view(rows[0], rows[1], *each.shape[1:]), found)
        return tensors

    def stacks(frames: Tensor) -> Tensor:
        return _stacked(frames.view(rows[0] + stack_size - 1, rows[1], *frames.shape[2:]), first, stack_size)

    frames = read(each_array(lambda array: array.reshape(-1, 1, *array.shape[2:]), batch["observation"]))
    tensors["observation"] = each_array(stacks, frames)
    return tensors


def _stacked(frames: Tensor, first: Tensor, stack_size: int) -> Tensor:
    """Return stacks `[T + 1, B, k, *shape]` of frames `[T + k, B, *shape]`, with zeros before an episode's first."""
    rows = len(first)
    stacks = torch.stack([frames[back : back + rows] for back in range(stack_size)], dim=2)
    if stack_size == 1:
        return stacks
    number = torch.arange(rows, device=first.device).unsqueeze(1)
    begun = torch.where(first, number, -stack_size).cummax(0).values  # before row 0 they are zeros already
    missing = stack_size - 1 - (number - begun)  # observations of a stack that are before the episode
    blank = torch.arange(stack_size, device=first.device) < missing.unsqueeze(2)
    return stacks.masked_fill_(blank.view(*blank.shape, *[1] * (frames.ndim - 2)), 0)
