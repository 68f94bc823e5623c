"""From transitions to weights, by gradient descent on a loss that the agent gives.

An update has three steps, so that another thread may do the second one in parallel with the environment::

    draw            learn                                        finish_update
    replay.sample   networks, loss, gradient, optimiser          replay.set_priorities
    (the replay)    (the learner's own tensors, nothing else)    (the replay)

A network may name two of its parts, by attributes. Its ``acting`` part is what policies need: `weights` are of that
part alone, and so is what workers receive. Its part ``with_target`` is what the target network is a copy of. Each is
the whole network otherwise. A checkpoint holds all weights.

Finiteness and priorities are read from the loss on the host. On the CPU that is at once. On another device nothing
waits for it: the loss is checked before the next batch is drawn, and before weights or state are read. Until then a
loss that is not finite moves weights by the optimiser's momentum alone, since its gradient is replaced by zero.

With `Compute.graphs` two functions of the middle step are captured (`agents.learning.captured`): the gradient of the
loss, and the step of the optimiser. Between the two stands the average over several learners.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from async_wrappers.agents.acting.decisions import DecisionRandom
from async_wrappers.agents.acting.exploration import noisy_layers, resample_noise
from async_wrappers.agents.learning.captured import Captured, Inputs, NotCapturable, copies
from async_wrappers.agents.learning.diverged import check_loaded, check_weights, refuse_loss
from async_wrappers.agents.losses.chain_rule import gradients_of
from async_wrappers.agents.losses.loss import (
    Adam,
    Batch,
    Host,
    Learning,
    Loss,
    LossOutput,
    Networks,
    Passes,
    batch_tensors,
    clip_gradient_norm,
    mean_loss,
    mean_slopes,
    sum_of_losses,
    without_spoilt,
)
from async_wrappers.agents.losses.support import SupportMonitor
from async_wrappers.agents.needs_and_offers import refuse
from async_wrappers.agents.replay.mixture import Mixture
from async_wrappers.agents.replay.prefetch import SampledBatch, Source
from async_wrappers.agents.replay.replay import Replay
from async_wrappers.agents.replay.segments import check_saved
from async_wrappers.agents.spaces.actions import Actions
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.agents.spaces.schema import are_equal
from async_wrappers.agents.timing import PartTimes


class NotShared(RuntimeError):
    """The weights that a learner publishes are not all that another one needs."""

    ends_run = True  # a learner that is started again finds no more of them


_MONITORED = ("reward", "interval", "terminal", "truncated")


class _Unfinished(NamedTuple):
    """An update whose loss is not checked yet."""

    batch: SampledBatch
    update: int
    on_host: Callable[[], npt.NDArray[np.float32]]  # the loss, the checks, the priorities; waits for the device
    refusals: Sequence[Callable[[], None]]  # each raises the error of a check that does not hold


@final
class Learner:
    """Steps weights by the gradient of a loss; keeps a target network, a replay and an optimiser.

    Args:
        network: Updated in place; see above for its parts.
        loss: The agent's.
        replay: Where transitions go and batches come from.
        settings: Of the updates.
        kind: Names the loss; a state of another kind is refused.
        compute: Where updates run; the network must have been placed there.
        tensors: Turns a batch's arrays into the loss's input; None for transitions whose observations the network reads
            unchanged.
        actions: How the environment's actions are stored; None for Discrete ones that are counted from 0.
        seed: Of what a loss draws: noise, quantiles.
        monitors: Watch the observed transitions, one for each environment; may be empty.
        passes: From the networks, a batch and a generator to the minibatches of an update, with a gradient step each;
            None for the batch itself.

    Attributes:
        settings: As given.
        tensors: As given.
        network: As given.
        acting: Its part that policies read.
        target: The target network; None without one.
        diverged_dir: That of the settings, unless another one was set.
        source: The source of batches, which receives priorities: the replay, unless another `Source` was set.
        learners: How many synchronous learners there are.
        average: Maps a gradient, which it may overwrite, and its loss's number of items (`LossOutput.mean_over`) to the
            average over several synchronous learners; None for one.
        updates: Updates done by this learner.
        updates_of_all: Updates done by all learners that share the weights.
        scalars: The last batch's scalars by name, as tensors: reading one waits for the device.
        times: The times of an update's parts, to which agents and runners add theirs.
        networks: The networks that the loss calls.
        keeps_batch: Whether `batch` is the last one learnt from; otherwise it is None.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: Loss,
        replay: Replay | Mixture,
        settings: Learning | None = None,
        *,
        kind: str = "Learner",
        compute: Compute | None = None,
        tensors: Callable[[Mapping[str, Any]], Batch] | None = None,
        actions: Actions | None = None,
        seed: int = 0,
        monitors: Sequence[SupportMonitor] = (),
        passes: Passes | None = None,
    ) -> None:
        self.settings = settings or Learning()
        self.kind = kind
        self.compute = compute or Compute()
        self.network = network
        # A loss without a target gets none: for a billion weights it would take four gigabytes.
        self.target: nn.Module | None = None
        self.acting: nn.Module = getattr(network, "acting", network)
        self._with_target: nn.Module = getattr(network, "with_target", network)
        period, smoothing = self.settings.target_update_period, self.settings.target_smoothing
        refuse({"a moving target": smoothing is not None}, vars(self.settings))
        if period is not None or smoothing is not None:
            self.target = self.compute.place(copy.deepcopy(self._with_target)).requires_grad_(False)
            # The target's numbers and those that it follows; listing them takes as long as a small layer.
            self._old = [*self.target.parameters()], [*self.target.buffers()]
            self._new = [*self._with_target.parameters()], [*self._with_target.buffers()]
        self.replay = replay
        self.source: Source = replay
        self._loss, self._passes = loss, passes
        self.networks = Networks(self._forward_of(network), self._forward_of(self.target), network)
        self._noisy_layers = [layer for each in (network, self.target) if each for layer in noisy_layers(each)]
        self._parameters = dict(network.named_parameters())
        self._optimizer = self.settings.optimizer(network.parameters())
        self._learning_rates = [group["lr"] for group in self._optimizer.param_groups]
        self._stored = _as_they_are if actions is None else actions.stored
        self._random = DecisionRandom(seed)
        self.diverged_dir = self.settings.diverged_dir
        self.tensors = tensors or partial(batch_tensors, read=self.compute.tensor, tensor=self.compute.tensor)
        self._monitors = monitors
        self.learners = 1
        self.average: Callable[[Mapping[str, Tensor], Tensor | int], Mapping[str, Tensor]] | None = None
        self._mean_over: Tensor | int = 0
        self._batches = 0
        self._unfinished: _Unfinished | None = None
        self._late_checks: list[tuple[Tensor, Callable[[], None]]] = []  # of this update
        self._following: Any = None  # the last transition's next observation, where that is known
        self.updates = self.updates_of_all = 0
        self.scalars: Mapping[str, Tensor] = {}
        self.times = PartTimes()
        self.keeps_batch = False
        self.batch: Batch | None = None
        self._stepped: Mapping[str, Tensor] = {}  # the last gradients
        self._gradient_norm: Tensor | None = None  # of the last gradient, where it is computed to clip it
        self._gradient: Captured | None = None
        # Noise that several minibatches share is drawn between their graphs, which would not see it.
        if self.compute.graphs and not (self._noisy_layers and passes is not None):
            self._gradient = Captured(self._gradient_of, self.compute, f"the gradient of {kind}")
        self._optimization = self._new_optimization()

    def _forward_of(self, network: nn.Module | None) -> Callable[..., Tensor]:
        """Return a function that calls a network under the learner's precision."""
        if network is None:
            return _no_target
        if not self.compute.bf16 and not self.compute.automatic:
            return network

        def forward(*inputs: Any) -> Tensor:
            with self.compute.autocast():
                output: Tensor = network(*inputs)
            return output

        return forward

    @property
    def waits(self) -> bool:
        """Whether further transitions must wait until an update has made room for them."""
        return bool(getattr(self.replay, "waits", False))

    # Transitions.

    def observe(self, transition: Mapping[str, Any]) -> None:
        """Store a transition, whose action is the environment's.

        If the next transition does not continue this one (live runs drop some), the episode is truncated here. The
        learner keeps `next_observation` until the next call, so it must not be overwritten.
        """
        following, observation = self._following, transition["observation"]
        # In turn-based play the two are one array, and need no comparison.
        if following is not None and following is not observation and not are_equal(following, observation):
            self.cut(following)
        ended = transition["terminal"] or transition["truncated"]
        self._following = None if ended else transition["next_observation"]
        self.replay.observe({**transition, "action": self._stored(transition["action"])})
        if self._monitors:
            self._monitors[0].observe(transition)

    def extend(self, block: Mapping[str, Any]) -> None:
        """Store transitions of several environments, whose actions are the environment's; see `Replay.extend`.

        Each must continue the last one of its environment.
        """
        self.replay.extend({**block, "action": self._stored(block["action"])})
        for row, env_id in enumerate(block["env_ids"].tolist() if self._monitors else ()):
            self._monitors[env_id].observe({name: block[name][row] for name in _MONITORED})

    def cut(self, observation: Any, env_id: int = 0) -> None:
        """End the running episode of an environment, if one runs, with its last observation."""
        self.replay.cut(observation, env_id)
        if self._monitors:
            self._monitors[env_id].cut()

    def end_running(self, env_ids: npt.NDArray[np.int64] | None = None) -> None:
        """End the running episodes, of all environments or of some, whose continuation is not known."""
        self.replay.end_running(env_ids)
        for number, monitor in enumerate(self._monitors):
            if env_ids is None or number in env_ids:
                monitor.cut()

    @property
    def ready(self) -> bool:
        """Whether the replay holds enough to learn from."""
        return self.replay.drawable and self.replay.add_count > self.settings.min_replay_history

    # An update.

    def update(self) -> Mapping[str, Tensor]:
        """Learn from one batch.

        Returns:
            Scalars by name, as tensors: reading one waits for the device.

        Raises:
            DivergedError: The loss is not finite.
        """
        scalars = self.learn(self.draw())
        if not self.compute.deferred:
            self.finish_update()
        return scalars

    def draw(self) -> SampledBatch:
        """Return the next batch, drawn with the priorities of the last update.

        Without priorities nothing of the last update is needed to draw: a device computes it meanwhile, and with
        graphs the batch is sent there too, before its loss is waited for.

        Raises:
            DivergedError: The last batch's loss is not finite.
        """
        if self._unfinished is not None and "weight" in self._unfinished.batch.arrays:
            self.finish_update()
        begin = perf_counter()
        arrays = self.source.sample()
        first_steps = self.source.transitions(arrays["index"], 1) if self.settings.one_step_loss else None
        self._batches += 1
        sent = self.compute.sent(self.tensors, arrays) if self.compute.graphs else None
        self.times.seconds["Sample"] += perf_counter() - begin
        self.finish_update()
        return SampledBatch(self._batches - 1, arrays, first_steps, sent)

    def learn(self, sampled: SampledBatch) -> Mapping[str, Tensor]:
        """Step the weights; the thread that owns the replay must call `finish_update` afterwards."""
        if self._passes is not None:
            return self._learn_in_passes(sampled, self._passes)
        self._step(self._averaged(self._gradients(sampled)))
        self._count_update()
        return self.scalars

    @property
    def _present_networks(self) -> Networks:
        of_now = self.networks._replace(updates=self.updates_of_all, average=self.average, learners=self.learners)
        return of_now._replace(check=self._check_later) if self.compute.deferred else of_now

    def _check_later(self, holds: Tensor, refuse: Callable[[], None]) -> None:
        self._late_checks.append((holds, refuse))

    def _averaged(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return gradients if self.average is None else self.average(gradients, self._mean_over)

    def _learn_in_passes(self, sampled: SampledBatch, passes: Passes) -> Mapping[str, Tensor]:
        """Step the weights once for each minibatch; return the means of their metrics, which may be of rows."""
        batch = self.tensors(sampled.arrays) if sampled.sent is None else sampled.sent
        rng = self._random.draw(0, sampled.number, eval_mode=False)
        resample_noise(self._noisy_layers, rng)
        networks = self._present_networks
        each: dict[str, list[Tensor]] = {}
        found: dict[str, Tensor] = {}
        priority: Tensor | None = None

        def minibatches() -> Iterator[Batch]:
            found.update((yield from passes(networks, batch, rng)) or {})

        def refuse_not_finite(loss: Tensor) -> None:
            if not self.compute.deferred and not math.isfinite(loss.item()):
                refuse_loss(loss.item(), self.updates, sampled.arrays, self._state, self.diverged_dir)

        for minibatch in minibatches():
            begin = perf_counter()
            if self._gradient is None:
                output = self._loss(networks, minibatch, rng)
                loss = mean_loss(output, minibatch)
                self._mean_over = output.loss.numel() if output.mean_over is None else output.mean_over
                refuse_not_finite(loss)
                of_minibatch, gradients = output.priority, self._backward(loss, output, minibatch, begin)
            else:
                captured = self._captured_gradient(self._gradient, {"batch": minibatch}, rng)
                refuse_not_finite(captured["loss"])
                of_minibatch, gradients = captured["priority"], captured["gradients"]
            if "weight" in batch and priority is None:  # the first pass's
                priority = of_minibatch if self._gradient is None or of_minibatch is None else of_minibatch.clone()
            self._step(self._averaged(gradients))
            for name, scalar in self.scalars.items():
                each.setdefault(name, []).append(scalar.reshape(-1))
        self.scalars = {**{name: torch.cat(numbers).float().mean() for name, numbers in each.items()}, **found}
        if self.compute.deferred or priority is not None:  # the mean is not finite where one of the losses is not
            self._send_losses_to_host(self.scalars["Loss"], priority, sampled)
        self._count_update()
        return self.scalars

    def gradients(self) -> Mapping[str, Tensor]:
        """Return the gradient of a batch's loss on the present weights, by the parameter's name.

        Raises:
            DivergedError: The loss is not finite.
            ValueError: An update has several gradient steps.
        """
        if self._passes is not None:
            raise ValueError(f"learners must be 1 with {self.kind}, whose update has several gradient steps")
        gradients = self._gradients(self.draw())
        if not self.compute.deferred:
            self.finish_update()
        return gradients

    def _gradients(self, sampled: SampledBatch) -> Mapping[str, Tensor]:
        begin = perf_counter()
        batch = self.tensors(sampled.arrays) if sampled.sent is None else sampled.sent
        if self.keeps_batch:
            self.batch = batch
        rng = self._random.draw(0, sampled.number, eval_mode=False)
        first_steps = None if sampled.first_steps is None else self.tensors(sampled.first_steps)
        if self._gradient is not None:
            found = self._captured_gradient(self._gradient, _given(batch, first_steps), rng)
            self._send_losses_to_host(found["loss"], found["priority"] if "weight" in batch else None, sampled)
            gradients: Mapping[str, Tensor] = found["gradients"]
            return gradients
        resample_noise(self._noisy_layers, rng)
        output = self._output(self._present_networks, batch, first_steps, rng)
        loss = mean_loss(output, batch)
        self._mean_over = output.loss.numel() if output.mean_over is None else output.mean_over
        self._send_losses_to_host(loss.detach(), output.priority if "weight" in batch else None, sampled)
        return self._backward(loss, output, batch, begin)

    def _output(self, networks: Networks, batch: Batch, first_steps: Batch | None, rng: Any) -> LossOutput:
        """Return the loss of a batch, with that of its first steps where there are any."""
        output = self._loss(networks, batch, rng)
        return output if first_steps is None else sum_of_losses(output, self._loss(networks, first_steps, rng))

    def _captured_gradient(
        self, gradient: Captured, given: Mapping[str, Any], rng: np.random.Generator
    ) -> Mapping[str, Any]:
        """Compute a gradient by its graph: "loss", "priority" and "gradients" lie in it until the next one."""
        begin = perf_counter()
        found: Mapping[str, Any] = gradient(given, rng)
        self._mean_over = found["mean_over"]
        self.scalars = copies(found["scalars"])
        self.times.add("Backward", begin)
        return found

    def _gradient_of(self, given: Mapping[str, Any], rng: Any, host: Host) -> Mapping[str, Any]:
        """Return a loss with its gradient; a function of tensors (`captured.Captured`)."""
        batch = given["batch"]
        networks = self._present_networks._replace(host=host)
        if isinstance(rng, Inputs):
            average = None if self.average is None else _refuse_to_average
            updates = host.now(lambda: self.updates_of_all)
            networks = networks._replace(updates=updates, average=average, check=_refuse_to_check)
        if self._passes is None:
            resample_noise(self._noisy_layers, rng)
        output = self._output(networks, batch, given.get("first_steps"), rng)
        loss = mean_loss(output, batch)
        scalars, gradients = self._descent(loss, output, batch)
        return {
            "loss": loss.detach(),
            "priority": None if output.priority is None else output.priority.detach(),
            "mean_over": output.loss.numel() if output.mean_over is None else output.mean_over,
            "scalars": scalars,
            "gradients": gradients,
        }

    def _backward(self, loss: Tensor, output: LossOutput, batch: Batch, begin: float) -> Mapping[str, Tensor]:
        """Return a loss's gradient, which began to be computed at a time, and set the scalars."""
        now = self.times.add("Loss", begin)
        self.scalars, gradients = self._descent(loss, output, batch)
        self.times.add("Backward", now)
        return gradients

    def _descent(
        self, loss: Tensor, output: LossOutput, batch: Batch
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Return the scalars of a batch's mean loss, and its gradient by the parameter's name."""
        each = self._parameters.items()
        if (by_slopes := gradients_of(output.loss, self._parameters.values())) is not None:
            found = by_slopes(mean_slopes(output.loss.detach(), batch))
            gradients = {name: found[learnt] for name, learnt in each if learnt.requires_grad and learnt in found}
        else:
            for parameter in self._parameters.values():
                parameter.grad = None
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = {name: gradient for name, parameter in each if (gradient := parameter.grad) is not None}
        scalars = {"Loss": loss.detach(), **{name: value.detach() for name, value in output.metrics.items()}}
        return scalars, without_spoilt(gradients, loss.detach()) if self.compute.deferred else gradients

    def apply(self, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Step the weights by gradients, which may come from another learner; return the last batch's scalars."""
        self._step(gradients if self._optimization is None else copies(gradients))  # a graph may keep their place
        self._count_update()
        return self.scalars

    def _step(self, gradients: Mapping[str, Tensor]) -> None:
        begin, self._stepped = perf_counter(), gradients
        if self.settings.learning_rate_decay is not None:
            scale = self.settings.learning_rate_scale(self.updates)
            for group, rate in zip(self._optimizer.param_groups, self._learning_rates, strict=True):
                group["lr"] = rate * scale
        if self._optimization is None:
            self._optimized({"gradients": gradients}, None, None)
        else:
            # Our Adam asks for its rates; of another optimiser each rate is a step of its own.
            rates = () if isinstance(self._optimizer, Adam) else tuple(g["lr"] for g in self._optimizer.param_groups)
            found = self._optimization({"gradients": gradients, "rates": rates})
            self._gradient_norm = found["norm"]
        self.times.seconds["Optimizer"] += perf_counter() - begin

    def _optimized(self, given: Mapping[str, Any], rng: None, host: Host | None) -> Mapping[str, Tensor | None]:
        """Step the weights by gradients, and return their norm if they are clipped; a function of tensors."""
        for name, parameter in self._parameters.items():
            parameter.grad = given["gradients"].get(name)
        if (most := self.settings.max_gradient_norm) is not None:
            self._gradient_norm = clip_gradient_norm(self._parameters.values(), most)
        if host is not None and isinstance(self._optimizer, Adam):
            self._optimizer.step(host)
        else:
            self._optimizer.step()
        return {"norm": self._gradient_norm}

    def _new_optimization(self) -> Captured | None:
        """Return the captured step of the present optimiser; None where nothing is captured."""
        if not self.compute.graphs:
            return None
        if isinstance(self._optimizer, torch.optim.RMSprop):
            _count_on_device(self._optimizer)
        return Captured(self._optimized, self.compute, f"the optimiser's step of {self.kind}", adopts=True)

    def _count_update(self) -> None:
        self.updates += 1
        self._count(self.updates_of_all + 1)

    def summary(self) -> dict[str, float]:
        """Return the values that are reported beside the scalars of an update; reading them may wait for the device.

        Returns:
            "LearningRate", of the last update; "GradientNorm", of its gradient before it was clipped; and the size of
            the store: "ReplaySize" in transitions, sequences or unrolls, "QueueSize" in unrolls.
        """
        found = {"LearningRate": float(self._optimizer.param_groups[0]["lr"])}
        norm = self._gradient_norm
        if norm is None:
            each = self._stepped.values()
            norm = torch.stack([gradient.norm() for gradient in each]).norm() if each else None
        if norm is not None:
            found["GradientNorm"] = float(norm)
        for source in getattr(self.replay, "sources", (self.replay,)):
            name = "ReplaySize" if getattr(source, "replayed", True) else "QueueSize"
            found[name] = found.get(name, 0) + len(source)
        return found

    def _send_losses_to_host(self, loss: Tensor, priority: Tensor | None, sampled: SampledBatch) -> None:
        """Begin one transfer of the loss and the priorities; check the loss at once if `Compute.deferred` is False."""
        late, self._late_checks = self._late_checks, []
        numbers = [each.float().view(1) for each in (loss, *(holds for holds, _ in late))]
        if priority is not None:
            numbers.append(priority.detach().float())
        on_host = self.compute.fetch(torch.cat(numbers) if len(numbers) > 1 else numbers[0])
        unfinished = _Unfinished(sampled, self.updates, on_host, [refuse for _, refuse in late])
        if not self.compute.deferred:
            self._check(unfinished)
        self._unfinished = unfinished

    def finish_update(self) -> None:
        """Check that the last update's loss was finite, and set the priorities of its transitions.

        Raises:
            DivergedError: The loss is not finite.
        """
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return
        if self.compute.deferred:
            self._check(unfinished)
        if "weight" in unfinished.batch.arrays:
            begin = perf_counter()
            priorities = unfinished.on_host()[1 + len(unfinished.refusals) :]
            priority = priorities.astype(np.float64) + self.settings.priority_epsilon
            self.source.set_priorities(unfinished.batch.arrays["index"], priority)
            self.times.seconds["Priorities"] += perf_counter() - begin

    def _check(self, unfinished: _Unfinished) -> None:
        """Refuse a loss that is not finite, and what else does not hold."""
        loss, *checks = unfinished.on_host()[: 1 + len(unfinished.refusals)].tolist()
        for holds, refuse_update in zip(checks, unfinished.refusals, strict=True):
            if not holds:
                refuse_update()
        if not math.isfinite(loss):
            refuse_loss(loss, unfinished.update, unfinished.batch.arrays, self._state, self.diverged_dir)

    # The target network.

    def note_updates(self, own: int, of_all: int) -> None:
        """Set the numbers of updates of this learner, and of all learners that share the weights.

        If a copy into the target network has become due since, it is made now, of the present weights; a target that
        follows the weights smoothly takes all its steps at once.
        """
        self.updates = own
        self._count(of_all)

    def _count(self, of_all: int) -> None:
        """Count the updates of all learners, and let the target network follow: once, if a copy is due."""
        period, before = self.settings.target_update_period, self.updates_of_all
        self.updates_of_all = of_all
        if self.settings.target_smoothing is not None:
            self._smooth_target(of_all - before)
        elif period is not None and of_all // period > before // period:
            self.synchronize_target()

    @torch.no_grad()
    def _smooth_target(self, updates: int) -> None:
        """Let the target's weights move towards the present ones, as after a number of updates."""
        assert self.target is not None and self.settings.target_smoothing is not None
        tau = self.settings.target_smoothing
        weight = tau if updates == 1 else 1 - (1 - tau) ** updates
        torch._foreach_lerp_([*self._old[0]], [*self._new[0]], weight)
        for old, new in zip(self._old[1], self._new[1], strict=True):
            old.copy_(new)

    def synchronize_target(self) -> None:
        """Copy the weights into the target network, if there is one."""
        if self.target is not None:
            self.target.load_state_dict(self._with_target.state_dict())

    # The optimiser, which may change between two phases of learning.

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the step size of further updates; the optimiser's moments stay."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate

    def restart_optimizer(self) -> None:
        """Begin with a new optimiser, made as the first one was: without moments.

        Raises:
            DivergedError: The last update's loss is not finite.
        """
        self.finish_update()
        self._optimizer = self.settings.optimizer(self.network.parameters())
        self._optimization = self._new_optimization()

    # Weights and state.

    @property
    def version(self) -> int:
        """The number of updates in the weights, which is `updates`."""
        return self.updates

    def weights(self) -> Mapping[str, Tensor]:
        """Return the weights that a policy needs; not a copy.

        Raises:
            DivergedError: The last update's loss is not finite.
        """
        self.finish_update()
        return self.acting.state_dict()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy what another learner's `weights` returned into the network; target and optimiser stay as they are.

        Raises:
            NotShared: They are those of a part of the network.
        """
        self._check_whole("AsyncRunner.learners must be 1")
        self.network.load_state_dict(weights)

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Load the weights alone from what `state_dict` returned, into the network and its target.

        Raises:
            ValueError: They are of another network, or not finite; nothing has been changed.
        """
        check_loaded(self.network, state)
        self.network.load_state_dict(state["network"])
        self.synchronize_target()

    def policy_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the weights, and the precision that was chosen for them."""
        return {name: state[name] for name in ("network", "bf16") if name in state}

    def load_optimizer(self, state: Mapping[str, Any]) -> None:
        """Load the optimiser's moments from what `state_dict` returned; its settings stay."""
        saved, own = state["optimizer"], self._optimizer.param_groups
        groups = saved["param_groups"]
        if len(groups) == len(own):  # PyTorch refuses others; settings say, too, where steps are counted
            groups = [{**setting, "params": group["params"]} for setting, group in zip(own, groups, strict=True)]
        before = {parameter: {**moments} for parameter, moments in self._optimizer.state.items()}
        self._optimizer.load_state_dict({**saved, "param_groups": groups})
        if self._optimization is not None and not _load_in_place(before, self._optimizer.state):
            self._optimization.forget()

    def take_over(self, weights: Mapping[str, Tensor]) -> None:
        """Continue from the weights of a learner that died: its target is not known, so they become the target too.

        Raises:
            NotShared: They are those of a part of the network, and the others died with the learner.
        """
        self._check_whole("a learner that died cannot be continued: start the run again, from its last checkpoint")
        self.load_weights(weights)
        self.synchronize_target()

    def _check_whole(self, remedy: str) -> None:
        """Refuse to go on from another learner's weights where they are a part of the network."""
        if self.acting is not self.network:
            raise NotShared(f"{self.kind} publishes the acting part of its weights alone, so {remedy}")

    @property
    def optimizer_name(self) -> str:
        """Name of the optimiser's class, to which alone its state fits."""
        return type(self._optimizer).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return weights, target, optimiser and counts; not the replay.

        Raises:
            DivergedError: The last update's loss is not finite, or a weight is not finite after such a gradient.
        """
        self.finish_update()
        check_weights(self._parameters, self.updates)
        return self._state()

    def _state(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "network": self.network.state_dict(),
            **({} if self.target is None else {"target": self.target.state_dict()}),
            "optimizer": self._optimizer.state_dict(),
            "updates": self.updates,
            "updates_of_all": self.updates_of_all,
            "batches": self._batches,
            **({"bf16": bool(self.compute.bf16)} if self.compute.automatic else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: It is the state of another kind of learner, network or optimiser; nothing has been changed.
        """
        self.check_state(state)
        self.network.load_state_dict(state["network"])
        if self.target is not None:
            self.target.load_state_dict(state["target"])
        self.load_optimizer(state)
        self.compute.keep_precision(state)
        self.updates = state["updates"]
        self.updates_of_all = state["updates_of_all"]
        self._batches = state["batches"]
        self._unfinished = None

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse the state of another kind of learner or network, and weights that are not finite.

        Raises:
            ValueError: As said.
        """
        if (kind := state.get("kind")) != self.kind:
            raise ValueError(f"the state is that of a {kind}, and this is a {self.kind}: make the agent alike")
        check_loaded(self.network, state)

    def check_replay(self, directory: Path, iteration: int) -> None:
        """Refuse files that `load_replay` cannot use; the transitions in them are not read.

        Raises:
            OSError: A file is missing.
            ValueError: One is damaged, or of another format.
        """
        check_saved(directory, iteration)

    def save_replay(self, directory: Path, iteration: int) -> None:
        """Write the replay into `directory`, for `load_replay` with the same iteration.

        A running episode ends here: the process that loads the replay does not play the rest of it.

        Raises:
            DivergedError: The last update's loss is not finite.
        """
        self.finish_update()
        if self._following is not None:
            self.cut(self._following)
            self._following = None
        self.replay.save(directory, iteration)

    def load_replay(self, directory: Path, iteration: int) -> None:
        """Restore the replay.

        Args:
            directory: What `save_replay` was given.
            iteration: What `save_replay` was given.

        Raises:
            OSError: A file is missing.
            ValueError: A file is torn, or of another kind of replay.
        """
        self.replay.load(directory, iteration)
        self._unfinished = self._following = None

    def forget_replays(self, directory: Path, keep: set[int]) -> None:
        """Delete the replay files that no iteration in `keep` needs."""
        self.replay.prune(directory, keep)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _given(batch: Batch, first_steps: Batch | None) -> dict[str, Batch]:
    return {"batch": batch} if first_steps is None else {"batch": batch, "first_steps": first_steps}


def _count_on_device(optimizer: torch.optim.Optimizer) -> None:
    """Let an optimiser count its steps where its parameters are, if that is a GPU; it computes the same."""
    for group in optimizer.param_groups:
        group["capturable"] = all(parameter.is_cuda for parameter in group["params"])
    optimizer._warned_capturable_if_run_uncaptured = True  # its first steps are eager


def _refuse_to_check(holds: Tensor, refuse: Callable[[], None]) -> NoReturn:
    raise NotCapturable("the loss checks a number, which a graph would not do again")


def _refuse_to_average(tensors: Mapping[str, Tensor], count: Tensor | int) -> NoReturn:
    raise NotCapturable("the loss asks the other learners, between which no graph can wait")


@torch.no_grad()
def _load_in_place(before: Mapping[Tensor, Mapping[str, Any]], state: Mapping[Tensor, dict[str, Any]]) -> bool:
    """Put the numbers of an optimiser's loaded state where the old ones lie; return whether all have a place there."""
    for parameter, moments in before.items():
        loaded = state.get(parameter, {})
        for name, kept in moments.items():
            if not isinstance(kept, Tensor) or not isinstance(new := loaded.get(name), Tensor):
                return False
            loaded[name] = kept.copy_(new)
    return True


def _as_they_are(action: Any) -> Any:
    return action


def _no_target(*inputs: Any) -> Tensor:
    raise RuntimeError("the loss asks for a target network, and the agent declares none: give a target_update_period")
