"""What blocks of rows and packed observations cost: rows stored per second, bytes, microseconds per batch.

Rows: 1,000 CartPoles at once are stored one by one with ``observe`` and as one block with ``extend``, in turn, into
full replays; the rows come from Gymnasium's vector of CartPoles under random actions. Acting and storing is that
vector's step, the random actions and ``extend`` together, in frames of all environments per second.

Packed: a ring of Pong's 84 x 84 frames under random actions (Breakout, Seaquest and others by ``--games``) with
``compression="lz4"`` beside one without; bytes are those of the frames alone, a batch is of 32 stacks of four.

    python -m benchmarks.studies.replay_options

Hold: >= 300,000 frames/s of 1,000 CartPoles, acted and stored; Pong's frames <= 1/4 of the bytes and a batch <= 500 us.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np

from async_wrappers.agents.replay.replay import Replay, create_replay
from async_wrappers.envs import create_atari_environment
from benchmarks.interleave import interleave, print_hold, print_load, print_table

ENVS, CAPACITY = 1_000, 100_000
STACK, BATCH = 4, 32
Block = dict[str, Any]


class CartPoles:
    """A thousand CartPoles under random actions."""

    def __init__(self) -> None:
        self._env = gym.make_vec("CartPole-v1", ENVS, vectorization_mode="vector_entry_point")
        self.space = self._env.single_observation_space
        self._shown = self._env.reset(seed=0)[0]
        self._over = np.zeros(ENVS, bool)  # whose next step begins an episode, and takes no action
        self._rng = np.random.default_rng(0)

    def step(self) -> Block:
        """Let each act once; return the rows of those that did."""
        shown, acted = self._shown, np.flatnonzero(~self._over)
        action = self._rng.integers(2, size=ENVS)
        self._shown, reward, terminal, truncated, _ = self._env.step(action)
        self._over = terminal | truncated
        return {
            "env_ids": acted,
            "observation": shown[acted],
            "action": action[acted],
            "reward": reward[acted],
            "interval": np.ones(len(acted), np.int64),
            "terminal": terminal[acted],
            "truncated": truncated[acted],
            "final": {env_id: self._shown[env_id] for env_id in np.flatnonzero(self._over).tolist()},
        }


def rows_of(block: Block) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a block as single transitions, with their environments."""
    names = ("observation", "action", "reward", "interval", "terminal", "truncated")
    rows = []
    for row, env_id in enumerate(block["env_ids"].tolist()):
        transition = {name: block[name][row] for name in names}
        rows.append((env_id, transition | {"next_observation": block["final"].get(env_id)}))
    return rows


class Stored:
    """Stores blocks that were played before, in full replays, and measures rows per second."""

    def __init__(self, space: gym.Space[Any], blocks: list[Block], one_by_one: bool, **of_selector: Any) -> None:
        self.replay = create_replay(space, capacity=CAPACITY, num_envs=ENVS, **of_selector)
        self._store = self._observe if one_by_one else self.replay.extend
        self._blocks: list[Any] = [rows_of(block) if one_by_one else block for block in blocks]
        self._rows = sum(len(block["env_ids"]) for block in blocks)
        while self.replay.add_count < 2 * CAPACITY:
            self()

    def _observe(self, rows: list[tuple[int, dict[str, Any]]]) -> None:
        for env_id, row in rows:
            self.replay.observe(row, env_id)

    def __call__(self) -> float:
        """Store all blocks once."""
        begin = time.perf_counter()
        for block in self._blocks:
            self._store(block)
        return self._rows / (time.perf_counter() - begin)


def acted_and_stored(worlds: CartPoles, replay: Replay, steps: int) -> float:
    """Return frames of all environments per second."""
    begin, before = time.perf_counter(), replay.add_count
    for _ in range(steps):
        replay.extend(worlds.step())
    return (replay.add_count - before) / (time.perf_counter() - begin)


def store_rows(rounds: int, steps: int) -> None:
    """Print how fast rows are stored, one by one and in blocks."""
    worlds = CartPoles()
    blocks = [worlds.step() for _ in range(steps)]
    for selector in ("uniform", "prioritized"):
        ways = {
            name: Stored(worlds.space, blocks, name == "observe", selector=selector) for name in ("extend", "observe")
        }
        print_table(f"rows of CartPole stored per second, {selector}", interleave(ways, rounds), "observe")
    frames = {
        selector: partial(
            acted_and_stored,
            worlds,
            create_replay(worlds.space, capacity=CAPACITY, num_envs=ENVS, selector=selector),
            steps,
        )
        for selector in ("uniform", "prioritized")
    }
    samples = interleave(frames, rounds, warmup=CAPACITY // ENVS // steps + 1)
    print_table("frames/s of 1,000 CartPoles, random actions, stored", samples, "uniform")
    for selector, values in samples.items():
        print_hold(f"frames/s acted and stored, {selector}", statistics.median(values), least=300_000)


def frames_of(game: str) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield the frames of a game under random actions for ever, each with whether its episode ends after it."""
    env = create_atari_environment(game)
    env.action_space.seed(0)
    for seed in iter(int, None):
        frame, _ = env.reset(seed=seed)
        over = False
        while not over:
            shown = np.array(frame)
            frame, _, terminal, truncated, _ = env.step(env.action_space.sample())
            over = terminal or truncated
            yield shown, over


def timed(call: Callable[[], Any], calls: int) -> float:
    """Return the median of some calls in microseconds."""
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(seconds)


def pack_frames(game: str, count: int, rounds: int, calls: int) -> None:
    """Print what packing a game's frames saves, and what it costs a batch and a transition."""
    plain, packed = (
        create_replay(
            gym.spaces.Box(0, 255, (84, 84), np.uint8),
            capacity=count,
            stack_size=STACK,
            batch_size=BATCH,
            compression=each,
        )
        for each in (None, "lz4")
    )
    replays = {"plain": plain, "lz4": packed}
    seconds = {name: list[float]() for name in replays}
    for frame, over in islice(frames_of(game), count):
        transition = {"observation": frame, "action": 0, "reward": 0.0, "interval": 1, "terminal": over}
        for name, replay in replays.items():
            begin = time.perf_counter()
            replay.observe(transition | {"truncated": False, "next_observation": frame})
            seconds[name].append(time.perf_counter() - begin)
    other = plain.nbytes - count * 84 * 84  # all columns but the frames
    share = (packed.nbytes - other) / (count * 84 * 84)
    stored = ", ".join(f"{name} {1e6 * statistics.median(each):.1f}" for name, each in seconds.items())
    print(f"\n{game}, {count:,} frames: packed frames take 1/{1 / share:.1f} of the bytes; us to store: {stored}")
    samples = interleave({name: partial(timed, each.sample, calls) for name, each in replays.items()}, rounds)
    print_table(f"sample({BATCH}) of stacks of {STACK}, us", samples, "plain", digits=1)
    if game == "Pong":
        print_hold("share of the bytes that Pong's packed frames take", share, most=0.25)
        print_hold("us for a batch of Pong's packed frames", statistics.median(samples["lz4"]), most=500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved samples of each")
    parser.add_argument("--steps", type=int, default=50, help="blocks of 1,000 rows in a sample")
    parser.add_argument("--games", nargs="*", default=["Pong"], help="whose frames are packed")
    parser.add_argument("--frames", type=int, default=20_000, help="of each game")
    parser.add_argument("--calls", type=int, default=100, help="batches in a sample")
    args = parser.parse_args()
    store_rows(args.rounds, args.steps)
    for game in args.games:
        pack_frames(game, args.frames, args.rounds, args.calls)
    print_load()


if __name__ == "__main__":
    main()
