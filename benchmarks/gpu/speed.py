"""Updates and agent steps per second on a device, beside plain loops of PyTorch with the same networks.

A plain loop is what a user would write in an afternoon (`benchmarks.gpu.plain`): the same layers, the paper's loss in a
few lines, a batch that is pinned and sent to the device, no checks, no logs, no checkpoints. An update is of a batch
that is given, the same again and again. A step acts, stores and learns, in a plain loop in NumPy arrays. SAC and PPO
play numbers of HalfCheetah's sizes, which cost next to nothing.

Contestants take turns, and each window ends when the device has finished.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import gymnasium as gym
import torch

from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
from async_wrappers.batched.factory import create_batched_envs
from async_wrappers.batched.vector_envs import VectorEnvs
from async_wrappers.envs import create_atari_environment, create_atari_vector
from benchmarks.gpu import plain
from benchmarks.gpu.cases import CASES, ROBOT, VECTOR, Case, Drawn, pair
from benchmarks.measuring import interleave, median_ratio, print_table

OURS, PLAIN, GRAPHS, CAPTURED = "ours", "plain loop", "ours, graphs", "plain loop, captured"
_NAMES = {"with_graphs": GRAPHS, "captured": CAPTURED}
GAMES, UNROLL = 32, 20  # of V-trace on Pong
OBSERVED, ACTED = VECTOR.shape[0], ROBOT.shape[0]


class Size(NamedTuple):
    """How much is measured.

    Attributes:
        rounds: Windows of each contestant.
        updates: Of a window.
        steps: Agent steps of a window, of one environment.
        unrolls: Updates of a window of V-trace and PPO that play.
        units: Of SAC's and PPO's hidden layers.
        graphs: Whether both also play by CUDA graphs.
    """

    rounds: int
    updates: int
    steps: int
    unrolls: int
    units: tuple[int, ...]
    graphs: bool = False


FULL, BRIEF = Size(5, 100, 400, 6, (256, 1024)), Size(1, 1, 4, 1, (32,))
WITH_GRAPHS = Size(3, 100, 200, 4, (256,), graphs=True)  # of eight minutes
Contestants = Mapping[str, Callable[[], float]]


def finish(device: str) -> None:
    """Wait until the device has finished."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def contestants(
    ours: Any, theirs: Any, number: int, device: str, weight: int = 1, warmup: int = 2, **others: Any
) -> Contestants:
    """Return what makes a number of steps, and returns how many a second has, each counted `weight` times.

    Args:
        ours: Our step.
        theirs: The plain loop's.
        number: Steps of a sample.
        device: Where they compute.
        weight: Agent steps of one.
        warmup: Steps before the first sample.
        **others: Further steps by name; `with_graphs` and `captured` are those by CUDA graphs.
    """
    steps = {OURS: ours, PLAIN: theirs, **{_NAMES[name]: step for name, step in others.items()}}

    def window(step: Callable[[], Any]) -> float:
        finish(device)
        begin = time.perf_counter()
        for _ in range(number):
            step()
        finish(device)
        return weight * number / (time.perf_counter() - begin)

    for step in steps.values():
        for _ in range(warmup):
            step()
    return {name: partial(window, step) for name, step in steps.items()}


