"""Plain loops of PyTorch: the papers' losses in a few lines, for batches of NumPy arrays that are pinned and sent.

Each is played eagerly, or from a CUDA graph that is captured by hand (`by_graph`), the faster rival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from async_wrappers.agents.acting.exploration import noisy_layers, resample_noise

Arrays = Mapping[str, Any]
Update = Callable[[Arrays], None]


def send(arrays: Arrays, device: str) -> dict[str, Tensor]:
    """Return arrays as tensors on a device; nobody waits for the copies."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    if torch.device(device).type == "cuda":
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}


class Loop(NamedTuple):
    """An update: the arrays that it reads, what it computes from their tensors, and what follows on the host."""

    names: Sequence[str]
    compute: Callable[[Mapping[str, Tensor]], None]
    after: Callable[[], None] = lambda: None


def eager(loop: Loop, device: str) -> Update:
    """Return a loop's update as it is written."""

    def update(arrays: Arrays) -> None:
        loop.compute(send({name: arrays[name] for name in loop.names}, device))
        loop.after()

    return update


def by_graph(loop: Loop, device: str) -> Update:
    """Return a loop's update by a graph: static inputs, three updates to warm up, a capture, replays."""
    static: dict[str, Tensor] = {}
    on_gpu, runs, graph = torch.device(device).type == "cuda", 0, None
    stream: Any = torch.cuda.Stream() if on_gpu else None  # type: ignore[no-untyped-call]

    def update(arrays: Arrays) -> None:
        nonlocal runs, graph
        for name, tensor in send({name: arrays[name] for name in loop.names}, device).items():
            static[name] = static[name].copy_(tensor) if name in static else tensor.clone()
        runs += 1
        if not on_gpu:
            loop.compute(static)
        elif runs <= 3:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loop.compute(static)
            torch.cuda.current_stream().wait_stream(stream)
        else:
            if graph is None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=stream):
                    loop.compute(static)
            graph.replay()
        loop.after()

    return update


Play = Callable[[Loop, str], Update]


def adam(parameters: Any, play: Play, **arguments: float) -> torch.optim.Adam:
    """Return PyTorch's Adam: as it comes, or as a graph needs it, and in one kernel."""
    parameters = list(parameters)
    captured: dict[str, Any] = {"fused": True, "capturable": True} if parameters[0].is_cuda else {}
    return torch.optim.Adam(parameters, **arguments, **(captured if play is by_graph else {}))  # type: ignore[arg-type]


def every(updates: int, act: Callable[[], Any]) -> Callable[[], None]:
    """Return what acts on every so many calls."""
    calls = count(1)
    return lambda: act() if next(calls) % updates == 0 else None


def step(loss: Tensor, optimizer: torch.optim.Optimizer, parameters: Any = None, norm: float | None = None) -> None:
    """Descend a loss."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, norm)
    optimizer.step()


def perceptron(inputs: int, units: int, outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    """Return two hidden layers."""
    hidden = nn.Linear(inputs, units), activation(), nn.Linear(units, units), activation()
    return nn.Sequential(*hidden, nn.Linear(units, outputs))


# Values: DQN, and C51 with noisy layers, dueling heads and the double target.

_OF_VALUES = ("observation", "action", "reward", "discount", "next_observation")


def dqn(network: nn.Module, device: str, play: Play = eager) -> Update:
    """Return DQN's update with Huber's loss; the target is copied every 2,000 updates."""
    target, optimizer = deepcopy(network), adam(network.parameters(), play, lr=1e-4)

    def compute(tensors: Mapping[str, Tensor]) -> None:
        seen, action, reward, discount, following = tensors.values()
        with torch.no_grad():
            wanted = reward + discount * target(following).max(dim=1).values
        q = network(seen).gather(1, action.long().unsqueeze(1)).squeeze(1)
        step(functional.smooth_l1_loss(q, wanted), optimizer)

    copied = every(2_000, lambda: target.load_state_dict(network.state_dict()))
    return play(Loop(_OF_VALUES, compute, copied), device)


def rainbow(
    network: nn.Module,
    device: str,
    play: Play = eager,
    low: float = -10.0,
    high: float = 10.0,
    atoms: int = 51,
) -> Update:
    """Return full Rainbow's update: projected distributions, the double target, noise drawn anew."""
    target, optimizer = deepcopy(network), adam(network.parameters(), play, lr=6.25e-5)
    layers = [*noisy_layers(network), *noisy_layers(target)]
    support, width = torch.linspace(low, high, atoms, device=device), (high - low) / (atoms - 1)
    rng = np.random.default_rng(0)

    def draw_noise() -> None:
        for layer in layers if play is by_graph else ():  # the device draws, within the graph
            drawn = (torch.randn(size, device=device) for size in (layer.in_features, layer.out_features))
            layer._noise = tuple(each.abs().sqrt().copysign(each) for each in drawn)
        if play is not by_graph:
            resample_noise(layers, rng)

    def compute(tensors: Mapping[str, Tensor]) -> None:
        draw_noise()
        seen, action, reward, discount, following = tensors.values()
        rows = torch.arange(len(action), device=device)
        with torch.no_grad():
            best = (network(following).softmax(-1) @ support).argmax(dim=1)
            p = target(following)[rows, best].softmax(-1)
            z = (reward.unsqueeze(1) + discount.unsqueeze(1) * support).clamp(low, high)
            place = (z - low) / width
            below = place.floor().clamp(max=atoms - 2)
            share = place - below
            projected = torch.zeros_like(p)
            projected.scatter_add_(1, below.long(), p * (1 - share))
            projected.scatter_add_(1, below.long() + 1, p * share)
        log_p = network(seen)[rows, action.long()].log_softmax(-1)
        step(-(projected * log_p).sum(-1).mean(), optimizer)

    copied = every(2_000, lambda: target.load_state_dict(network.state_dict()))
    return play(Loop(_OF_VALUES, compute, copied), device)


