"""Whether two versions of the project give the same results, bit for bit: an earlier commit beside the working tree.

Each case runs in both trees on the same machine and is compared by content: every array of the newest checkpoint
(weights, target network, optimiser, replay) by type, shape and SHA-256, without regard to its name or file, so that a
change of structure may rename; and the iterations' statistics without their times. A case that has learnt too little to
prove anything (updates, copies into the target network) fails.

    python -m benchmarks.same_results COMMIT [--only NAME]... [--jobs 2] [--before DIR [--fill]]

A live run cannot be repeated. The earlier commit plays two of them once, and both trees replay what was recorded: the
latencies of the inferences, on the virtual clock and in training; and the decisions of the trained agent, whose weights
both trees load. So they do with the run of a teacher, for their students. On the virtual clock both trees learn live.

An earlier commit may have its modules elsewhere: scripts look for what they import in several places. `ADDED` names
what reports tell since some version.

With ``--before`` the results of the earlier commit are kept in a directory, so that the next comparison runs the
working tree alone; ``--fill`` runs what is missing there and compares nothing. A kept result is found again by the
commit, by all that the case says, by the recordings that it replays, and by the processor and the libraries, on which
the last bits depend.

Exit code 0: every case is equal. What differs is printed, for each case, as what only one of the two holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import chosen, parser_of

ROOT = Path(__file__).parents[1]
EARLIER = {"configs/dqn/kung_fu_master.gin": "configs/default.gin"}  # names that a gin file once had
AGENTS = {  # the folder of its gin files, and the name of its class in gin
    "dqn": "DQNAgent",
    "c51": "C51Agent",
    "rainbow": "RainbowAgent",
    "full_rainbow": "FullRainbowAgent",
    "quantile": "QuantileAgent",
    "implicit_quantile": "ImplicitQuantileAgent",
}
_FEW = "ImplicitQuantileAgent.num_tau_samples = 16", "ImplicitQuantileAgent.num_tau_prime_samples = 8"
FEWER = {"implicit_quantile": _FEW}  # affordable; the numbers differ so that exchanging them cannot go unseen
TIMES = ("per_second", "seconds", "time", "ActRate", "AddRate", "SampleRate", "LearnRate")  # parts of names
# What reports tell since some version: no difference where the earlier commit does not tell it.
_ADDED = """
actions_per_frame journey_ms lag_updates limited loop_share longest_gap losses notes off_policy paused phase_state
realtime recording released sensors skipped stopped timeline_s too_old updates_per_action updates_per_frame wins
"""
ADDED = set(_ADDED.split())
GONE = {"encounter", "standing"}  # what they told until some version, of environments that no case plays
LATENCIES, LIVE_RUN = "latencies.json", "live_run"  # what is recorded live, once for both trees
TEACHER = "teacher"  # a run of the earlier commit that students of both trees learn from
BOTH = "."  # the folder of the recordings
PATIENCE = 3_000  # seconds that one call of `train.py` may take


class CaseFailed(Exception):
    """A run ended with an error, or learnt too little to prove anything."""


@dataclass(frozen=True)
class Case:
    """A run of `train.py` in one or more calls with the same directory, or a script of its own.

    Attributes:
        gin_file: What is run.
        bindings: Of every call; ``{latencies}`` and ``{teacher}`` stand for what was recorded.
        calls: Further bindings of each call; more than one continues the run.
        updates: The run must have made at least so many.
        copies: The target network must have been copied at least so often; 0 for an agent that has none.
        replays: The recordings that it depends on: `LATENCIES`, `TEACHER`, `BOTH` or none.
        script: Run in the place of `train.py`, with the directory of the recordings; prints JSON, which is compared.
    """

    gin_file: str = ""
    bindings: tuple[str, ...] = ()
    calls: tuple[tuple[str, ...], ...] = ((),)
    updates: int = 300
    copies: int = 2
    replays: str = ""
    script: str = ""


SHORT = ("Runner.num_iterations = 2", "Runner.report_episodes = 0")
CARTPOLE = (*SHORT, "Runner.training_steps = 2_000", "Runner.evaluation_steps = 500")
ATARI = (  # 1,500 decisions; an update on every fourth of those after 200, a copy after every 25th update
    "Runner.num_iterations = 1",
    "Runner.training_steps = 1_450",
    "Runner.evaluation_steps = 100",
    "Runner.max_steps_per_episode = 500",
    "DQNAgent.replay_capacity = 2_000",
)
DELAYED = (*CARTPOLE, "Runner.training_steps = 3_000", "RealtimeDelay.delay = 4", "RealtimeDelay.noops = 1")
DELAYED_ATARI = (
    *ATARI,
    "create_atari_environment.wrappers = [@RealtimeDelay]",
    "RealtimeDelay.delay = 2",
    "DQNAgent.min_replay_history = 200",
    "DQNAgent.target_update_period = 100",
)
TRACE = ("RealtimeDelay.latency = @Trace()", "Trace.latencies = '{latencies}'")
RECORDED = (*CARTPOLE, "Runner.training_steps = 3_000", *TRACE)
DICTS = (
    *CARTPOLE,
    "Runner.max_steps_per_episode = 1_000",
    'create_gym_environment.environment_kwargs = {"observation": "dict", "level": 9}',
    "DQNAgent.min_replay_history = 500",
    "DQNAgent.target_update_period = 100",
)
ON_MANY = ("Runner.num_iterations = 2", "Runner.report_episodes = 0", "Runner.evaluation_episodes = 2")
VTRACE = (*ON_MANY, "Runner.training_steps = 4_000", "VTraceAgent.batch_size = 4")
CHUNKS = (*VTRACE, "Runner.training_steps = 9_000", "VectorRunner.num_envs = 8", "VTraceAgent.unroll_length = 10")
REPLAYED_ROWS = (*VTRACE, "VTraceAgent.sources = [('queue', 0.5), ('standard', 0.5)]", "StandardReplay.capacity = 100")
R2D2 = (
    *ON_MANY,
    "Runner.training_steps = 4_000",
    "R2D2Agent.min_replay_history = 500",
    "R2D2Agent.update_period = 16",
    "R2D2Agent.target_update_period = 400",
    "R2D2Agent.replay_capacity = 6_000",
)
ROUNDS = ("PPOAgent.update_period = 256", "PPOAgent.num_epochs = 3")
PPO = (
    *ON_MANY,
    "Runner.training_steps = 3_000",
    "create_runner.schedule = 'vector'",
    "VectorRunner.num_envs = 4",
    *ROUNDS,
)
SAC = (*SHORT, "Runner.training_steps = 600", "Runner.evaluation_episodes = 2", "SACAgent.min_replay_history = 200")
RATIO = ("VectorRunner.replay_ratio = 8.0", "DQNAgent.replay_capacity = 4_000")
APEX = (*ON_MANY, "Runner.training_steps = 3_000", *RATIO)
STUDENT = (
    *CARTPOLE,
    "RunnerWithTeacher.teacher_checkpoint_dir = '{teacher}'",
    "RunnerWithTeacher.num_pretraining_iterations = 1",
    "RunnerWithTeacher.num_pretraining_steps = 300",
)
TERMS = {  # of V-trace's loss, and what binds them
    "PolicyCloning": ("PolicyCloning.cost = 0.02",),
    "ValueCloning": ("ValueCloning.cost = 0.01",),
    "KLMask": ("KLMask.threshold = 0.001",),
    "TargetEntropy": ("TargetEntropy.target = 0.5",),
    "KLCost": ("KLCost.cost = 0.05",),
}
VIRTUAL = """
import json, sys
from pathlib import Path
import gymnasium as gym
from async_wrappers import AsyncRunner
from async_wrappers.latency import Trace, LogNormal

