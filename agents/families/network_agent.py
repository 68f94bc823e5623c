"""The base class of agents that are a network, trained by gradient descent."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from async_wrappers.agents.hyperparameters import (
    again,
    flag,
    set_all,
    setting,
    settings,
    shared,
    whole,
)
from async_wrappers.agents.losses.loss import Batch, Discounting, Learning, LossOutput, Networks, batch_tensors
from async_wrappers.agents.losses.support import SupportMonitor
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.spaces.actions import Actions
from async_wrappers.agents.spaces.compute import Compute, Reader
from async_wrappers.agents.spaces.schema import each_array, each_part, whole_stacks
from async_wrappers.agents.spec import ReadyMade, Spec, reader_of, seeded
from async_wrappers.needs import Need, Words


def _check_device(name: str, value: Any) -> None:
    if not isinstance(value, str):  # `Compute` knows which ones there are
        raise ValueError(f"{name} must be text, got {value!r}")


def _check_bf16(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_) and not (isinstance(value, str) and value == "auto"):
        raise ValueError(f"{name} must be True, False or 'auto', got {value!r}")


@settings
class NetworkAgent(Spec):
    """An agent that is a network, trained by gradient descent.

    It pickles (with cloudpickle where a callable is a lambda) together with all values that gin binds, so that another
    process, whose gin is empty, makes the same policies and learners.

    A subclass declares further settings, checks conditions on several of them in `settle`, and writes `build_network`,
    `check_network` and the methods of `Spec`.
    """

    stack_size: int = whole(
        4, "k: the network reads the observations of the last k decisions.", 1, "observation", most=1000
    )
    gamma: float = again(Discounting, "gamma")
    discount_by: Literal["decision", "frame"] = again(Discounting, "discount_by")
    optimizer: Callable[..., torch.optim.Optimizer] = again(Learning, "optimizer")
    learning_rate_decay: int | None = again(Learning, "learning_rate_decay")
    learning_rate_power: float = again(Learning, "learning_rate_power")
    learning_rate_end: float = again(Learning, "learning_rate_end")
    max_gradient_norm: float | None = again(Learning, "max_gradient_norm")
    device: str = setting("auto", '``"auto"``, ``"cpu"`` or ``"cuda"``.', _check_device)
    channels_last: bool = flag(
        True, "Keep images in the channels-last memory format (faster on a CPU: benchmarks/README.md)."
    )
    bf16: bool | str = setting(
        False,
        'Forward passes in bfloat16. ``"auto"``: only where the processor or GPU has its arithmetic; the run\'s '
        "first line tells which, and a resumed run keeps it.",
        _check_bf16,
    )
    compile: bool = flag(
        False,
        "Compile the networks with ``torch.compile``; needs a C++ compiler (docs/how_to/faster_learning.md).",
    )
    graphs: bool = flag(
        False, "Compute updates and decisions by CUDA graphs, where the device is a GPU (docs/results/gpu.md)."
    )
    summary_writing_frequency: int = whole(500, "Updates between two reports of the loss.", 1, "update")
    diverged_dir: str | Path | None = again(Learning, "diverged_dir")
    decision_interval: int | None = whole(
        1,
        "Frames from one decision to the next. It is the environment's, and gin does not bind it.",
        1,
        "frame",
        none="frames that vary (random latencies, a real clock)",
    )
    seed: int = whole(0, "Seed of all that the agent draws.", 0, "", most=2**4096)

    lacks: ClassVar[Mapping[str, str]]  # settings of bases that a class has not, with the reason of each
    lacking: ClassVar[Mapping[str, Need]]  # of the class and its bases

    # Set by a subclass, or derived by `settle`.
    network: Callable[..., nn.Module]
    actions: Actions
    weights_seed: int
    replay_seed: int
    learning_seed: int
    learner_kind: str  # names the loss in a learner's state

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Collect the settings of a subclass, also of one without a decorator."""
        super().__init_subclass__(**arguments)
        settings(cls)

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], **given: Any) -> None:
        for name, need in type(self).lacking.items():
            if name in given and not need.is_met(value := given.pop(name)):
                raise ValueError(need.sentence(f"with agent {self.name!r}", value, {}))
        self.observation_space, self.action_space = observation_space, action_space
        set_all(self, given)
        self.compute = Compute(self.device, self.channels_last, self.bf16, self.compile, self.graphs)
        self.settle()
        self.reader = reader_of(observation_space, self.stack_size, self.compute, self.name)

    def settle(self) -> None:
        """Check conditions on several settings, and derive further attributes from them."""
        power, end = self.learning_rate_power, self.learning_rate_end
        falls = power != 1 or end != 0
        if self.learning_rate_decay is None:
            needs = {"learning_rate_decay": Words(f"None beside {power} and {end}")}
            refuse({"a falling rate": falls}, needs)

    def with_settings(self, **changed: Any) -> Self:
        """Return the same agent with other values of some settings, which are not checked."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | changed
        return other

    def seeds(self, number: int) -> list[int]:
        """Return a number of seeds that are derived from the agent's."""
        return [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(self.seed).spawn(number)]

    @property
    def num_actions(self) -> int:
        """How many Discrete actions there are, A."""
        number: int = self.actions.number  # type: ignore[union-attr]
        return number

    @property
    def first_action(self) -> int:
        """The number of the first Discrete action."""
        first: int = self.actions.first  # type: ignore[union-attr]
        return first

    # The network.

    def build_network(self, network: Callable[..., nn.Module]) -> nn.Module:
        """Call the factory for the agent's network; its weights are drawn from torch's generator."""
        raise NotImplementedError

    def check_network(self, network: nn.Module, read: Reader) -> None:
        """Refuse a network that does not fit the observations or the agent, with a ValueError."""
        raise NotImplementedError

    def make_network(self) -> nn.Module:
        """Make the network with its first weights, on the agent's device.

        Raises:
            ValueError: The network does not fit the observations or the memory, or the agent cannot use its output.
        """
        if isinstance(self.network, ReadyMade):
            return self.compute.place(self.network())
        try:
            with seeded(self.weights_seed):
                network = self.build_network(self.network)
                self.check_network(network, Reader(self.observation_space, self.stack_size, Compute("cpu")))
            return self.compute.place(network)
        except (RuntimeError, TypeError, MemoryError) as error:
            if (why := _no_memory(error)) is None:
                raise
            raise ValueError(
                f"network must be what memory holds with agent {self.name!r}, got one for actions of "
                f"{self.action_space} and observations of the shape {self.observation_shape} ({why}): make these or "
                "its layers smaller"
            ) from None

    def on_device(self, device: str) -> Self:
        """Return the same agent with another device to compute on.

        Raises:
            ValueError: There is no such device.
        """
        there = copy.copy(self)  # which leaves out tensors on a device, as pickling does
        there.device, there.compute = device, replace(self.compute, device=device)
        if there.compute.torch_device.type != self.compute.torch_device.type:  # as on the host, where graphs are slower
            there.compute = replace(there.compute, graphs=False)
        there.reader = reader_of(self.observation_space, self.stack_size, there.compute, self.name)
        return there

    def of_stacks(self) -> Self:
        """Return the same agent for observations that are stacks; see `Spec.of_stacks`."""
        return self.with_settings(whole_stacks=True)

    @property
    def stored_in_stacks(self) -> int | None:
        """The number k of stored observations that make a stack; None where a stored observation is a stack."""
        return None if self.whole_stacks else self.stack_size

    # What the agent states of its learning, for `agents.learning.making`.

    def loss(self, networks: Networks, batch: Batch, rng: np.random.Generator) -> LossOutput:
        """Return the loss of a batch; all random numbers are drawn from `rng`."""
        raise NotImplementedError

    def passes(
        self, networks: Networks, batch: Batch, rng: np.random.Generator
    ) -> Generator[Batch, None, Mapping[str, Tensor] | None]:
        """Yield the minibatches of an update, a gradient step for each; by default the batch itself."""
        yield batch
        return None

    @property
    def several_steps(self) -> bool:
        """Whether an update has several gradient steps, one for each of `passes`."""
        return type(self).passes is not NetworkAgent.passes

    @property
    def learning(self) -> Learning:
        """The settings of the agent's learners."""
        return shared(Learning, self)

    def batch_tensors(self, arrays: Mapping[str, Any]) -> Batch:
        """Return a batch's arrays as tensors; a batch of transitions, unless a subclass overrides this.

        With `needs_effect` "observation" and "next_observation" are dicts of "start" and "effect".
        """
        read: Callable[[Any], Any] = whole_stacks(self.reader) if self.whole_stacks else self.reader
        if self.needs_effect:
            read = each_part(read)
        return batch_tensors(arrays, read, self.compute.tensor)

    def check_learning(self) -> None:
        """Refuse settings that the agent can act with but cannot learn with, with a ValueError."""

    def share_of(self, learners: int) -> Mapping[str, int]:
        """Return the settings of one of several learners, each with a part of a batch and of the replay."""
        raise NotImplementedError

    def make_monitor(self) -> SupportMonitor | None:
        """Make the monitor of one environment's transitions; None for no monitor."""
        return None

    def make_learner(self, number: int = 0, learners: int = 1) -> Any:
        """Refuse: `agents.learning.making.make_learner` makes the learners of an agent that states its learning."""
        raise TypeError(_stated(self, "make_learner(spec, number, learners)"))

    def make_vector_learner(self, num_envs: int, number: int = 0, learners: int = 1) -> Any:
        """Refuse: `agents.learning.making.make_vector_learner` makes them."""
        raise TypeError(_stated(self, "make_vector_learner(spec, num_envs, number, learners)"))

    # For the runner, checkpoints and other processes.

    @property
    def observation_shape(self) -> Any:
        """Shape of the network's input, [k, *shape], or a dict of such."""
        return self.reader.shape

    def identity(self, learner: Any) -> dict[str, Any]:
        """Return the agent's name, its network's shapes, its replay's facts and its optimiser's name."""
        return {
            "agent": f"{type(self).__name__}Agent",
            "observation_shape": each_array(list, self.observation_shape),
            "actions": self.actions.facts,
            "network": {name: list(weight.shape) for name, weight in learner.network.named_parameters()},
            "replay": learner.replay.facts(),
            "optimizer": learner.optimizer_name,
        }

    def blank(self) -> Any:
        """Return the observation that stands before an episode's first: zeros."""
        return self.reader.blank()

    def without_tuples(self, observation: Any) -> Any:
        """Return an observation with a dict by position for each tuple of a Tuple space."""
        return self.reader.without_tuples(observation)

    def keep_diverged_in(self, directory: str | Path) -> None:
        """Let learners write batches with a loss that is not finite into a run's directory, unless one was given."""
        if self.diverged_dir is None:
            self.diverged_dir = str(directory)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, where gin is empty: plain values, and the network as it was made."""
        return {**super().__getstate__(), "network": ReadyMade(self.make_network().cpu())}


# The words of PyTorch's allocators, and of sizes beyond what a number of bytes can be.
_TOO_LARGE = re.compile(r"can't allocate memory|out of memory|Storage size calculation overflowed|Overflow when unpack")


def _no_memory(error: BaseException) -> str | None:
    """Return the reason in words if an error says that memory is too small; otherwise None."""
    words = str(error).partition("\n")[0]
    return words if isinstance(error, MemoryError) or _TOO_LARGE.search(words) else None


def _stated(spec: NetworkAgent, function: str) -> str:
    maker = f"async_wrappers.agents.learning.making.{function}"
    return f"{type(spec).__name__} states its learning: make its learner with {maker}"