def replayed_steps(env: Any, network: Any, update: Update, device: str, capacity: int = 10_000) -> Callable[[], None]:
    """Return a step of a game on stacks of four frames: act, store, and learn from 32 on every fourth step."""
    frames = np.zeros((capacity, *env.observation_space.shape), np.uint8)
    actions, rewards, ends = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32), np.zeros(capacity, bool)
    rng, number = np.random.default_rng(0), 0
    back = np.arange(-3, 1)
    observation, _ = env.reset(seed=0)

    @torch.inference_mode()
    def act(stack: Any) -> int:
        outputs = network(send({"stack": stack}, device)["stack"])
        values = outputs if outputs.ndim == 2 else outputs.mean(-1)  # of distributions, as their order is not looked at
        return int(values.argmax())

    def play() -> None:
        nonlocal observation, number
        at = number % capacity
        frames[at] = observation
        action = act(frames[(at + back) % capacity][None]) if rng.random() > 0.01 else int(rng.integers(6))
        observation, reward, terminated, truncated, _ = env.step(action)
        actions[at], rewards[at], ends[at] = action, reward, terminated
        if terminated or truncated:
            observation, _ = env.reset()
        number += 1
        if number % 4 == 0 and number > 40:
            drawn = rng.integers(4, min(number, capacity) - 1, 32)
            stacks = frames[drawn[:, None] + back], frames[drawn[:, None] + back + 1]
            discount = np.where(ends[drawn], np.float32(0), np.float32(0.99))
            update(dict(zip(_OF_VALUES, (stacks[0], actions[drawn], rewards[drawn], discount, stacks[1]), strict=True)))

    return play


# V-trace, on stacks of four frames.


def vtrace(network: Any, device: str, play: Play = eager) -> Update:
    """Return V-trace's update for unrolls: "stack" `[T + 1, B, 4, H, W]`; "action", "reward", "logits" `[T, B, ..]`."""
    optimizer = adam(network.parameters(), play, lr=1e-4)

    def compute(tensors: Mapping[str, Tensor]) -> None:
        stack, action, reward, mu = tensors.values()
        length, envs = action.shape
        logits, values = network.head(network.torso(stack.flatten(0, 1).float() / 255))
        logits, values = logits.view(length + 1, envs, -1)[:-1], values.view(length + 1, envs)
        log_probs = logits.log_softmax(-1)
        log_pi = log_probs.gather(2, action.unsqueeze(2)).squeeze(2)
        log_mu = mu.log_softmax(-1).gather(2, action.unsqueeze(2)).squeeze(2)
        ratios, fixed = (log_pi - log_mu).exp().clamp(max=1).detach(), values.detach()
        deltas = ratios * (reward + 0.99 * fixed[1:] - fixed[:-1])
        errors = torch.zeros_like(fixed)
        for s in reversed(range(length)):
            errors[s] = deltas[s] + 0.99 * ratios[s] * errors[s + 1]
        targets = fixed + errors
        advantages = ratios * (reward + 0.99 * targets[1:] - fixed[:-1])
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = (-log_pi * advantages).mean() + 0.25 * ((targets - values)[:-1] ** 2).mean() - 0.01 * entropy
        step(loss, optimizer, network.parameters(), 40.0)

    return play(Loop(("stack", "action", "reward", "logits"), compute), device)


