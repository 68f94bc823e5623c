"""From transitions to weights: what every learner of values has in common. The loss is the agent's own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from agents import losses
from agents.compute import Compute
from agents.exploration import DecisionRandom
from agents.files import write_atomically
from agents.networks.noisy import noisy_layers, resample_noise
from agents.observations import are_equal, copied, each_array
from agents.optimizers import create_optimizer

__all__ = ["Batch", "DivergedError", "Drawn", "Learner", "Replay"]

Batch = Mapping[str, Any]  # tensors; "observation" and "next_observation" may be dicts of them
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Replay(Protocol):
    """What the learner needs of a replay memory."""

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition."""
        ...

    def cut(self, observation: Any) -> None:
        """End the running episode with the observation that its last transition led to."""
        ...

    def sample(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return a batch: observation, action, reward, discount, next_observation, index; with priorities, weight."""
        ...

    def __len__(self) -> int:
        """Return how many transitions can be sampled."""
        ...

    @property
    def add_count(self) -> int:
        """Transitions ever observed."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what two replays must share to load one another's files."""
        ...

    def save(self, directory: Path, number: int) -> object:
        """Write what is new, and an index of this moment."""
        ...

    def load(self, directory: Path, number: int, partial: bool = False) -> int:
        """Restore the moment of an index, without what is damaged if so asked; return the transitions lost."""
        ...

    def prune(self, directory: Path, keep: Iterable[int]) -> None:
        """Delete what no index in `keep` needs."""
        ...


class Ring(Protocol):
    """What it needs besides for a one-step loss, and of a replay whose batches have weights."""

    def transitions(self, slots: npt.NDArray[np.int64], update_horizon: int) -> Mapping[str, npt.NDArray[Any]]:
        """Return the transitions of an index, for an n-step return of another n."""
        ...

    def set_priorities(self, index: npt.ArrayLike, priority: npt.ArrayLike) -> None:
        """Tell what transitions are worth."""
        ...


class DivergedError(RuntimeError):
    """The loss is not finite, and the message names the file that holds the batch; or a weight is not.

    Where the environment's own reward or observation is not, the message says so.
    """


class Drawn(NamedTuple):
    """A batch as the replay gave it.

    Attributes:
        number: How many were drawn before it.
        arrays: What `Replay.sample` returned.
        first_steps: The first steps of the same transitions, where their loss is added.
    """

    number: int
    arrays: Mapping[str, npt.NDArray[Any]]
    first_steps: Mapping[str, npt.NDArray[Any]] | None


class _Outcome(NamedTuple):
    """What an update has still to tell: its batch, its number, and the loss followed by those of the transitions."""

    drawn: Drawn
    update: int
    losses: Callable[[], npt.NDArray[np.float32]]  # waits for the device


class Learner:
    """Steps weights by the gradient of a loss that the subclass gives (`losses`), and keeps a target network.

    An update is ``draw``, ``learn``, ``settle``. Only the first and the last touch the replay, and the second touches
    nothing else than the learner's own tensors: another thread may do it. What a loss turned out to be (is it finite,
    what are the transitions worth) is on the host at once where the CPU computes. On another device nobody waits for
    it: it is looked at before the next batch is drawn, and before anybody is given weights or state; by then a loss
    that is not finite has moved no weight but by the optimiser's momentum, since its gradient was replaced by zero.

    Args:
        network: Updated in place.
        replay: Where transitions go and batches come from.
        target_update_period: Updates between two copies of the weights into the target network; those of all learners
            that share the weights, where there are several.
        optimizer: Makes the optimiser from the parameters.
        double: Let the online network choose the action that the target network values (van Hasselt et al. 2016).
        max_gradient_norm: Clip the gradient to this norm; None leaves it as it is.
        compute: Where updates run; the network must have been placed there.
        min_replay_history: Transitions observed before it is ready to update.
        one_step_loss: Add to the loss of each n-step return that of its first step alone.
        priority_epsilon: Added to a transition's loss to make its priority, where the replay has priorities.
        first_action: Number of the first action.
        seed: Of what a loss draws: noise, quantiles.
        diverged_dir: Where the batch goes whose loss is not finite; None for the working directory.
        read: Turns batches of stacks into what the network reads; None is for arrays that it reads as they are.

    Attributes:
        diverged_dir: As given.
        updates: Updates done by this learner.
        scalars: What the last batch gave, by name, as tensors: reading one waits for the device.

    Raises:
        ValueError: A period below one update.
    """

    def __init__(
        self,
        network: nn.Module,
        replay: Replay,
        *,
        target_update_period: int = 2000,
        optimizer: Optimizer = create_optimizer,
        double: bool = False,
        max_gradient_norm: float | None = None,
        compute: Compute | None = None,
        min_replay_history: int = 0,
        one_step_loss: bool = False,
        priority_epsilon: float = 1e-10,
        first_action: int = 0,
        seed: int = 0,
        diverged_dir: str | Path | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        """See the class."""
        if target_update_period < 1:
            raise ValueError(f"target_update_period must be >= 1 update, got {target_update_period}")
        self.compute = compute or Compute()
        self.network = network
        self.target = self.compute.place(copy.deepcopy(network)).requires_grad_(False)
        self.replay = replay
        self.double = double
        self._noisy_layers = [*noisy_layers(network), *noisy_layers(self.target)]
        self._parameters = dict(network.named_parameters())
        self._optimizer = optimizer(network.parameters())
        self._max_gradient_norm = max_gradient_norm
        self._target_update_period = target_update_period
        self._min_replay_history = min_replay_history
        self._one_step_loss = one_step_loss
        self._priority_epsilon = priority_epsilon
        self._first_action = first_action
        self._random = DecisionRandom(seed)
        self.diverged_dir = diverged_dir
        self._read = read or self.compute.tensor
        self._batches = 0
        self._outcome: _Outcome | None = None  # of the last update, until it is settled
        self._following: Any = None  # what the last transition led to, where that is known
        self.updates = 0
        self._updates_of_all = 0  # of all learners that share the weights
        self.scalars: Mapping[str, Tensor] = {}

    def losses(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """Return the loss [B] of each transition of a batch.

        Args:
            batch: What the replay gives, as tensors on the device.
            rng: All that the loss draws comes from here; it is another one for each batch.
        """
        raise NotImplementedError

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition, whose action is the environment's.

        Where it tells its next observation though the episode goes on, the next transition need not be the one that
        follows: what one of several learners does not see, or has come too late for, is taken for a truncation.
        """
        if self._following is not None and not are_equal(self._following, transition["observation"]):
            self.cut(self._following)
        ended = transition["terminal"] or transition["truncated"]
        following = None if ended else transition["next_observation"]
        self._following = None if following is None else copied(following)
        self.replay.observe({**transition, "action": transition["action"] - self._first_action})

    def cut(self, observation: Any) -> None:
        """End the running episode with the observation that its last transition led to: the next ones are missing."""
        self.replay.cut(observation)

    @property
    def ready(self) -> bool:
        """Whether the replay holds enough to learn from."""
        return len(self.replay) > 0 and self.replay.add_count > self._min_replay_history

    def update(self) -> Mapping[str, Tensor]:
        """Learn from one batch.

        Returns:
            Scalars by name, as tensors: reading one waits for the device.

        Raises:
            DivergedError: The loss is not finite.
        """
        scalars = self.learn(self.draw())
        self._settle_at_once()
        return scalars

    def draw(self) -> Drawn:
        """Return the next batch, drawn with the priorities that the last one left.

        Raises:
            DivergedError: The last batch's loss is not finite.
        """
        self.settle()
        arrays = self.replay.sample()
        first_steps = cast(Ring, self.replay).transitions(arrays["index"], 1) if self._one_step_loss else None
        self._batches += 1
        return Drawn(self._batches - 1, arrays, first_steps)

    def learn(self, drawn: Drawn) -> Mapping[str, Tensor]:
        """Step the weights; see `update`. `settle` is still to be called, by the thread that owns the replay."""
        return self.apply(self._gradients(drawn))

    def gradients(self) -> Mapping[str, Tensor]:
        """Return the gradient of a batch's loss on the present weights, by the parameter's name.

        Raises:
            DivergedError: The loss is not finite.
        """
        gradients = self._gradients(self.draw())
        self._settle_at_once()
        return gradients

    def _gradients(self, drawn: Drawn) -> Mapping[str, Tensor]:
        batch = self._tensors(drawn.arrays)
        rng = self._random.draw(0, drawn.number, eval_mode=False)
        resample_noise(self._noisy_layers, rng)
        each = self.losses(batch, rng)
        if drawn.first_steps is not None:
            each = each + self.losses(self._tensors(drawn.first_steps), rng)
        loss = losses.importance_weighted(each, batch["weight"]) if "weight" in batch else each.mean()
        self._tell(loss.detach(), each.detach(), drawn)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.scalars = {"Loss": loss.detach()}
        each_gradient = {name: parameter.grad for name, parameter in self._parameters.items()}
        gradients = {name: gradient for name, gradient in each_gradient.items() if gradient is not None}
        if self.compute.deferred:
            spoilt = ~loss.isfinite()
            for gradient in gradients.values():
                gradient.masked_fill_(spoilt, 0.0)
        return gradients

    def apply(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Step the weights by gradients, which may come from another learner; return what the last batch gave."""
        for name, parameter in self._parameters.items():
            parameter.grad = gradients.get(name)
        if self._max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self._max_gradient_norm)
        self._optimizer.step()
        self.updates += 1
        self._count(self._updates_of_all + 1)
        return self.scalars

    def note_updates(self, own: int, of_all: int) -> None:
        """Take note of how many updates this learner has made, and all learners that share the weights together.

        Where a copy into the target network has fallen due since, it is made now, of the weights as they are.
        """
        self.updates = own
        self._count(of_all)

    def _count(self, of_all: int) -> None:
        """Count the updates of all learners, and copy the weights into the target network once if that is due."""
        due = of_all // self._target_update_period > self._updates_of_all // self._target_update_period
        self._updates_of_all = of_all
        if due:
            self.synchronize_target()

    def _tensors(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Batch:
        how = {name: self._read if name in _OBSERVED else self.compute.tensor for name in _LEARNT_FROM}
        return {name: how[name](array) for name, array in arrays.items() if name in _LEARNT_FROM}

    def _tell(self, loss: Tensor, each: Tensor, drawn: Drawn) -> None:
        """Send the losses to the host in one transfer; look at the batch's own at once if nothing has to wait."""
        told = torch.cat([loss.float().view(1), each.float()]) if "weight" in drawn.arrays else loss.float().view(1)
        outcome = _Outcome(drawn, self.updates, self.compute.fetch(told))
        if not self.compute.deferred:
            self._check_finite(outcome)
        self._outcome = outcome

    def settle(self) -> None:
        """Look at what the last update's loss was, and tell the replay what its transitions are worth.

        Raises:
            DivergedError: The loss is not finite.
        """
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return
        if self.compute.deferred:
            self._check_finite(outcome)
        if "weight" in outcome.drawn.arrays:
            priority = outcome.losses()[1:].astype(np.float64) + self._priority_epsilon
            cast(Ring, self.replay).set_priorities(outcome.drawn.arrays["index"], priority)

    def _settle_at_once(self) -> None:
        if not self.compute.deferred:
            self.settle()

    def _check_finite(self, outcome: _Outcome) -> None:
        if math.isfinite(value := outcome.losses().item(0)):
            return
        path = (Path(self.diverged_dir or ".") / f"diverged_batch_{outcome.update}.pt").resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = outcome.drawn.arrays
        tensors = each_array(lambda array: torch.from_numpy(np.ascontiguousarray(array)), arrays)
        write_atomically(path, lambda file: torch.save({"batch": tensors, "learner": self._state()}, file))
        stops = "learning stops before it spoils the weights: they and the batch are in"
        if (told := _not_finite_of_the_environment(arrays)) is not None:
            raise DivergedError(
                f"the environment returned {told}, which makes the loss of update {outcome.update} {value}, and "
                f"{stops} {path}; mend the environment, or clip what it returns"
            )
        raise DivergedError(
            f"the loss of update {outcome.update} is {value}, and {stops} {path}; a smaller learning rate or a "
            "max_gradient_norm may help"
        )

    def synchronize_target(self) -> None:
        """Copy the weights into the target network."""
        self.target.load_state_dict(self.network.state_dict())

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that a policy needs; not a copy.

        Raises:
            DivergedError: The last update's loss is not finite.
        """
        self.settle()
        weights: dict[str, Tensor] = self.network.state_dict()
        return weights

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights into the network that is updated; target and optimiser stay as they are."""
        self.network.load_state_dict(weights)

    def take_over(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from the weights of a learner that died: its target is not known, so they are the target too."""
        self.load_weights(weights)
        self.synchronize_target()

    @property
    def optimizer_name(self) -> str:
        """Name of the optimiser's class: its state fits no other one."""
        return type(self._optimizer).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return weights, target, optimiser and counts; not the replay.

        Raises:
            DivergedError: The last update's loss is not finite, or a weight, after a gradient that was not.
        """
        self.settle()
        for name, parameter in self._parameters.items():
            if not parameter.isfinite().all():
                raise DivergedError(
                    f"{name} is not finite after update {self.updates}, though the loss was: a smaller learning rate "
                    "or a max_gradient_norm may help"
                )
        return self._state()

    def _state(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "network": self.network.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "updates": self.updates,
            "updates_of_all": self._updates_of_all,
            "batches": self._batches,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: It is the state of another kind of learner, network or optimiser; nothing has been changed.
        """
        self.check_state(state)
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        settings = [{**group} for group in self._optimizer.param_groups]
        self._optimizer.load_state_dict(state["optimizer"])
        for group, setting in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(setting, params=group["params"])  # a new learning rate is taken, the moments are kept
        self.updates = state["updates"]
        self._updates_of_all = state.get("updates_of_all", self.updates)  # states of older versions lack it
        self._batches = state["batches"]
        self._outcome = None

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another kind of learner or network in one sentence.

        Raises:
            ValueError: As said.
        """
        if (kind := state.get("kind")) != type(self).__name__:
            raise ValueError(
                f"the state is that of a {kind}, and this is a {type(self).__name__}: make the agent alike"
            )
        here, there = (
            {name: list(tensor.shape) for name, tensor in weights.items()}
            for weights in (self.network.state_dict(), state["network"])
        )
        for name in [*here, *there]:
            if here.get(name) != there.get(name):
                raise ValueError(
                    f"the state is that of another network ({name} has the shape {there.get(name)} there, "
                    f"{here.get(name)} here): make the network alike"
                )

    def save_replay(self, directory: Path, iteration: int) -> None:
        """Write the replay into `directory`, for `load_replay` of the same number.

        An episode that is under way ends here: whoever loads the replay does not live through the rest of it.

        Raises:
            DivergedError: The last update's loss is not finite.
        """
        self.settle()
        if self._following is not None:
            self.cut(self._following)
            self._following = None
        self.replay.save(directory, iteration)

    def load_replay(self, directory: Path, iteration: int, partial: bool = True) -> int:
        """Restore the replay.

        Args:
            directory: What `save_replay` was given.
            iteration: What `save_replay` was given.
            partial: Whether to do without the files of old transitions that are damaged or missing.

        Returns:
            How many transitions are lost with them.

        Raises:
            OSError: A file is missing.
            ValueError: A file is torn, or of another kind of replay.
        """
        lost = self.replay.load(directory, iteration, partial)
        self._outcome = self._following = None
        return lost

    def forget_replays(self, directory: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self.replay.prune(directory, keep)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


_OBSERVED = frozenset({"observation", "next_observation"})
_LEARNT_FROM = _OBSERVED | {"action", "reward", "discount", "weight"}


def _not_finite_of_the_environment(arrays: Mapping[str, Any]) -> str | None:
    """Say which reward or observation of a batch is not finite, None where all are: the environment's own numbers."""
    parts = {"reward": arrays["reward"], **_leaves("observation", arrays["observation"])}
    parts |= _leaves("next observation", arrays["next_observation"])
    for name, array in parts.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        at = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        place = list(at[2:]) or ""  # of the observation, not of batch and stack
        slot = f" (transition {arrays['index'][at[0]]} of the replay)" if "index" in arrays else ""
        return f"{array[at]} as its {name}{place}{slot}"
    return None


def _leaves(name: str, observations: Any) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(observations, Mapping):
        return {name: observations}
    return {
        leaf: array for key, each in observations.items() for leaf, array in _leaves(f"{name}[{key!r}]", each).items()
    }