recorded = Trace(Path(sys.argv[1]) / "latencies.json")
reports = []
for stagger in ("sequential", "none", "max_time", "expected_time", "tickets"):
    for name, latency in (("constant", 0.060), ("drawn", LogNormal(mean=0.060, cv=0.3)), ("recorded", recorded)):
        runner = AsyncRunner(
            lambda: gym.make("CartPole-v1"), lambda: lambda observation: int(observation[2] > 0), 4, 50, stagger,
            backend="virtual", latency=latency, default_action="repeat", seed=3,
        )
        report = runner.run(episodes=20)
        decisions = [[span.worker, span.episode, span.start, span.effect] for span in report.spans]
        reports.append([f"{stagger}, {name} latencies", {**report.to_dict(), "decisions": decisions}])
print(json.dumps(reports))
"""
FIND = """
from importlib import import_module

def find(name, *modules):
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (AttributeError, ModuleNotFoundError):
            continue
    raise ImportError(f"{name} is in none of {', '.join(modules)}: add its module to benchmarks/same_results.py")
"""
REPLAYED = (
    FIND
    + """
import json, sys
from pathlib import Path
from async_wrappers import RealtimeDelay
from async_wrappers.latency import Trace

experiment = (
    "async_wrappers.agents.play.turns.turns",
    "async_wrappers.agents.play.turns.episode",
    "async_wrappers.agents.experiment.episode",
    "async_wrappers.agents.experiment",
    "agents.experiment",
)
load_agent = find("load_agent", "async_wrappers.agents.load", *experiment)
play_episode = find("play_episode", *experiment)
agent, environment = load_agent(Path(sys.argv[1]) / "live_run")
latency = Trace(Path(sys.argv[1]) / "latencies.json")
environment = RealtimeDelay(environment, latency=latency, workers=4, fps=50, default_action="repeat")
actions, step = [], environment.step