def unrolls(shape: Sequence[int], length: int, envs: int, actions: int) -> dict[str, Any]:
    """Return drawn unrolls of stacks."""
    rng = np.random.default_rng(0)
    return {
        "stack": rng.integers(0, 256, (length + 1, envs, 4, *shape), np.uint8),
        "action": rng.integers(0, actions, (length, envs)),
        "reward": rng.choice([-1, 0, 1], (length, envs)).astype(np.float32),
        "logits": rng.standard_normal((length, envs, actions), np.float32),
    }


def vtrace_steps(vector: Any, network: Any, length: int, device: str) -> Callable[[], None]:
    """Return a step of all games of a vector: act, store, and learn when unrolls of a length are complete."""
    envs, actions = vector.num_envs, int(vector.single_action_space.n)
    rows = unrolls(vector.single_observation_space.shape, length, envs, actions)
    update, rng = vtrace(network, device), np.random.default_rng(0)
    stack, row = rows["stack"][0].copy(), 0
    stack[:, -1], _ = vector.reset(seed=0)

    @torch.inference_mode()
    def act() -> Any:
        logits, _ = network.head(network.torso(send({"stack": stack}, device)["stack"].float() / 255))
        return logits.cpu().numpy()

    def play() -> None:
        nonlocal row
        rows["stack"][row] = stack
        if row == length:
            update(rows)
            rows["stack"][0], row = stack, 0
        rows["logits"][row] = logits = act()
        rows["action"][row] = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        observation, rows["reward"][row], _, _, _ = vector.step(rows["action"][row])
        stack[:, :-1], stack[:, -1] = stack[:, 1:].copy(), observation
        row += 1

    return play


# PPO and SAC, on vectors.


class Gaussian(nn.Module):
    """A policy with deviations that are parameters, and a value; two hidden layers each."""

    def __init__(self, observed: int, acted: int, units: int) -> None:
        super().__init__()
        self.mean = perceptron(observed, units, acted, nn.Tanh)
        self.value = perceptron(observed, units, 1, nn.Tanh)
        self.log_std = nn.Parameter(torch.zeros(acted))

    def log_prob(self, seen: Tensor, action: Tensor) -> Tensor:
        """Return log-densities `[B]`."""
        normal = torch.distributions.Normal(self.mean(seen), self.log_std.exp(), validate_args=False)
        return normal.log_prob(action).sum(1)


def ppo(network: Gaussian, device: str, epochs: int, batch_size: int, play: Play = eager) -> Update:
    """Return PPO's update for rounds: "seen" `[T + 1, B, O]`, "action", "log_mu", "reward" `[T, B, ...]`."""
    optimizer = adam(network.parameters(), play, lr=3e-4, eps=1e-5)

    def compute(tensors: Mapping[str, Tensor]) -> None:
        seen, action, log_mu, reward, orders = tensors.values()
        with torch.no_grad():
            values = network.value(seen).squeeze(2)
            deltas, advantages = reward + 0.99 * values[1:] - values[:-1], torch.zeros_like(reward)
            running = torch.zeros_like(reward[0])
            for row in reversed(range(len(reward))):
                running = deltas[row] + 0.99 * 0.95 * running
                advantages[row] = running
            targets = advantages + values[:-1]
        flat = [each.flatten(0, 1) for each in (seen[:-1], action, log_mu, advantages, targets)]
        for order in orders.unbind():
            for chosen in torch.split(order, batch_size):
                met, acted, before, advantage, target = (each[chosen] for each in flat)
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                ratio = (network.log_prob(met, acted) - before).exp()
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                error = functional.mse_loss(network.value(met).squeeze(1), target)
                step(0.5 * error - gain, optimizer, network.parameters(), 0.5)

    round_of = play(Loop(("seen", "action", "log_mu", "reward", "orders"), compute), device)

    def update(arrays: Arrays) -> None:
        orders = torch.stack([torch.randperm(arrays["log_mu"].size) for _ in range(epochs)])
        round_of({**arrays, "orders": orders.numpy()})

    return update


