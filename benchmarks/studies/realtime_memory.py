"""What a core at release and a chunk of actions are worth under delay, in the same CPU time.

    python -m benchmarks.studies.realtime_memory --base_dir DIR [--tasks delay_4 delay_6] [--env acrobot] [--seeds 5]
        [--seconds 30] [--episodes 100]

Tasks, each with ways to play that are compared:

    delay_4     an action on every frame, 4 frames late: an LSTM at release; told nothing; told the actions on their way
    delay_6     6 frames late: an LSTM at release; told nothing
    prefix      one worker that never rests, 4 frames late: a chunk, told what the running chunk has fixed
    interval_9  one action per 9 frames, 2 frames late: a chunk; the last action repeated

`benchmarks.studies.delay_study` plays `STUDY`, over several delays, by the same trials.

Each trial trains V-trace in a process of its own until its CPU seconds, counted from the process's start, are over (at
the end of an iteration, of which it has as many as fit, or all that its way asks for); then the final weights play by
their likeliest actions, and by drawn ones. It leaves DIR/TRIAL/trial.json, and is not played again. Prints a line per
trial, then tables: of the likeliest actions and, where all trials have them, of the drawn ones.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import parser_of
from benchmarks.studies import trials
from benchmarks.studies.trials import Facts, keep, table, train_until

_ITERATIONS = 20

_NOTHING = ("create_actor_critic.core = None", "create_actor_critic.feed_previous = False")
_TOLD = (
    *_NOTHING,
    "create_gym_environment.wrappers = [@RealtimeDelay, @CommittedActions]",
    "CommittedActions.known = False",
    "CommittedActions.flat = True",
)


@dataclass(frozen=True)
class Way:
    """One way to play a task.

    Attributes:
        config: Its gin file.
        frames: Of its training, about as many as fit into 30 CPU seconds.
        bindings: On top of the file.
        updates: Of its training, over which the learning rate falls.
        noop: The gin parameter that an environment's no-op is given to; None where the last action goes
            on.
    """

    config: str
    frames: int
    updates: int
    bindings: tuple[str, ...] = ()
    noop: str | None = "RealtimeDelay.default_action"

    @property
    def remembers(self) -> bool:
        """Whether its agent has a core."""
        return self.config == _LSTM and "create_actor_critic.core = None" not in self.bindings

    @property
    def is_told(self) -> bool:
        """Whether its observations tell the actions on their way."""
        return set(_TOLD) <= set(self.bindings)


def _at(delay: int) -> tuple[str, ...]:
    return (f"RealtimeDelay.delay = {delay}",)


_LSTM, _CHUNK, _PREFIX = "vtrace/cartpole_delay_lstm", "vtrace/cartpole_chunk", "vtrace/cartpole_prefix"
# With "repeat", 6 pushes to the left come before the first action can land, after which even a controller without delay
# loses most episodes.
_LATER = (*_at(6), "RealtimeDelay.default_action = 'random'")
_REPEAT = ("RealtimeDelay.default_action = 'repeat'",)


def _chunk(length: int) -> tuple[str, ...]:
    return ("RealtimeDelay.default_action = @Chunk()", f"Chunk.length = {length}")


TASKS: dict[str, dict[str, Way]] = {
    "delay_4": {
        "LSTM at release": Way(_LSTM, 350_000, 2_200, _at(4)),
        "told nothing": Way(_LSTM, 550_000, 3_450, (*_at(4), *_NOTHING)),
        "told the actions on their way": Way(_LSTM, 550_000, 3_450, (*_at(4), *_TOLD, "CommittedActions.length = 4")),
    },
    "delay_6": {
        "LSTM at release": Way(_LSTM, 350_000, 2_200, _LATER),
        "told nothing": Way(_LSTM, 550_000, 3_450, (*_LATER, *_NOTHING)),
    },
    "prefix": {"chunk, told its prefix": Way(_PREFIX, 900_000, 1_400, _chunk(8), noop="Chunk.after")},
    "interval_9": {
        "chunk": Way(_CHUNK, 1_200_000, 1_000, _chunk(11), noop="Chunk.after"),
        "repeat": Way(_CHUNK, 1_200_000, 1_000, _REPEAT, noop=None),
    },
}


# By environment; frames of CartPole in 15 CPU seconds, and of Acrobot, whose steps take longer. With chunks by delay.
_FRAMES = {"cartpole": (240_000, 165_000), "acrobot": (170_000, 100_000)}
_CHUNK_FRAMES = {"cartpole": {2: 210_000, 4: 390_000, 8: 600_000}, "acrobot": {2: 120_000, 4: 200_000, 8: 300_000}}


def _study(env: str) -> dict[str, dict[str, Way]]:
    """Return an environment's tasks of `benchmarks.studies.delay_study`, for trials of 15 CPU seconds."""
    told_nothing, lstm = _FRAMES[env]
    tasks: dict[str, dict[str, Way]] = {}
    for delay in (0, 2, 4, 8):
        at = (*_at(delay), "RealtimeDelay.default_action = 'random'")
        ways = tasks[f"study_{delay}"] = {
            "told nothing": Way(_LSTM, told_nothing, told_nothing // 160, (*at, *_NOTHING))
        }
        if delay:
            ways["LSTM at release"] = Way(_LSTM, lstm, lstm // 160, at)
            frames = _CHUNK_FRAMES[env][delay]
            chunk = (*_at(delay), f"RealtimeDelay.noops = {delay - 1}", *_chunk(2 * delay), "Chunk.after = 'random'")
            ways["chunk, told its prefix"] = Way(_PREFIX, frames, frames // (160 * delay), chunk, "Chunk.after")
    return tasks


STUDY = {env: _study(env) for env in _FRAMES}
# Names and no-ops. CartPole has no no-op. Acrobot's actions are torques of -1, 0 and 1; it pays -1 per frame, for at
# most 500 of them. Boxing is played from its memory, 60 frames a second: 500
# frames an episode in training, the whole game in evaluation.
ENVIRONMENTS: dict[str, tuple[str, int | None]] = {
    "cartpole": ("CartPole-v1", None),
    "acrobot": ("Acrobot-v1", 1),
    "boxing": ("Boxing", 0),
}


_BOXING = """
Runner.create_environment_fn = @create_atari_environment
create_atari_environment.game_name = "Boxing"
create_atari_environment.obs_type = "ram"
create_atari_environment.frame_skip = 1
create_atari_environment.sticky_actions = False
"""


# Acrobot pays the same on every frame until its goal: while the values fall from 0 to what that comes to, the
# advantages are noise, in which a policy that reads its own actions loses its entropy before it has seen the goal. A
# weight of 0.003 does not bring it back, one that is learnt does.
_OF_READERS = {"acrobot": ("VTraceAgent.terms = (@TargetEntropy(),)", "TargetEntropy.target = 0.2")}  # nats
# What an LSTM gives at first is near 0, so that all actions are about equally likely, and torques that change on every
# frame do not swing the links. With a skip and larger first weights of the head the first policies do. They lose their
# entropy sooner, so that its weight begins larger: one that has to grow until it brings the entropy back grows so large
# that the policy is uniform for long.
_OF_LSTM = {
    "acrobot": (
        "create_actor_critic.skip = True",
        "create_actor_critic.head_scale = 6.0",
        "VTraceAgent.entropy_cost = 0.1",
    )
}


_SLOWER = {"boxing": 8}  # how many times as long a frame takes as one of CartPole's


def _frames(way: Way, env: str) -> int:
    """Return the training frames of an iteration."""
    return way.frames // _SLOWER.get(env, 1) // _ITERATIONS


def load(way: Way, env: str, seed: int) -> None:
    """Give gin the values of a trial."""
    import gin

    environment_id, noop = ENVIRONMENTS[env]
    of_noop = () if noop is None or way.noop is None else (f"{way.noop} = {noop}",)
    trials.load(
        f"configs/{way.config}.gin",
        [
            f"Runner.num_iterations = {_ITERATIONS}",
            f"Runner.training_steps = {_frames(way, env)}",
            "Runner.evaluation_episodes = 1",
            f"VectorRunner.checkpoint_every = {_ITERATIONS}",
            f"VTraceAgent.learning_rate_decay = {way.updates // _SLOWER.get(env, 1)}",
            f"create_gym_environment.environment_id = '{environment_id}'",
            *(_OF_READERS.get(env, ()) if way.remembers or way.is_told else ()),
            *(_OF_LSTM.get(env, ()) if way.remembers else ()),
            *way.bindings,
            *of_noop,
            f"Runner.seed = {seed}",
        ],
    )
    if env == "boxing":
        wrappers = gin.query_parameter("create_gym_environment.wrappers")
        with gin.unlock_config():
            gin.parse_config(_BOXING)
            gin.bind_parameter("create_atari_environment.wrappers", wrappers)


def train(way: Way, env: str, seed: int, seconds: float, episodes: int, directory: Path) -> None:
    """Train one trial until its time is over, evaluate it, and write down what came out."""
    from async_wrappers.agents.registry import create_runner

    load(way, env, seed)
    runner = create_runner(directory)
    trained = train_until(runner, seconds)
    scores, drawn = evaluated(runner.agent, env, episodes), evaluated(runner.agent, env, episodes, drawn=True)
    means = {"mean": statistics.fmean(scores), "drawn": statistics.fmean(drawn)}
    facts = {"frames": runner.num_iterations * _frames(way, env), "updates": runner.agent.updates}
    keep(directory, {**means, **facts, "cpu_seconds": trained, "scores": scores, "drawn_scores": drawn})


def evaluated(agent: Any, env: str, episodes: int, drawn: bool = False) -> list[float]:
    """Return the scores of an episode in each of so many environments, side by side.

    Args:
        agent: Whose final weights play.
        env: One of `ENVIRONMENTS`.
        episodes: Environments, and episodes.
        drawn: Draw the actions, as in training; otherwise they are the likeliest.
    """
    import gin
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from async_wrappers.agents.play.actor import RunningEpisodes
    from async_wrappers.batched.vector_envs import VectorEnvs

    make = gin.get_configurable("create_atari_environment" if env == "boxing" else "create_gym_environment")
    envs = VectorEnvs(SyncVectorEnv([make] * episodes, autoreset_mode=AutoresetMode.SAME_STEP))
    envs.begin(range(1_000_000, 1_000_000 + episodes))
    rows, scores = RunningEpisodes(agent.spec, episodes, eval_mode=not drawn), dict[int, float]()
    while len(scores) < episodes:
        shown = envs.recv()
        for episode in rows.note(shown):
            scores.setdefault(episode.env_id, episode.score)
        envs.send(shown.env_ids, rows.decide(shown, agent.policy))
    return list(scores.values())


def played(task: str, name: str, env: str, seed: int, seconds: float, episodes: int, base_dir: Path) -> Facts | None:
    """Return what a trial has written down, and play it first if it has not yet been, in a process of its own."""
    options = ["--env", env, "--seconds", str(seconds), "--episodes", str(episodes)]
    directory = f"{env}_{task}_{name.replace(' ', '_')}_{seed}"
    return trials.played("benchmarks.studies.realtime_memory", (task, name, str(seed)), base_dir, options, directory)


def main() -> None:
    """Play what is missing, one trial after another, and print the tables."""
    parser = parser_of(__doc__, seeds=(5, "of each way"), seconds=(30.0, "of CPU"), episodes=(100, "played then"))
    parser.add_argument("--base_dir", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--env", choices=ENVIRONMENTS, default="cartpole")
    parser.add_argument("--trial", nargs=3, metavar=("TASK", "WAY", "SEED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    lengths = args.seconds, args.episodes, args.base_dir
    if args.trial is not None:
        task, name, seed = args.trial
        train((TASKS | STUDY.get(args.env, {}))[task][name], args.env, int(seed), *lengths)
        return
    found: dict[str, dict[str, dict[int, Facts]]] = {task: {name: {} for name in TASKS[task]} for task in args.tasks}
    for seed in range(args.seeds):
        for task, ways in found.items():
            for name, of_way in ways.items():
                if facts := played(task, name, args.env, seed, *lengths):
                    of_way[seed] = facts
    for task, ways in found.items():
        first, *others = ways
        for score in ("mean", "drawn"):
            pairs = [(first, other) for other in others]
            print("\n" + table(f"{task}, {score}", ways, pairs, score, ("frames", "cpu_seconds")))


if __name__ == "__main__":
    main()
