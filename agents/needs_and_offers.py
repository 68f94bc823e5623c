"""The table of what agents, runs and teachers need, and of what ways of playing, replays and wrappers do not offer.

A spec says what it needs (`Spec.needs`), a run by its settings (`bound`), and a way of playing looks itself up here:
what has no row beside it is offered. Each entry below is a thing that there may be; its rows are the settings that need
more than it offers, each with the right value, the reason and the remedy. `async_wrappers.needs` writes the sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from async_wrappers import needs
from async_wrappers.needs import Beside, Need, Words

FAST = Words("a fast path")  # as the value of a network's setting `fast`

_LEARNER = "async_wrappers.agents.learning.learner.Learner"
_LIVE = "where create_runner.schedule = 'realtime'"
_HOSTS = "where create_runner.schedule = 'hosts'"
_NEVER_AGAIN = (
    "no live iteration is played again alike, and one that is interrupted leaves a checkpoint of what was learnt"
)
_NO_EFFECT = Words("'start' {whose}(needs_effect False)")
_ONCE = "which learns once from what its own policy has done"


def _at_least_1(value: Any) -> bool:
    return bool(value >= 1)


def _at_start(value: Any) -> bool:
    return bool(value == "start")


def _never(value: Any) -> bool:
    """Return False: whoever gives the setting has found it wrong."""
    return False


_OF_PLAY = {
    "live": Beside(
        _LIVE,
        Need(
            "Runner.report_episodes",
            0,
            remedy="its table is of turn-based play; bind Runner.evaluation_episodes instead",
        ),
        Need("Runner.pretrain_dataset", None, remedy="demonstrations are learnt from in simulation alone"),
        Need("Runner.exact_resume", False, remedy=_NEVER_AGAIN),
        Need("Runner.checkpoint_minutes", None, remedy=_NEVER_AGAIN),
        Need(
            "num_updates_per_train_step",
            1,
            "whose learners update whenever they can",
            "bind AsyncRunner.updates_per_transition",
        ),
        Need(
            "RunnerWithTeacher.teacher_steps, num_pretraining_iterations and teacher_data_ratio",
            0,
            "whose workers and learners are not the teacher's",
            "pretrain in turn, and bind Runner.initial_checkpoint",
        ),
    ),
    "effects, live": Beside(
        f"with agent {{agent!r}} and critic_at='effect' {_LIVE}",
        Need("stack_size", 1, remedy="stack in a wrapper such as FrameStackObservation, or bind critic_at = 'start'"),
    ),
    "a fast path, live": Beside(
        f"with agent {{agent!r}} and a fast path {_LIVE}",
        Need("stack_size", 1, remedy="stack in a wrapper such as FrameStackObservation, or bind fast = None"),
    ),
    "chunks, live": Beside(
        "with agent {agent!r} where actions are chunks",
        Need(
            "fast",
            None,
            "whose later actions land on frames that are not shown yet",
            "bind another AsyncRunner.default_action",
        ),
    ),
    "a runner without effects": Beside(
        "with agent {agent!r} where LiveRunner.create_async_runner_fn takes no report_effect",
        Need("critic_at", "start", remedy="take @AsyncRunner"),
        Need("fast", None, remedy="take @AsyncRunner"),
    ),
    "a teacher, live": Beside(
        f"with agent {{agent!r}} and a teacher {_LIVE}", Need("fast", None, remedy="teach it in turn")
    ),
    # Many environments.
    "many": Beside("where create_runner.schedule = 'vector'", Need("Runner.pretrain_dataset", None)),
    "many, resumed exactly": Beside(
        "where Runner.exact_resume=True and create_runner.schedule = 'vector'",
        Need("Runner.checkpoint_minutes", None, remedy="games that the clock cuts are cut alike in no other run"),
    ),
    "a whole vector": Beside("where create_vector_fn makes a whole vector", Need("VectorRunner.processes", 0)),
    "two halves": Beside(
        "where double_buffered=True",
        Need("VectorRunner.num_envs", Words(">= {least}"), "2 for each {share}", holds=_never),
    ),
    "several learners": Beside(
        "where VectorRunner.learners = {learners}",
        Need("VectorRunner.act_devices", None),
        Need("Runner.overlap", False),
        Need(
            "RunnerWithTeacher.teacher_steps",
            Words(">= 1 frame"),
            "each of which learns from what its own teacher has collected",
            holds=_at_least_1,
        ),
    ),
    "many, effects": Beside(
        "with agent {agent!r} and critic_at='effect'",
        Need(
            "VectorRunner.create_vector_fn",
            None,
            "as a vector does not report the frames on which actions land",
            "bind Runner.create_environment_fn alone, or critic_at = 'start'",
        ),
    ),
    "many, a teacher": Beside(
        "with agent {agent!r} and a teacher on many environments", Need("fast", None, remedy="teach it in turn")
    ),
    "many, a teacher that reads otherwise": Beside(
        "where the teacher reads something else than its student does, or label_at = 'effect' under delay",
        Need(
            "VectorRunner.create_vector_fn",
            None,
            "as a vector shows no teacher what it reads",
            "bind Runner.create_environment_fn alone",
        ),
    ),
    "many lanes": Beside(
        "with agent {agent!r} and VectorRunner.num_envs = {num_envs}",
        Need("load_replay", False, "whose replay has a part for each environment"),
    ),
    "no devices that act": Beside("where act_devices=None", Need("act_sync_period", 1)),
    # Hosts.
    "hosts that act": Beside(
        _HOSTS,
        Need("Runner.overlap", False, "whose hosts play meanwhile"),
        Need("VectorRunner.act_devices", None, "whose hosts act"),
    ),
    "hosts that step": Beside(
        "where Hosts.inference = 'learner'",
        Need("VectorRunner.learners", 1, remedy="with several learners bind Hosts.inference = 'hosts'"),
        Need("Hosts.block_length", None, "whose hosts play step by step and send no blocks"),
        Need("Hosts.max_version_lag", None, "which acts on the newest weights"),
        Need("Hosts.gpus_per_host", 0, "whose hosts compute no network"),
    ),
    "free hosts": Beside("where Hosts.mode = 'free'", Need("Runner.exact_resume", False, "whose runs are never alike")),
    "hosts in rounds": Beside("where Hosts.mode = 'rounds'", Need("Hosts.max_version_lag", None)),
    "no Ray": Beside("where Hosts.engine = {engine!r}", Need("Hosts.address", None)),
    "no learners on Ray": Beside(
        "where Hosts.engine = {engine!r} and VectorRunner.learners = {learners}", Need("Hosts.gpus_per_learner", 0)
    ),
    "hosts, an agent of rounds": Beside(
        "with agent {agent!r}", Need("Hosts.mode", "rounds", "which learns from whole rounds of all environments")
    ),
}

_OF_AGENTS = {
    "several gradient steps": Beside(
        "with agent {agent!r}",
        *(Need(name, 1, "whose update has several gradient steps") for name in ("AsyncRunner.learners", "learners")),
    ),
    "no gradients": Beside("with agent {agent!r}", Need("AsyncRunner.learners", 1, "whose learner has no {missing}")),
    "weights in part": Beside(
        "with agent {agent!r}", Need("AsyncRunner.learners", 1, "which publishes a part of its weights")
    ),
    "an own learner": Beside(
        "with agent {agent!r}",
        *(
            Need(name, right, f"whose learner is no {_LEARNER}")
            for name, right in (("VectorRunner.learners", 1), ("Runner.overlap", False))
        ),
    ),
    "an own learner of many": Beside(
        "with agent {agent!r}",
        Need("VectorRunner.learners", 1, "whose {kind} has no make_vector_learner(num_envs, number, learners)"),
    ),
    "learning once": Beside(
        "with agent {agent!r}", Need("VectorRunner.replay_ratio", None, "which learns from each step {often}")
    ),
    "several updates": Beside(
        "where num_updates_per_train_step is bound to {num_updates_per_train_step}",
        Need("VectorRunner.replay_ratio", None, "since either says how many updates are made"),
    ),
    "a real clock": Beside(
        "with agent {agent!r} beside a real clock",
        Need(
            "stack_size",
            1,
            remedy="give {kind} the method of_stacks(), or stack in a wrapper such as FrameStackObservation",
        ),
    ),
    "memory": Beside("with agent {agent!r}", Need("act_devices", None, "which acts with memory")),
    "learning": Beside(
        "where agent {agent!r} learns",
        Need(
            "Chunk.mean",
            None,
            "as no entry is applied as the policy drew it",
            "leave it out, and bind it for evaluation alone",
        ),
    ),
    "no constant interval": Beside(
        "where the frames between two decisions vary (a latency, or live play)",
        *(
            Need(
                name,
                Words("bound, in frames,"),
                remedy=f"bind {name} = {{min_replay_history}} for an action on every frame, and more for fewer",
                holds=_never,
            )
            for name in ("DQNAgent.epsilon_warmup", "SACAgent.random_frames")
        ),
    ),
    "a falling rate": Beside(
        "where learning_rate_power or learning_rate_end is",
        Need("learning_rate_decay", Words("bound, in updates,"), holds=_never),
    ),
    "a moving target": Beside("where target_smoothing={target_smoothing}", Need("target_update_period", None)),
    "no first checkpoint": Beside("where Runner.initial_checkpoint=None", Need("Runner.initial_optimizer", False)),
    "a file of weights": Beside(
        "where {path} begins a run, which holds weights alone", Need("Runner.initial_optimizer", False)
    ),
    "the optimiser of a checkpoint": Beside(
        "where the optimiser of checkpoint {path} is another one ({there} there, {here} here)",
        Need("Runner.initial_optimizer", False),
    ),
    "a learnt weight of entropy": Beside(
        "where TargetEntropy adjusts it", Need("entropy_cost", Words("> 0"), holds=lambda value: value > 0)
    ),
    "chunks": Beside("where decisions give chunks of actions", Need("KLMask.to", "behaviour")),
    "chunks, a window": Beside(
        "where a decision gives a chunk of actions",
        Need(
            "action_window",
            None,
            "as no policy is told which of them were applied",
            "show the committed ones with CommittedPrefix",
        ),
    ),
}

_OF_REPLAYS = {
    "uniform draws": Beside(
        "where replay_scheme='uniform'", Need("actor_priorities", False, "which has no priorities")
    ),
    "uneven draws": Beside("where replay_scheme={replay_scheme!r}", Need("replay_eviction", "oldest")),
    "an uneven selector": Beside("where selector={selector!r}", Need("eviction", "oldest")),
    "a loss of one step": Beside("where one_step_loss=True", Need("replay_eviction", "oldest")),
    "a window of actions": Beside("where action_window={action_window}", Need("replay_eviction", "oldest")),
    "random eviction": Beside("where replay_eviction={replay_eviction!r}", Need("replay_compression", None)),
    "a reservoir": Beside("where eviction='reservoir'", Need("num_envs", 1), Need("compression", None)),
    "missing neighbours": Beside(
        "in a reservoir, where neighbours go missing", Need("stack_size", 1), Need("action_window", None)
    ),
    "a size in bytes": Beside(
        "where replay_bytes={replay_bytes}",
        Need("replay_capacity", None, remedy="bind one of the two"),
        Need("capacity", None),
    ),
    "packed observations": Beside(
        "where replay_compression={replay_compression!r}",
        Need("replay_bytes", None, "as packed observations have no fixed size", "bind replay_capacity"),
    ),
    "compression": Beside(
        "where observations are packed", Need("replay_bytes", None, "which have no fixed size", "give capacity")
    ),
    "equal draws": Beside("where draws are uniform", Need("importance_exponent", None)),
    "acting waits": Beside("where when_full='wait'", Need("update_period", 1)),
}

_OF_TEACHING = {
    "a student": Beside(
        "where a student is taught",
        Need(
            "Runner.evaluation_steps",
            Words(">= 1 frame (and Runner.evaluation_episodes >= 1 or None)"),
            "as the weight of the teacher follows the score",
            holds=_at_least_1,
        ),
        Need("Runner.pretrain_dataset", None, "which has its teacher's data"),
    ),
    "an evaluated teacher": Beside(
        "where the teacher is evaluated",
        Need("RunnerWithTeacher.teacher_score", None, remedy="bind RunnerWithTeacher.evaluate_teacher = False"),
    ),
    "a weight that follows the score": Beside(
        "where evaluate_teacher is False with agent {agent!r}",
        Need(
            "RunnerWithTeacher.teacher_score",
            Words("bound, the teacher's mean return,"),
            "whose lambda follows the normalised score",
            holds=lambda score: score is not None,
        ),
    ),
    "a named teacher": Beside(
        "where teacher_checkpoint_dir or teacher_gin_file name a teacher",
        Need("RunnerWithTeacher.random_teacher", False),
    ),
    "nothing learnt from the teacher": Beside(
        "where nothing is learnt from them (no offline updates, and no teacher_data_ratio)",
        Need("RunnerWithTeacher.teacher_steps", Words("0 frames"), holds=lambda frames: not frames),
    ),
    "nothing drawn from the teacher": Beside(
        "where nothing is drawn from the teacher's replay (no offline updates, and no teacher_data_ratio)",
        Need("teacher_replay_scheme", "uniform"),
    ),
    "a student without a replay": Beside(
        "with agent {agent!r}",
        Need("RunnerWithTeacher.teacher_steps and num_pretraining_iterations", 0, _ONCE, holds=_never),
    ),
    "sequences offline": Beside(
        "with agent {agent!r} and offline updates: it learns from sequences",
        Need(
            "RunnerWithTeacher.teacher_steps",
            Words(">= 1 frame"),
            "which the teacher's own replay does not hold",
            holds=_at_least_1,
        ),
    ),
    "another optimiser": Beside(
        "where the teacher's optimiser is {there} and its student's {here}", Need("reload_optimizer", False)
    ),
}

_OF_WRAPPERS = {
    "another delay": Beside(
        "where {layer} delays",
        Need(
            "critic_at",
            _NO_EFFECT,
            "which does not report on which frame an action lands",
            "delay with RealtimeDelay",
            _at_start,
        ),
        Need("fast", None, "which shows no fresh observations", "delay with RealtimeDelay"),
    ),
    "a delay without effects": Beside(
        "where a delay has no attribute report_effect",
        Need("critic_at", _NO_EFFECT, "as {layer}'s has not", "delay with RealtimeDelay", _at_start),
    ),
    "a change outside the delay": Beside(
        "where {layer} changes observations outside the delay",
        Need(
            "critic_at",
            _NO_EFFECT,
            "which reports those of effects as they were before",
            "put it inside RealtimeDelay",
            _at_start,
        ),
        Need("fast", None, "which shows fresh ones as they were before", "put it inside {delay}"),
    ),
    "chunks, effects": Beside(
        "where actions are chunks",
        Need(
            "critic_at",
            _NO_EFFECT,
            "which land on several frames",
            "bind another default_action, or the critic at the start",
            _at_start,
        ),
    ),
    "no report of effects": Beside(
        "where info['realtime'] has no 'effect_observation' and 'next_effect_observation'",
        Need("critic_at", _NO_EFFECT, remedy="report them as RealtimeDelay(report_effect=True) does", holds=_at_start),
    ),
    "no fresh observation": Beside(
        "where info['realtime'] has no 'fresh_observation'",
        Need("fast", None, remedy="delay with RealtimeDelay, which reports it where its fresh_age is set"),
    ),
    "no delay": Beside("where nothing delays actions", Need("fast_age", 0, remedy="delay with {delay}")),
    "a delay of each environment": Beside(
        "where create_vector_fn delays each of its environments by itself",
        Need("fast", None, remedy="bind Runner.create_environment_fn alone, or delay with VectorRealtimeDelay"),
    ),
    "no fast path": Beside(
        "with agent {agent!r} without a fast path",
        Need("max_features_age", None, "which reads nothing new", "bind fast of its network"),
    ),
}

TABLE: needs.Table = {**_OF_PLAY, **_OF_AGENTS, **_OF_REPLAYS, **_OF_TEACHING, **_OF_WRAPPERS}

refuse = partial(needs.refuse, table=TABLE)


def refuse_unknown_frames(setting: str, min_replay_history: int) -> None:
    """Refuse None for a number of frames that stands for `min_replay_history` decisions, whose frames vary."""
    needs = {setting: Words(f"None, which stands for min_replay_history = {min_replay_history} decisions")}
    refuse("no constant interval", needs, min_replay_history=min_replay_history)


def bound(*records: Any) -> Mapping[str, Any]:
    """Return the settings of records by the names that gin binds, such as ``Runner.overlap``."""
    return {f"{record.gin_name}.{name}": getattr(record, name) for record in records for name in record.declarations}