def measure_speed(
    device: str, left: Callable[[], float], brief: bool, size: Size = FULL, leave: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Print a table for each contest, and return a row for each; those that no time is left for are named.

    Args:
        device: Where the contestants compute.
        left: Returns the seconds that are left.
        brief: The fewest repetitions.
        size: How much is measured otherwise.
        leave: Contests that are left out.
    """
    size, rows, longest = BRIEF._replace(graphs=size.graphs) if brief else size, [], 0.0
    for name, unit, make in contests(size):
        if f"{name}, {unit}" in leave:
            continue
        if left() < 1.5 * longest + 5:
            print(f"left out, as no time was left: {name}, {unit}", flush=True)
            continue
        began = time.monotonic()
        try:
            samples = interleave(make(device, size), size.rounds, warmup=0 if brief else 1)
        except ImportError as error:
            print(f"left out: {name}, {unit}: {error}", flush=True)
            continue
        print_table(f"{name}, {unit} per second", samples, PLAIN, digits=1)
        medians = {each: round(statistics.median(values), 1) for each, values in samples.items()}
        found = {"ratio": round(median_ratio(samples, OURS, PLAIN), 3)}
        for key, one, other in (
            ("ratio of graphs", GRAPHS, PLAIN),
            ("ratio of graphs to the captured loop", GRAPHS, CAPTURED),
        ):
            if one in samples and other in samples:
                found[key] = round(median_ratio(samples, one, other), 3)
                print(f"{key}: {found[key]:.3f}", flush=True)
        rows.append({"agent": name, "what": unit, **medians, **found})
        longest = max(longest, time.monotonic() - began)
    return rows


def contests(size: Size) -> Iterator[tuple[str, str, Callable[[str, Size], Contestants]]]:
    """Yield name, unit and maker of each contest."""
    yield "DQN", "updates", partial(value_updates, CASES["DQN"], plain.dqn)
    yield "full Rainbow", "updates", partial(value_updates, CASES["full Rainbow"], plain.rainbow)
    yield "V-trace", "updates", vtrace_updates
    for units in size.units:
        yield f"PPO, {units} units", "updates", partial(ppo_updates, units)
        yield f"SAC, {units} units", "updates", partial(sac_updates, units)
    yield "DQN on Pong", "agent steps", partial(pong_steps, CASES["DQN"], plain.dqn)
    yield "full Rainbow on Pong", "agent steps", partial(pong_steps, CASES["full Rainbow"], plain.rainbow)
    yield f"V-trace on {GAMES} Pong", "agent steps", vtrace_steps
    for units in size.units:
        yield f"PPO, {units} units", "agent steps", partial(ppo_steps, units)
        yield f"SAC, {units} units", "agent steps", partial(sac_steps, units)


def ppo_of(units: int) -> Case:
    """Return PPO with two hidden layers of so many units for policy and value each, and nothing normalised."""
    network = partial(create_policy_value_network, hidden=(units, units))
    plainly = {"network": network, "normalize_observations": False, "normalize_rewards": False}
    return CASES["PPO"]._replace(settings={**CASES["PPO"].settings, **plainly})


def sac_of(units: int) -> Case:
    """Return SAC with two hidden layers of so many units."""
    return CASES["SAC"]._replace(settings={**CASES["SAC"].settings, "hidden_units": units})


# Updates of a batch that is given.


def given_batch(case: Case, device: str, graphs: bool = False) -> tuple[Any, Callable[[], None], Any]:
    """Return a learner on the device, its update of one batch again and again, and the batch's arrays."""
    _, learner = pair(case, case.spec("cpu"), case.spec(device, graphs=graphs))
    sampled, numbers = learner.draw(), count()
    arrays = {name: array for name, array in sampled.arrays.items() if name not in ("weight", "index")}

    def update() -> None:
        learner.finish_update()  # as before each batch that is drawn
        learner.learn(sampled._replace(number=next(numbers), arrays=arrays, sent=None))

    return learner, update, arrays


def value_updates(case: Case, update: Any, device: str, size: Size) -> Contestants:
    """Learn values from 32 stacks."""
    learner, ours, arrays = given_batch(case, device)
    theirs, captured = (update(deepcopy(learner.network), device, play) for play in (plain.eager, plain.by_graph))
    more = by_graphs(size, lambda: given_batch(case, device, True)[1], lambda: captured(arrays))
    return contestants(ours, lambda: theirs(arrays), size.updates, device, **more)


def by_graphs(size: Size, ours: Callable[[], Any], captured: Callable[[], None] | None = None) -> dict[str, Any]:
    """Return the contestants by graphs, and their warm-up, where they are asked for."""
    if not size.graphs:
        return {}
    return {"with_graphs": ours(), "warmup": 24, **({} if captured is None else {"captured": captured})}


def vtrace_updates(device: str, size: Size) -> Contestants:
    """Learn from 8 unrolls of 20 rows."""
    case = CASES["V-trace"]
    learner, ours, arrays = given_batch(case, device)
    theirs, captured = (plain.vtrace(deepcopy(learner.network), device, play) for play in (plain.eager, plain.by_graph))
    length, envs = arrays["action"].shape
    rows = plain.unrolls(case.observation_space.shape, length, envs, int(case.action_space.n))
    more = by_graphs(size, lambda: given_batch(case, device, True)[1], lambda: captured(rows))
    return contestants(ours, lambda: theirs(rows), size.updates, device, **more)


def ppo_updates(units: int, device: str, size: Size) -> Contestants:
    """Make two passes over 256 decisions in minibatches of 64."""
    _, ours, arrays = given_batch(ppo_of(units), device)
    theirs, captured = (
        plain.ppo(plain.Gaussian(OBSERVED, ACTED, units).to(device), device, epochs=2, batch_size=64, play=play)
        for play in (plain.eager, plain.by_graph)
    )
    length = len(arrays["action"])
    extras = arrays["extras"]
    rows = {
        "seen": arrays["observation"].reshape(length + 1, -1, OBSERVED),
        "action": extras["drawn"],
        "log_mu": extras["log_prob"],
        "reward": arrays["reward"],
    }
    more = by_graphs(size, lambda: given_batch(ppo_of(units), device, True)[1], lambda: captured(rows))
    return contestants(ours, lambda: theirs(rows), max(1, size.updates // 8), device, **more)


def sac_updates(units: int, device: str, size: Size) -> Contestants:
    """Learn from 256 transitions."""
    _, ours, arrays = given_batch(sac_of(units), device)
    theirs, captured = (
        plain.sac(plain.Squashed(OBSERVED, ACTED, units).to(device), device, play)
        for play in (plain.eager, plain.by_graph)
    )
    more = by_graphs(size, lambda: given_batch(sac_of(units), device, True)[1], lambda: captured(arrays))
    return contestants(ours, lambda: theirs(arrays), size.updates, device, **more)


# Agent steps.


def turn_based(env: gym.Env[Any, Any], agent: TurnBasedAgent) -> Callable[[], None]:
    """Return a step of a turn-based agent, which acts, stores and learns."""

    def played() -> Iterator[None]:
        for episode in count():
            observation, _ = env.reset(seed=episode)
            action = agent.begin_episode(observation)
            while True:
                observation, reward, terminated, truncated, _ = env.step(action)
                yield
                if terminated or truncated:
                    break
                action = agent.step(float(reward), observation)
            agent.end_episode(float(reward), terminated, observation)

    playing = played()
    return lambda: next(playing)


def of_all(envs: Any, agent: VectorAgent) -> Callable[[], None]:
    """Return a step of an agent on all environments at once."""
    envs.begin(list(range(envs.num_envs)))

    def step() -> None:
        shown = envs.recv()
        agent.observe(shown)
        envs.send(shown.env_ids, agent.act(shown))

    return step


def pong_steps(case: Case, update: Any, device: str, size: Size) -> Contestants:
    """Play Pong one decision at a time, and learn from a batch of 32 on every fourth."""
    env, other, third = (create_atari_environment("Pong", frame_skip=4, sticky_actions=False) for _ in range(3))
    arguments = {**case.settings, "device": device, "update_period": 4, "replay_capacity": 10_000}
    agent = TurnBasedAgent.playing(case.agent, env, **arguments)
    network = deepcopy(agent.learner.network)
    theirs = plain.replayed_steps(other, network, update(network, device), device)
    arguments["graphs"] = True
    more = by_graphs(size, lambda: turn_based(third, TurnBasedAgent.playing(case.agent, third, **arguments)))
    warmup = 80 if size.graphs else 50
    return contestants(turn_based(env, agent), theirs, size.steps, device, **{**more, "warmup": warmup})


def vtrace_steps(device: str, size: Size) -> Contestants:
    """Play 32 games of Pong with V-trace, and learn from 20 rows of each."""
    vector, other, third = (create_atari_vector("Pong", GAMES, sticky_actions=False) for _ in range(3))
    spaces: dict[str, Any] = {
        "observation_space": vector.single_observation_space,
        "action_space": vector.single_action_space,
    }
    case = CASES["V-trace"]._replace(envs=GAMES, **spaces)
    lengths = {"unroll_length": UNROLL, "batch_size": GAMES}
    agent = VectorAgent(case.spec(device, **lengths), GAMES)
    theirs = plain.vtrace_steps(other, deepcopy(agent.learner.network), UNROLL, device)
    ours = of_all(VectorEnvs(vector), agent)
    spec = case.spec(device, **lengths, graphs=True)
    more = by_graphs(size, lambda: of_all(VectorEnvs(third), VectorAgent(spec, GAMES)))
    warmup = 5 * UNROLL if size.graphs else UNROLL + 2
    return contestants(ours, theirs, size.unrolls * UNROLL, device, GAMES, **{**more, "warmup": warmup})


def ppo_steps(units: int, device: str, size: Size) -> Contestants:
    """Play 8 environments in rounds of 256 decisions."""
    case = ppo_of(units)
    length = case.settings["update_period"] // case.envs
    envs = create_batched_envs(partial(Drawn, VECTOR, ROBOT), case.envs)
    network = plain.Gaussian(OBSERVED, ACTED, units).to(device)
    update = plain.ppo(network, device, epochs=2, batch_size=64)
    theirs = plain.ppo_steps([Drawn(VECTOR, ROBOT) for _ in range(case.envs)], network, update, length, device)
    ours = of_all(envs, VectorAgent(case.spec(device), case.envs))
    return contestants(ours, theirs, size.unrolls * length, device, case.envs, warmup=length + 2)


def sac_steps(units: int, device: str, size: Size) -> Contestants:
    """Play one environment, with an update of 256 transitions after each step."""
    env, case = Drawn(VECTOR, ROBOT), sac_of(units)
    arguments = {**case.settings, "device": device, "min_replay_history": 300, "replay_capacity": 10_000}
    ours = turn_based(env, TurnBasedAgent.playing(case.agent, env, **arguments))
    theirs = plain.sac_steps(Drawn(VECTOR, ROBOT), plain.Squashed(OBSERVED, ACTED, units).to(device), device)
    other, arguments["graphs"] = Drawn(VECTOR, ROBOT), True
    more = by_graphs(size, lambda: turn_based(other, TurnBasedAgent.playing(case.agent, other, **arguments)))
    warmup = 330 if size.graphs else 305
    return contestants(ours, theirs, size.steps, device, **{**more, "warmup": warmup})
