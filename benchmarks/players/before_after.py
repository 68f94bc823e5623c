"""The contestants of `benchmarks.before_after`: one thing that this project does, by whichever tree is on the path.

    PYTHONPATH=TREE python -P benchmarks/players/before_after.py MEASURE   (in TREE)

A process reads lines ``go N`` and answers each with ``wall_seconds processor_seconds`` of N units. The file is run by
its path, and imports of the project only what `FOUND` names, so that one copy drives every tree that has those names:
where a name has moved, its new place is put before the old one.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import signature
from itertools import cycle, islice
from typing import Any

FOUND = {  # by name, the places where a tree may have it: the first that is there is taken
    "agents' gin names": ("async_wrappers.agents.configurables", "agents.configurables"),
    "async_wrappers' gin names": ("async_wrappers.configurables",),
    "play_episode": (
        "async_wrappers.agents.play.turns.turns:play_episode",
        "async_wrappers.agents.play.turns.episode:play_episode",
        "async_wrappers.agents.experiment.episode:play_episode",
        "async_wrappers.agents.experiment:play_episode",
        "agents.experiment:play_episode",
    ),
    "RealtimeDelay": ("async_wrappers:RealtimeDelay",),
    "VectorRealtimeDelay": ("async_wrappers:VectorRealtimeDelay",),
    "AsyncRunner": ("async_wrappers:AsyncRunner",),
    "LogNormal": ("async_wrappers.latency:LogNormal",),
    "create_replay": (
        "async_wrappers.agents.replay.replay:create_replay",
        "agents.replay.replay:create_replay",
        "agents.replay:create_replay",
    ),
}
DELAY = 8  # frames
EPISODE = 500  # frames
BATCH = 32  # transitions
STORED = 20_000  # transitions in the replay that is drawn from

Play = Callable[[int], None]


def find(name: str) -> Any:
    """Return what the tree has under a name.

    Raises:
        ImportError: None of the places is there.
    """
    for place in FOUND[name]:
        module, _, attribute = place.partition(":")
        try:
            found = importlib.import_module(module)
            return getattr(found, attribute) if attribute else found
        except (AttributeError, ModuleNotFoundError):
            continue
    raise ImportError(f"{name} must be at one of {', '.join(FOUND[name])}: add its place to {__file__}")


class Turnstile:
    """Lets as many units through as standard input says, then answers with the time that they took, and waits.

    What libraries print goes to standard error, since standard output is for the answers.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._left = 0
        self._begin: tuple[float, float] | None = None

    def serve(self, play: Play) -> None:
        """Answer until the input ends; for what can be called with a number of units."""
        while True:
            units = self._asked()
            begin = time.perf_counter(), time.process_time()
            play(units)
            self._answer(begin)

    def enter(self) -> None:
        """Come to the next unit, and wait if need be; for what calls us in the middle of a loop of its own."""
        if self._left == 0:
            if self._begin is not None:
                self._answer(self._begin)
            self._left = self._asked()
            self._begin = time.perf_counter(), time.process_time()
        self._left -= 1

    def _answer(self, begin: tuple[float, float]) -> None:
        print(time.perf_counter() - begin[0], time.process_time() - begin[1], file=self._answers, flush=True)

    def _asked(self) -> int:
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # threads and files of libraries are not waited for
        return int(line.removeprefix("go "))


# Wrappers: a unit is a frame.


def boxing() -> Any:
    """Return ALE Boxing frame by frame, grey, without other wrappers."""
    import ale_py
    import gymnasium as gym

    gym.register_envs(ale_py)
    return gym.make("ALE/Boxing-v5", obs_type="grayscale", frameskip=1, repeat_action_probability=0.0).unwrapped


def cartpole() -> Any:
    """Return a CartPole that never falls, without other wrappers."""
    from gymnasium.envs.classic_control import CartPoleEnv

    env = CartPoleEnv()
    env.theta_threshold_radians = env.x_threshold = math.inf
    return env