def recorded_step(action):
    actions.append(int(action))
    return step(action)

environment.step = recorded_step
reports = []
for number in range(10):
    episode = play_episode(agent, environment, seed=number)
    reports.append([f"episode {number}", {"return": episode.score, "frames": episode.frames, "actions": [*actions]}])
    actions.clear()
print(json.dumps(reports))
"""
)
LEARNT = (
    FIND
    + """
import hashlib, json
from functools import partial
import gymnasium as gym
import numpy as np
import torch
from async_wrappers import AsyncRunner, Chunk, LogNormal
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.configurables import LSTMCore
from async_wrappers.agents.networks.torsos import MLPTorso

families = "async_wrappers.agents.families", "async_wrappers.agents"
VTrace = find("VTrace", *(f"{each}.actor_critic.vtrace" for each in families))
R2D2 = find("R2D2", *(f"{each}.value_based.r2d2" for each in families))

CHUNK = 8  # frames
chunks = {"default_action": Chunk(CHUNK, after="repeat")}
torch.manual_seed(0)
torso, core = partial(MLPTorso, hidden=(32,)), partial(LSTMCore, hidden=16)
common = {"stack_size": 1, "device": "cpu", "seed": 2, "optimizer": partial(torch.optim.Adam, lr=1e-3)}
unrolls = {"unroll_length": 10, "batch_size": 2, "when_full": "drop_oldest", "store_version": True, **common}
sequences = {"burn_in": 2, "unroll_length": 8, "state_period": 5, "batch_size": 8, "min_replay_history": 100,
             "update_period": 1, "target_update_period": 20, "replay_capacity": 2_000, **common}

def vtrace(core, spaces):
    network = partial(create_actor_critic, torso=torso, core=core, feed_previous=core is not None)
    return VTrace(*spaces, network=network, **unrolls)

def r2d2(core, spaces):
    return R2D2(*spaces, network=partial(create_recurrent_q_network, torso=torso, core=core), **sequences)

def digests(value):
    if isinstance(value, (torch.Tensor, np.ndarray)):
        array = np.ascontiguousarray(value)
        yield f"{array.dtype}{list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from digests(each)

made = find("make_learner", "async_wrappers.agents.learning.making", "async_wrappers.agents.making")

reports = []
for name, make, core_, arguments in (
    ("V-trace with a core at release", vtrace, core, {"default_action": "repeat"}),
    ("V-trace with a core, sequentially", vtrace, core, {"default_action": "repeat", "stagger": "sequential"}),
    ("R2D2 with a core at release", r2d2, core, {"default_action": "repeat", "max_age": 12}),
    ("V-trace without a core", vtrace, None, {"default_action": "repeat", "between_episodes": "continue"}),
    ("V-trace on chunks", vtrace, None, chunks),
    ("V-trace on chunks with a committed prefix", vtrace, None, {**chunks, "committed_prefix": 4, "flat_prefix": True}),
):
    plain = gym.make("CartPole-v1")
    spaces = AsyncRunner.policy_spaces(plain.observation_space, plain.action_space, **arguments)
    spec, learners = make(core_, spaces), []

    def make_learner(number=0, learners_=1):
        learners.append(made(spec))
        return learners[-1]

    runner = AsyncRunner(
        lambda: gym.make("CartPole-v1"), spec.make_policy, 4, 50, backend="virtual",
        latency=LogNormal(mean=0.060, cv=0.3), make_learner=make_learner, learner_latency=0.03, seed=3,
        extras=spec.extras, features=spec.features, **arguments,
    )
    report = runner.run(frames=3_000)
    greedy = runner.run(episodes=3, eval_mode=True)
    decisions = [[span.worker, span.episode, span.start, span.effect] for span in report.spans]
    for what, told in ((name, {**report.to_dict(), "decisions": decisions}), (f"{name}, played", greedy.to_dict())):
        reports.append([what, told])
    losses = {name: value for name, value in report.scalars.items() if not name.startswith("Time/")}
    learnt = {"updates": report.updates, "loss": losses, "arrays": sorted(digests(learners[0].state_dict()))}
    assert report.updates >= 30, report.updates
    reports.append([f"{name}, learnt", learnt])
