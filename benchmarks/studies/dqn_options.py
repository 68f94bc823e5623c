"""What options of DQN are worth on a CPU: agent steps per second of wall-clock time, against the agent as it is.

* ``overlap``: ``Runner.overlap = True``, an update is computed in a thread while the environment steps on.
* ``compiled``: ``DQNAgent.compile = True``, networks go through ``torch.compile``; needs a C++ compiler, and minutes
  before the first window.
* ``2 threads``: ``Runner.threads = 2`` without either, the other use that an update can make of a second core.

They play Pong with the Nature network as `benchmarks.dqn_players` says, or CartPole with the small one of
configs/dqn/cartpole.gin, each in a process of its own, and take turns of some hundred steps. An update under way when a
turn ends is finished outside of it: of a hundred updates, one.

``--bound`` measures no wall clock: it prints the processor time of the two sides that overlap, an update and the four
steps of Pong beside it, and the ratio that an idle second core could give at most.

Where cores are shared, put ``OMP_WAIT_POLICY=passive`` before the command, as for `benchmarks.dqn_speed`.

    python -m benchmarks.studies.dqn_options
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from benchmarks.dqn_players import LEARNING_STARTS
from benchmarks.interleave import interleave, print_load, print_table
from benchmarks.player import Player, dqn_player

BASE = "as it is"
CONTESTANTS = {  # label: (player, threads)
    "Pong": {
        BASE: ("as it is", 1),
        "overlap": ("overlap", 1),
        "compiled": ("compiled", 1),
        "2 threads": ("as it is", 2),
        "2 threads, overlap": ("overlap", 2),
    },
    "CartPole": {BASE: ("CartPole", 1), "overlap": ("CartPole, overlap", 1)},
}


def compete(game: str, options: list[str], rounds: int, steps: int) -> None:
    """Warm all up that play the game, let them take turns, and print the tables."""
    players: dict[str, Player] = {}
    try:
        for label, (name, threads) in CONTESTANTS[game].items():
            if label == BASE or label in options:
                players[label] = dqn_player(name, threads, steps)
                players[label].play(LEARNING_STARTS + 100)
        walls = interleave(players, rounds)
    finally:
        for player in players.values():
            player.close()
    processor = {label: player.per_processor_second[-rounds:] for label, player in players.items()}
    print_table(f"{game}, agent steps per second", walls, BASE, digits=1)
    print_table(f"{game}, agent steps per processor second", processor, BASE, digits=1)


def print_bound(repeats: int = 30) -> None:
    """Print the processor time of the two sides that overlap, and what overlapping them could give."""
    import numpy as np
    import torch

    from async_wrappers.agents.families.value_based.dqn import DQN
    from async_wrappers.agents.play.turns.episode import play_episode
    from async_wrappers.agents.play.turns.turn_based import TurnBasedAgent
    from async_wrappers.envs import create_atari_environment
    from async_wrappers.policy import Decision

    def milliseconds(work: Callable[[], object]) -> float:
        times = []
        for _ in range(repeats):
            begin = time.thread_time()
            work()
            times.append(1000 * (time.thread_time() - begin))
        return statistics.median(times)

    torch.set_num_threads(1)
    environment = create_atari_environment("Pong", frame_skip=4, sticky_actions=False)
    agent = TurnBasedAgent.playing(
        DQN, environment, device="cpu", min_replay_history=10**6, replay_capacity=2000, epsilon_decay_period=0
    )
    play_episode(agent, environment, seed=0, max_frames=500)
    agent.overlap_learning()
    assert agent._overlap is not None
    drawn, blank = agent.learner.draw(), np.zeros((4, 84, 84), np.uint8)
    greedy = Decision(episode=0, start=0, frame=0, eval_mode=True)
    environment.reset(seed=0)
    update = milliseconds(lambda: agent.learner.learn(drawn))
    game = 4 * (
        milliseconds(lambda: environment.step(0)) + milliseconds(lambda: agent.policy.act(blank[None], (), (greedy,)))
    )
    draw, publish = milliseconds(agent.learner.draw), milliseconds(agent._overlap.publish)
    bound = (draw + update + game) / (draw + publish + max(update, game))
    print(f"processor ms: update {update:.1f}, four steps {game:.1f}, draw {draw:.2f}, publish {publish:.2f}")
    print(f"overlap can give at most {bound:.2f} times the steps per second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="interleaved windows")
    parser.add_argument("--steps", type=int, default=400, help="agent steps per window, a multiple of 4")
    parser.add_argument("--games", nargs="+", default=list(CONTESTANTS), choices=list(CONTESTANTS))
    parser.add_argument("--options", nargs="+", default=list(CONTESTANTS["Pong"]), choices=list(CONTESTANTS["Pong"]))
    parser.add_argument("--bound", action="store_true", help="print what overlap could give on Pong, and end")
    args = parser.parse_args()
    if args.bound:
        print_bound()
        print_load()
        return
    if args.steps % 4:
        parser.error(f"--steps must be a multiple of 4, the update period, got {args.steps}")
    for game in args.games:
        compete(game, args.options, args.rounds, args.steps)
    print_load()


if __name__ == "__main__":
    main()