def wrapper(make: Callable[[], Any], simulated: bool = False, **schedule: Any) -> Play:
    """Play episodes of at most `EPISODE` decisions with an action on every frame, the agent's or the default one."""
    import numpy as np

    if simulated:
        schedule |= {"latency": find("LogNormal")(mean=0.120, cv=0.2), "fps": 60}
    bare = make()
    actions = np.random.default_rng(0).integers(bare.action_space.n, size=10_007)
    draw = cycle([int(action) for action in actions]).__next__
    env = find("RealtimeDelay")(bare, default_action=lambda observation, last_action: draw(), **schedule)
    env.reset(seed=0)

    def play(frames: int) -> None:
        played = 0
        while played < frames:
            _, info = env.reset()
            for _ in range(min(EPISODE, frames - played)):
                _, _, terminated, truncated, info = env.step(draw())
                if terminated or truncated:
                    break
            played += info["realtime"]["frame"]

    return play


def vector() -> Play:
    """Step 8 CartPoles with constant delays; a unit is a frame of one of them."""
    import gymnasium as gym

    count = 8
    env = gym.make_vec("CartPole-v1", num_envs=count, vectorization_mode="vector_entry_point")
    env = find("VectorRealtimeDelay")(env, DELAY, default_action="repeat")
    env.action_space.seed(0)
    actions = cycle([env.action_space.sample() for _ in range(97)])
    env.reset(seed=0)

    def play(frames: int) -> None:
        for _ in range(frames // count):
            env.step(next(actions))

    return play


def virtual() -> Play:
    """Play CartPole by staggered workers on the virtual clock; each call is a run."""
    terms = {"backend": "virtual", "latency": 0.120, "default_action": "repeat", "seed": 0}

    def play(frames: int) -> None:
        runner = find("AsyncRunner")(cartpole, lambda: lambda observation: int(observation[2] > 0), 8, 60, **terms)
        runner.run(frames=frames)

    return play


# Agents: a unit is a step, that is a decision with its transition, and an update on every so many.


def bound(gin_files: tuple[str, ...], *bindings: str) -> Any:
    """Return gin with the files of the tree and the bindings."""
    import gin

    find("agents' gin names")
    find("async_wrappers' gin names")
    gin.parse_config_files_and_bindings(gin_files, bindings)
    return gin


def train(folder: str, game: str, agent: str, turnstile: Turnstile) -> None:
    """Train the agent of a gin file, which learns soon, for ever, episode by episode, as the runner does."""
    soon = f"{agent}.min_replay_history = 200", f"{agent}.replay_capacity = 10_000"
    gin = bound((f"configs/{folder}/{game}.gin",), *soon)
    environment = "create_atari_environment" if game == "atari" else "create_gym_environment"
    play_for_ever(turnstile, gin, gin.get_configurable(environment)())


def play_for_ever(turnstile: Turnstile, gin: Any, environment: Any, eval_mode: bool = False) -> None:
    """Play episodes, coming to the turnstile before each step of the environment."""
    import gymnasium as gym

    class Watched(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            turnstile.enter()
            return self.env.step(action)

    watched = Watched(environment)
    agent = gin.get_configurable("create_agent")(watched, seed=0)
    agent.eval_mode = eval_mode
    play_episode = find("play_episode")
    for seed in range(10**9):
        play_episode(agent, watched, seed)


def free_decisions(eval_mode: bool, turnstile: Turnstile) -> None:
    """Play a game of constants by a DQN whose network returns a constant, and which never learns."""
    import gin
    import gymnasium as gym
    import numpy as np
    import torch

    class Free(torch.nn.Module):
        def __init__(self, num_actions: int) -> None:
            super().__init__()
            self.values = torch.nn.Parameter(torch.zeros(1, num_actions))

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return self.values.expand(len(observations), -1)

    @gin.configurable
    def free_network(observation_shape: Any, num_actions: int, **kind: Any) -> Free:
        return Free(num_actions)

    class Constant(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        action_space = gym.spaces.Discrete(2)
        shown, frame = np.zeros(4, np.float32), 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.frame = 0
            return self.shown, {}

        def step(self, action: Any) -> Any:
            self.frame += 1
            return self.shown, 1.0, False, self.frame == EPISODE, {}

    bindings = (
        "create_agent.agent_name = 'dqn'",
        "DQNAgent.network = @free_network",
        "DQNAgent.stack_size = 1",
        "DQNAgent.min_replay_history = 1_000_000_000",
        "DQNAgent.replay_capacity = 20_000",
        "DQNAgent.epsilon_train = 0.0",
        "DQNAgent.epsilon_eval = 0.0",
        "DQNAgent.epsilon_fn = @identity_epsilon",
    )
    play_for_ever(turnstile, bound((), *bindings), Constant(), eval_mode)


# Replays: a unit is a transition stored, or a batch drawn, with its priorities set where it has some.


def atari_replay(prioritized: bool) -> Any:
    """Return an empty replay of 84 x 84 grey frames in stacks of four."""
    import numpy as np
    from gymnasium.spaces import Box

    create_replay, space = find("create_replay"), Box(0, 255, (84, 84), np.uint8)
    kind: dict[str, Any] = {"selector": "prioritized" if prioritized else "uniform"}
    if "selector" not in signature(create_replay).parameters:
        kind = {"prioritized": prioritized}  # as older trees call it
    return create_replay(space, capacity=STORED, stack_size=4, batch_size=BATCH, seed=0, **kind)


def transitions() -> Iterator[Mapping[str, Any]]:
    """Yield transitions of Atari for ever, in episodes of 1,000."""
    import numpy as np

    shown = np.random.default_rng(0).integers(256, size=(64, 84, 84), dtype=np.uint8)
    for number, frame in enumerate(cycle(shown)):
        terminal = number % 1_000 == 999
        yield {
            "observation": frame,
            "action": number % 18,
            "reward": 1.0,
            "interval": 1,
            "terminal": terminal,
            "truncated": False,
            "next_observation": frame if terminal else None,
        }


def full(prioritized: bool = False) -> tuple[Any, Iterator[Mapping[str, Any]]]:
    """Return a replay that is full, and what is to be stored next."""
    replay, coming = atari_replay(prioritized), transitions()
    for transition in islice(coming, 2 * STORED):
        replay.observe(transition)
    return replay, coming


def store() -> Play:
    """Store transitions in a replay that is full."""
    replay, coming = full()

    def play(units: int) -> None:
        for transition in islice(coming, units):
            replay.observe(transition)

    return play


def draw(prioritized: bool) -> Play:
    """Draw batches from a full replay; by priorities, which are set after each draw, or uniformly."""
    import numpy as np

    replay, _ = full(prioritized)
    priorities = cycle(np.random.default_rng(0).random((101, BATCH)) + 0.01)

    def play(units: int) -> None:
        for _ in range(units):
            batch = replay.sample()
            if prioritized:
                replay.set_priorities(batch["index"], next(priorities))

    return play


CALLED: Mapping[str, Callable[[], Play]] = {
    "wrapper_atari": partial(wrapper, boxing, delay=DELAY),
    "wrapper_cartpole": partial(wrapper, cartpole, delay=DELAY),
    "tickets_cartpole": partial(wrapper, cartpole, simulated=True, workers=10),
    "max_time_cartpole": partial(wrapper, cartpole, simulated=True, workers=10, stagger="max_time"),
    "vector_cartpole": vector,
    "virtual_cartpole": virtual,
    "replay_uniform": partial(draw, prioritized=False),
    "replay_prioritised": partial(draw, prioritized=True),
    "stored_transition": store,
}
LOOPS: Mapping[str, Callable[[Turnstile], None]] = {
    "dqn_atari": partial(train, "dqn", "atari", "DQNAgent"),
    "dqn_cartpole": partial(train, "dqn", "cartpole", "DQNAgent"),
    "full_rainbow_atari": partial(train, "full_rainbow", "atari", "FullRainbowAgent"),
    "full_rainbow_cartpole": partial(train, "full_rainbow", "cartpole", "FullRainbowAgent"),
    "decision": partial(free_decisions, True),
    "decision_stored": partial(free_decisions, False),
}


def main() -> None:
    name, turnstile = sys.argv[1], Turnstile()
    if name in CALLED:
        turnstile.serve(CALLED[name]())
    import cv2
    import torch

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    LOOPS[name](turnstile)


if __name__ == "__main__":
    main()