print(json.dumps(reports))
"""
)
CHUNKED = """
import hashlib, json
import gymnasium as gym
import numpy as np
from async_wrappers import AsyncRunner, Chunk, CommittedPrefix, LogNormal, RealtimeDelay, VectorRealtimeDelay

def chunk(length, after, mean=None):
    return {"default_action": Chunk(length, after=after, mean=mean)}

def told(value):
    if isinstance(value, dict):
        return {str(name): told(each) for name, each in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [told(each) for each in value]
    return told(value.tolist()) if isinstance(value, (np.ndarray, np.generic)) else value

def play(env, steps):
    env.action_space.seed(5)
    seen = [told(env.reset(seed=7))]
    for _ in range(steps):
        answer = env.step(env.action_space.sample())
        seen.append(told(answer))
        if not hasattr(env, "num_envs") and (answer[2] or answer[3]):
            seen.append(told(env.reset()))
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()

noise = {"latency": LogNormal(mean=0.060, cv=0.3)}
pole, pendulum = (lambda: gym.make("CartPole-v1")), (lambda: gym.make("Pendulum-v1"))
latency = {**noise, "workers": 4, "fps": 50}
reports = []
for name, make, arguments in (
    ("delay", pole, {"delay": 3, "noops": 2, "default_action": "repeat"}),
    ("a constant default action", pole, {"delay": 3, "noops": 2, "default_action": 1}),
    ("latencies", pole, {**latency, "default_action": "repeat"}),
    ("latencies, old actions refused", pole, {**latency, "default_action": "repeat", "stagger": "none", "max_age": 3}),
    ("chunks of any length", pole, {"delay": 3, "noops": 2, **chunk(9, "repeat")}),
    ("chunks, latencies", pole, {**latency, **chunk(9, 0)}),
    ("real chunks", pendulum, {"delay": 3, "noops": 2, **chunk(9, "repeat")}),
    ("real chunks, average", pendulum, {"delay": 3, "noops": 2, **chunk(9, "noop", "average")}),
    ("real chunks, average, latencies", pendulum, {**latency, **chunk(9, "noop", "average")}),
):
    reports.append([name, {"played": play(RealtimeDelay(make(), **arguments), 400)}])
    if "chunks" in name and make is pole:
        reports.append([f"{name}, prefix", {"played": play(CommittedPrefix(RealtimeDelay(make(), **arguments)), 400)}])
for name, arguments in (
    ("vector", {"default_action": "repeat"}),
    ("vector, chunks", {"default_action": "chunk"} if Chunk else {"default_action": "chunk", "after_chunk": "repeat"}),
):
    vector = gym.vector.SyncVectorEnv([pole] * 3, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    reports.append([name, {"played": play(VectorRealtimeDelay(vector, 3, 2, **arguments), 300)}])

class Sines:
    def act(self, observation, decision):
        return np.sin(np.arange(9) * observation[0] + decision.start, dtype=np.float32)[:, None]

for mean in (None, "average"):
    arguments = {**noise, **chunk(9, "noop", mean)}
    runner = AsyncRunner(pendulum, Sines, 4, 50, backend="virtual", seed=3, **arguments)
    reports.append([f"live, {mean}", runner.run(frames=600).to_dict()])
print(json.dumps(reports))
"""
LIVE = """
import json
import time
import warnings
import gymnasium as gym
from async_wrappers import AsyncRunner

def policy(observation):
    time.sleep(0.02 + 0.05 * abs(float(observation[1])))
    return int(observation[2] > 0)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    runner = AsyncRunner(
        lambda: gym.make("CartPole-v1"), lambda: policy, 4, 50, backend="thread", default_action="repeat"
    )
    report = runner.run(frames=300)
    print(json.dumps([(span.ended - span.began) / 1e9 for span in report.spans]))
"""


TWICE = (("Runner.num_iterations = 1",), ("Runner.num_iterations = 2",))
CARTPOLE_FILE, NO_VELOCITY = "configs/vtrace/cartpole.gin", "configs/vtrace/cartpole_no_velocity.gin"


def cases() -> dict[str, Case]:
    """Return the cases by name."""
    dqn, students = "configs/dqn/cartpole.gin", "configs/reincarnation"
    long = "Runner.training_steps = 20_000", "Runner.max_steps_per_episode = 2_000"
    delay = "RealtimeDelay.delay = 4", "VTraceAgent.discount_by = 'frame'", "VTraceAgent.lambda_ = 0.9"
    elite = "VTraceAgent.sources = [('queue', 0.5), ('elite', 0.5)]", "EliteReplay.capacity = 100"
    reservoir = "DQNAgent.replay_eviction = 'reservoir'", "DQNAgent.replay_capacity = 1_000"
    wrappers = "create_gym_environment.wrappers = [@KeepEntries, @RealtimeDelay]"
    delayed = wrappers, "RealtimeDelay.default_action = 'repeat'", *DELAYED[-2:]
    found = {
        "KungFuMaster": Case("configs/dqn/kung_fu_master.gin", (*SHORT, *long), updates=2_000),
        "delayed": Case(dqn, DELAYED),
        "delayed on Atari": Case("configs/dqn/atari.gin", DELAYED_ATARI),
        "random latencies": Case("configs/staggered.gin", CARTPOLE),
        "recorded latencies": Case("configs/staggered.gin", RECORDED, replays=LATENCIES),
        "dict observations": Case("configs/dqn/falling_blocks.gin", DICTS),
        "overlap": Case(dqn, (*CARTPOLE, "Runner.overlap = True"), updates=700),
        "prioritised": Case(dqn, (*CARTPOLE, "DQNAgent.replay_scheme = 'prioritized'"), updates=700),
        "reservoir": Case(dqn, (*CARTPOLE, *reservoir), updates=700),
        "continued": Case("configs/rainbow/cartpole.gin", CARTPOLE, TWICE),
        "virtual clock": Case(script=VIRTUAL, replays=LATENCIES),
        "live decisions replayed": Case(script=REPLAYED, replays=BOTH),
        "learnt on the virtual clock": Case(script=LEARNT),
        "chunks and default actions": Case(script=CHUNKED),
        "V-trace": _vtrace(VTRACE),
        "V-trace under delay": _vtrace((*VTRACE, *delay)),
        "V-trace with a core": _vtrace(VTRACE, gin_file=NO_VELOCITY),
        "V-trace continued": replace(_vtrace(VTRACE, gin_file=NO_VELOCITY), calls=TWICE),
        "V-trace with an elite replay": _vtrace((*VTRACE, *elite)),
        "V-trace on chunks": _vtrace(CHUNKS, gin_file="configs/vtrace/cartpole_chunk.gin", updates=40),
        "V-trace on chunks with a prefix": _vtrace(CHUNKS, gin_file="configs/vtrace/cartpole_prefix.gin", updates=40),
        "R2D2": Case("configs/r2d2/cartpole_no_velocity.gin", R2D2, updates=300),
        "R2D2 under delay": Case("configs/r2d2/cartpole_no_velocity.gin", (*R2D2, *delayed), updates=100),
        "Ape-X": Case("configs/apex/cartpole.gin", APEX, updates=300),
        "Ape-X of two learners": Case("configs/apex/cartpole.gin", (*APEX, "VectorRunner.learners = 2")),
        "QDagger": Case(f"{students}/qdagger_dqn_cartpole.gin", STUDENT, replays=TEACHER, updates=900),
        "QDagger on R2D2": Case(
            f"{students}/qdagger_r2d2_cartpole.gin",
            (*STUDENT, "RunnerWithTeacher.teacher_steps = 2_000"),
            replays=TEACHER,
        ),
        "QDagger under delay": Case(f"{students}/delayed_cartpole.gin", STUDENT[:-2], replays=TEACHER, updates=900),
        "kickstarting V-trace": replace(
            _vtrace(STUDENT[:-2], gin_file=f"{students}/kickstarting_vtrace_cartpole.gin", updates=40), replays=TEACHER
        ),
    }
    for agent, bound, updates in ("ppo", PPO, 20), ("sac", SAC, 900):
        for name, file in (agent.upper(), "pendulum"), (f"{agent.upper()} under delay", "pendulum_delay"):
            found[name] = Case(f"configs/{agent}/{file}.gin", bound, updates=updates, copies=0)
    found["PPO with a core"] = replace(
        found["PPO"],
        bindings=(*PPO, "create_policy_value_network.core = 'lstm'", "create_policy_value_network.hidden = (16,)"),
    )
    in_turn = *CARTPOLE, "Runner.evaluation_episodes = 2", *ROUNDS
    found["PPO in turn"] = Case("configs/ppo/cartpole.gin", in_turn, updates=14, copies=0)
    found["PPO continued"] = replace(found["PPO"], calls=TWICE)
    critics_first = *SAC, "SACAgent.critics_first = True"
    found["SAC, critics first"] = Case("configs/sac/pendulum.gin", critics_first, updates=900, copies=0)
    for folder, name in AGENTS.items():
        found[f"{folder} on CartPole"] = Case(f"configs/{folder}/cartpole.gin", CARTPOLE, updates=700)
        own = (f"{name}.min_replay_history = 200", f"{name}.target_update_period = 100", f"{name}.update_period = 4")
        found[f"{folder} on Atari"] = Case(f"configs/{folder}/atari.gin", (*ATARI, *own, *FEWER.get(folder, ())))
    for name, bound in TERMS.items():
        found[f"V-trace with {name}"] = _vtrace(REPLAYED_ROWS, (name,), bound)
    implied = *TERMS["KLMask"], "KLMask.to = 'implied'"
    found["V-trace with KLMask to the implied policy"] = _vtrace(REPLAYED_ROWS, ("KLMask",), implied)
    every = tuple(line for bound in TERMS.values() for line in bound)
    found["V-trace with a core and every term"] = _vtrace(REPLAYED_ROWS, tuple(TERMS), every, NO_VELOCITY)
    both, bound = ("TargetEntropy", "KLCost"), ("TargetEntropy.target = 5.0", "KLCost.cost = 0.05")
    file = "configs/vtrace/cartpole_chunk.gin"
    found["V-trace on chunks with KLCost and TargetEntropy"] = _vtrace(CHUNKS, both, bound, file, updates=40)
    return found


def _vtrace(
    bindings: tuple[str, ...],
    terms: tuple[str, ...] = (),
    bound: tuple[str, ...] = (),
    gin_file: str = CARTPOLE_FILE,
    updates: int = 80,
) -> Case:
    """Return a case of V-trace, whose loss may have terms."""
    named = (f"VTraceAgent.terms = ({', '.join(f'@{term}()' for term in terms)},)",) if terms else ()
    return Case(gin_file, (*bindings, *named, *bound), updates=updates, copies=0)


def record(tree: Path, directory: Path) -> None:
    """Play what the cases replay, unless it was recorded before: latencies and a short run live, and a teacher."""
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / LATENCIES).is_file():
        with tempfile.TemporaryDirectory() as place:
            script = Path(place) / "live.py"
            script.write_text(LIVE)
            _write_whole(directory / LATENCIES, _call([sys.executable, str(script)], tree))
    short = ("Runner.num_iterations = 1", "Runner.training_steps = 1_000", "Runner.evaluation_steps = 200")
    for name, gin_file, bindings in (
        (LIVE_RUN, "configs/live/cartpole.gin", short),
        (TEACHER, "configs/dqn/cartpole.gin", CARTPOLE),
    ):
        if not (directory / name).is_dir():
            unfinished = directory / f"{name}.tmp"
            shutil.rmtree(unfinished, ignore_errors=True)
            _train(tree, unfinished, gin_file, bindings)
            unfinished.rename(directory / name)


def run(tree: Path, case: Case, directory: Path, recordings: Path) -> dict[str, Any]:
    """Run a case in a tree; return a count of each array and the statistics, or what the script printed.

    Raises:
        CaseFailed: It ended with an error, or with too few updates or copies.
    """
    if case.script:
        return {"printed": json.loads(_call([sys.executable, "-c", case.script, str(recordings)], tree))}
    recorded = {"{latencies}": str(recordings / LATENCIES), "{teacher}": str(recordings / TEACHER)}
    for further in case.calls:
        bindings = (*case.bindings, *further)
        _train(tree, directory, case.gin_file, [_filled(binding, recorded) for binding in bindings])
    lines = [json.loads(line) for line in (directory / "metrics" / "iterations.jsonl").read_text().splitlines()]
    updates = sum(line["train_updates"] for line in lines)
    if updates < case.updates:
        raise CaseFailed(f"{case.gin_file} in {tree}: {updates} updates, at least {case.updates} were wanted")
    copies = target_copies((directory / "config.gin").read_text(), updates) if case.copies else 0
    if copies < case.copies:
        raise CaseFailed(f"{case.gin_file} in {tree}: {copies} target copies, at least {case.copies} were wanted")
    return {"updates": updates, "copies": copies, "arrays": arrays(directory / "checkpoints"), "lines": lines}


def target_copies(config: str, updates: int) -> int:
    """Return how often the target network was copied, by the periods in the configuration that the run saved.

    Where several agents of a family show a period, the answer is the least that they allow.
    """
    read = config.partition("# Bound, but not used")[0]
    periods = {
        name: [int(value) for value in re.findall(rf"^\w+\.{name} = ([\d_]+)$", read, re.MULTILINE)]
        for name in ("update_period", "target_update_period")
    }
    if not all(periods.values()):
        raise CaseFailed(f"the saved configuration must hold update_period and target_update_period, got {periods}")
    return updates // max(1, round(max(periods["target_update_period"]) / min(periods["update_period"])))


def _filled(binding: str, recorded: Mapping[str, str]) -> str:
    for name, path in recorded.items():
        binding = binding.replace(name, path)
    return binding


def _train(tree: Path, directory: Path, gin_file: str, bindings: Sequence[str]) -> None:
    bound = [word for binding in bindings for word in ("--gin_bindings", binding)]
    gin_file = gin_file if (tree / gin_file).is_file() else EARLIER.get(gin_file, gin_file)
    _call([sys.executable, "train.py", "--base_dir", str(directory), "--gin_files", gin_file, *bound], tree)


def _call(command: Sequence[str], tree: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise CaseFailed(f"{' '.join(command)} in {tree} ended with {done.returncode}:\n{done.stderr[-3_000:]}")
    return done.stdout


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text)
    unfinished.rename(path)


def _without_times(value: Any) -> Any:
    """Return statistics without times and rates, at any depth."""
    if not isinstance(value, Mapping):
        return value
    return {name: _without_times(each) for name, each in value.items() if not any(word in name for word in TIMES)}


def arrays(checkpoints: Path) -> Counter[str]:
    """Count the arrays of the newest checkpoint and of all replay files, each told by type, shape and SHA-256."""
    newest = max(checkpoints.glob("ckpt.*"), key=lambda path: int(path.suffix[1:]))
    counted = Counter(map(_digest, _leaves(torch.load(newest, map_location="cpu", weights_only=True))))
    segments = []
    for path in checkpoints.rglob("segment_*.npz"):
        with np.load(path, allow_pickle=False) as file:
            names = sorted(file.files, key=lambda name: int(name.rpartition("_")[2]))
            found = {name: file[name] for name in names}
        # A name ends in random letters; files of the same slots (a log and its snapshot) are put in order by content.
        slots = path.name.rpartition("_")[0]
        segments.append((slots, sorted(map(_digest, found.values())), found))
    rows: dict[str, list[Any]] = {}
    for _, _, found in sorted(segments, key=lambda segment: segment[:2]):
        for name, array in found.items():
            rows.setdefault(name.rpartition("_")[0], []).append(array)
    for pieces in rows.values():  # the columns of the replay, whatever pieces they lie in
        if len({piece.shape[1:] for piece in pieces}) == 1:
            counted[_digest(np.concatenate(pieces))] += 1
    return counted


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value.detach().numpy()
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)


def _digest(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]}"


class Kept:
    """The results of one commit, in files that the next comparison finds again.

    Args:
        directory: Of all commits.
        commit: Its full hash.
    """

    def __init__(self, directory: Path, commit: str) -> None:
        self.directory = directory / commit[:12]
        self.recordings = self.directory / "recorded"

    def path(self, name: str, case: Case) -> Path:
        """Return the file of a case; its name depends on all that the result depends on, but the commit."""
        parts = [repr(case), machine()]
        recorded = self.recordings / case.replays if case.replays else self.recordings / "nothing"
        for file in sorted(each for each in (recorded, *recorded.rglob("*")) if each.is_file()):
            parts.append(hashlib.sha256(file.read_bytes()).hexdigest())
        key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return self.directory / f"{name.replace(' ', '_')}-{key}.json"

    def result(self, name: str, case: Case, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the kept result of a case, or make it and keep it."""
        path = self.path(name, case)
        if not path.is_file():
            _write_whole(path, json.dumps({"case": name, **make()}))
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept


def machine() -> str:
    """Return what the last bits of a result depend on besides the project: the processor and the libraries."""
    names = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else platform.processor()
    model = re.search(r"^model name\s*: (.*)$", names, re.MULTILINE)
    libraries = {name: version(name) for name in ("ale-py", "gin-config", "gymnasium", "numpy", "torch")}
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{model[1] if model else names} {capability} {platform.python_version()} {libraries}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say what only one of two results holds."""
    found = []
    if [what for what, _ in old.get("printed", [])] != [what for what, _ in new.get("printed", [])]:
        return ["the scripts printed results of different things"]
    for (what, report), (_, now_report) in zip(old.get("printed", []), new.get("printed", []), strict=True):
        if changed := _changed(report, now_report):
            found.append(f"{what}: {', '.join(changed)}")
    old_arrays, new_arrays = Counter(old.get("arrays", {})), Counter(new.get("arrays", {}))
    found += [f"only before: {name}" for name in old_arrays - new_arrays]
    found += [f"only now: {name}" for name in new_arrays - old_arrays]
    for number, (before, now) in enumerate(zip(old.get("lines", []), new.get("lines", []), strict=False)):
        before, now = _without_times(before), _without_times(now)
        for name in _changed(before, now):
            found.append(f"iteration {number}, {name}: {before.get(name)} before, {now.get(name)} now"[:300])
    if len(old.get("lines", [])) != len(new.get("lines", [])):
        found.append("the numbers of iterations differ")
    return found


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names whose values differ as text: NaN equals itself, and 0.0 is not -0.0."""
    ours = _known(now, before)
    before = {name: value for name, value in before.items() if name in now or name not in GONE}
    return [
        name
        for name in sorted({*before, *ours})
        if json.dumps(before.get(name, "missing")) != json.dumps(ours.get(name, "missing"))
    ]


def _known(now: Any, before: Any) -> Any:
    """Return a result without what is told since a later version than the earlier one's, at any depth."""
    if not isinstance(now, Mapping) or not isinstance(before, Mapping):
        return now
    return {name: _known(value, before.get(name)) for name, value in now.items() if name in before or name not in ADDED}


def extract(commit: str, place: Path) -> Path:
    """Write the files of a commit into a folder that is made; git keeps no record that a killed run would leave."""
    archived = subprocess.run(["git", "archive", "--format=tar", commit], check=True, cwd=ROOT, capture_output=True)
    place.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(place)], input=archived.stdout, check=True)
    return place