def ppo_steps(envs: Sequence[Any], network: Gaussian, update: Update, length: int, device: str) -> Callable[[], None]:
    """Return a step of all environments: act, store, and learn when a round of a length is complete."""
    observed, acted = envs[0].observation_space.shape[0], envs[0].action_space.shape[0]
    rows = {
        "seen": np.zeros((length + 1, len(envs), observed), np.float32),
        "action": np.zeros((length, len(envs), acted), np.float32),
        "log_mu": np.zeros((length, len(envs)), np.float32),
        "reward": np.zeros((length, len(envs)), np.float32),
    }
    row = 0
    seen = np.stack([env.reset(seed=number)[0] for number, env in enumerate(envs)])

    @torch.inference_mode()
    def act() -> tuple[Any, Any]:
        on_device = send({"seen": seen}, device)["seen"]
        mean = network.mean(on_device)
        drawn = mean + network.log_std.exp() * torch.randn_like(mean)
        return drawn.cpu().numpy(), network.log_prob(on_device, drawn).cpu().numpy()

    def play() -> None:
        nonlocal row
        rows["seen"][row] = seen
        if row == length:
            update(rows)
            rows["seen"][0], row = seen, 0
        rows["action"][row], rows["log_mu"][row] = act()
        for number, env in enumerate(envs):
            shown, reward, terminated, truncated, _ = env.step(rows["action"][row, number].clip(-1, 1))
            rows["reward"][row, number] = reward
            seen[number] = env.reset()[0] if terminated or truncated else shown
        row += 1

    return play


class Squashed(nn.Module):
    """SAC's actor and two critics; two hidden layers each."""

    def __init__(self, observed: int, acted: int, units: int) -> None:
        super().__init__()
        self.actor = perceptron(observed, units, 2 * acted, nn.ReLU)
        self.critics = nn.ModuleList(perceptron(observed + acted, units, 1, nn.ReLU) for _ in range(2))
        self.log_alpha = nn.Parameter(torch.zeros(()))

    def draw(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions and their log-densities."""
        mean, log_std = self.actor(seen).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        before = normal.rsample()
        action = before.tanh()
        return action, (normal.log_prob(before) - (1 - action.square() + 1e-6).log()).sum(1)


def values(critics: nn.ModuleList, seen: Tensor, action: Tensor) -> Tensor:
    """Return the critics' values `[2, B]`."""
    both = torch.cat([seen, action], 1)
    return torch.stack([critic(both).squeeze(1) for critic in critics])


def sac(network: Squashed, device: str, play: Play = eager) -> Update:
    """Return SAC's update: the critics, then the actor and the temperature, then the targets."""
    targets = deepcopy(network.critics)
    of_critics = adam(network.critics.parameters(), play, lr=3e-4)
    of_actor = adam([*network.actor.parameters(), network.log_alpha], play, lr=3e-4)

    def compute(tensors: Mapping[str, Tensor]) -> None:
        seen, action, reward, discount, following = tensors.values()
        seen, following = seen.flatten(1), following.flatten(1)
        alpha = network.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = network.draw(following)
            least = values(targets, following, next_action).min(dim=0).values - alpha * next_log_prob
            wanted = reward + discount * least
        step((values(network.critics, seen, action) - wanted).square().sum(0).mean(), of_critics)
        drawn, log_prob = network.draw(seen)
        loss = (alpha * log_prob - values(network.critics, seen, drawn).min(dim=0).values).mean()
        of_alpha = (-network.log_alpha.exp() * (log_prob.detach() - action.shape[1])).mean()
        step(loss + of_alpha, of_actor)
        with torch.no_grad():
            torch._foreach_lerp_([*targets.parameters()], [*network.critics.parameters()], 0.005)

    return play(Loop(_OF_VALUES, compute), device)


def sac_steps(env: Any, network: Squashed, device: str, capacity: int = 10_000) -> Callable[[], None]:
    """Return a step of an environment: act, store, and learn from 256 once there are 300."""
    observed, acted = env.observation_space.shape[0], env.action_space.shape[0]
    columns = {
        "observation": np.zeros((capacity, observed), np.float32),
        "action": np.zeros((capacity, acted), np.float32),
        "reward": np.zeros(capacity, np.float32),
        "discount": np.zeros(capacity, np.float32),
        "next_observation": np.zeros((capacity, observed), np.float32),
    }
    update, rng, number = sac(network, device), np.random.default_rng(0), 0
    observation, _ = env.reset(seed=0)

    @torch.inference_mode()
    def act() -> Any:
        return network.draw(send({"seen": observation[None]}, device)["seen"])[0][0].cpu().numpy()

    def play() -> None:
        nonlocal observation, number
        action = act()
        following, reward, terminated, truncated, _ = env.step(action)
        row = (observation, action, reward, 0.0 if terminated else 0.99, following)
        for column, value in zip(columns.values(), row, strict=True):
            column[number % capacity] = value
        observation = env.reset()[0] if terminated or truncated else following
        number += 1
        if number > 300:
            drawn = rng.integers(0, min(number, capacity), 256)
            update({name: column[drawn] for name, column in columns.items()})

    return play