def compare(name: str, old: Future[dict[str, Any]], new: Future[dict[str, Any]] | None) -> bool:
    """Print how a case ended; return whether it was equal, or was run where nothing is compared."""
    try:
        before = old.result()
        different = [] if new is None else differences(before, new.result())
    except (CaseFailed, OSError, subprocess.TimeoutExpired) as error:
        print(f"FAILED   {name}\n           {error}", flush=True)
        return False
    what = "kept" if new is None else "DIFFERS" if different else "equal"
    counted = {"updates": before.get("updates"), "copies": before.get("copies")}
    counted["arrays"] = sum(before.get("arrays", {}).values())
    facts = ", ".join(f"{count} {kind}" for kind, count in counted.items() if count)
    print(f"{what:8} {name}{f' ({facts})' if facts else ''}", flush=True)
    for line in different[:12]:
        print(f"           {line}")
    return not different


def main() -> int:
    parser = parser_of(
        __doc__,
        jobs=(2, "runs at a time, both trees' together"),
        before=(Path, "the directory where the earlier commit's results are kept"),
        fill=(False, "only run what is missing there"),
    )
    parser.add_argument("commit")
    parser.add_argument("--only", action="append", default=[], help="part of a case's name")
    arguments = parser.parse_args()
    if arguments.fill and arguments.before is None:
        parser.error("--fill needs --before, the directory that is to be filled")
    wanted = {name: case for name, case in cases().items() if name in chosen(cases(), arguments.only)}
    if not wanted:
        parser.error(f"--only must be part of a case's name, of {', '.join(cases())}; got {', '.join(arguments.only)}")
    parsed = ["git", "rev-parse", "--verify", f"{arguments.commit}^{{commit}}"]
    commit = subprocess.run(parsed, check=True, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        kept = Kept((arguments.before or place / "kept").resolve(), commit)
        old_tree = extract(commit, place / "old")
        with ThreadPoolExecutor(arguments.jobs) as pool:
            record(old_tree, kept.recordings)
            futures: dict[str, tuple[Future[dict[str, Any]], Future[dict[str, Any]] | None]] = {}
            for name, case in wanted.items():

                def make(tree: Path, side: str, name: str = name, case: Case = case) -> dict[str, Any]:
                    return run(tree, case, place / "runs" / side / name.replace(" ", "_"), kept.recordings)

                futures[name] = (
                    pool.submit(kept.result, name, case, partial(make, old_tree, "old")),
                    None if arguments.fill else pool.submit(make, ROOT, "new"),
                )
            good = sum([compare(name, old, new) for name, (old, new) in futures.items()])
    print(f"{good} of {len(wanted)} cases are {'kept' if arguments.fill else 'equal'}")
    return 0 if good == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
