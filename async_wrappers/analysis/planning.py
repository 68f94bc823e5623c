"""`plan`: how many workers a latency needs, the results of each way of running them, and whether the machine can.

Every share and delay is a forecast (`async_wrappers.analysis.forecast`). Two more ways to play are covered: a chunk of
actions, which fills the frames between two decisions, and a policy with memory, whose core and head the environment
loop must find time for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from async_wrappers import posix
from async_wrappers.analysis import which_way
from async_wrappers.analysis.forecast import FRESH, PLAYOUTS, Forecast, Forecaster, Slots
from async_wrappers.checks import flag, positive, whole
from async_wrappers.files import path_of, write_text_atomically
from async_wrappers.latency import Latency, as_latency, measure, summary
from async_wrappers.needs import refuse
from async_wrappers.policy import Decision, Memory
from async_wrappers.schedule.simulated import worker_count

MEASURED_WORKER_MB = 13.0  # private memory of a worker process beside shared weights, on a 200 MB model
BUDGET_WORKER_MB = 300.0  # private memory of a worker at most
_ADDRESS = "tcp://127.0.0.1:5555"  # of the other machine's server, through a tunnel


@dataclass(frozen=True)
class Plan:
    """The result of `plan`.

    Attributes:
        latency: The model, as text; of a policy with memory, that of its slow half, ``encode``.
        latency_ms: mean, std, p50, p95, p99 and max of 10,000 draws, in milliseconds.
        fps: Frames per second.
        seconds: As given: how long an episode lasts.
        simulated_frames: Frames that the forecasts count.
        rules: A forecast for each rule: ``sequential`` and ``never_resting`` with one worker; ``max_time`` with
            ``ceil(max latency * fps)`` workers, where max is the largest of 10,000 draws, which the rule learns on the
            way; ``max_time_known``, which knows it from the start; ``expected_time`` with ``ceil(mean latency * fps)``
            workers; ``tickets`` with two more, at playout p99; and, if `workers` is given, ``given``, tickets with that
            number.
        enough: The least number of ``tickets`` workers with a fresh action on 99 % of the frames; None if none found.
        playout: The playout of `enough`, as a quantile of the latency.
        slots: Forecasts for fewer workers than `enough`, with whole and even slots, at playout p99; empty where one
            worker is enough.
        learners: Number of learners that make one update per frame together; None without `learn_ms`.
        cores: Cores of the machine.
        cores_needed: Busy workers (none of them with `remote`), learners, and one for the environment loop.
        memory_mb: ``weights`` (two copies), ``workers_measured`` and ``workers_budget`` (13 and 300 MB per worker), in
            megabytes; None if the size of the model is not known.
        memory_gbs: Gigabytes of weights read per second; None if the size of the model is not known.
        release_ms: mean, std, p50, p95, p99 and max of the time in which the environment loop releases a decision; None
            if not asked for.
        step_ms: The same of the environment's step.
        advice: Sentences.
        remote: Whether the workers are on another machine.
        fast_age: How many frames old the observation is that a fast path reads when its action lands, beside the delay
            of the workers' half; None without a fast path.
        positions: Whether the machine takes positions, of which it holds the last one where no action arrives.
    """

    latency: str
    latency_ms: dict[str, float]
    fps: float
    seconds: float
    simulated_frames: int
    rules: tuple[Forecast, ...]
    enough: Forecast | None
    playout: str
    slots: tuple[Slots, ...]
    learners: int | None
    cores: int
    cores_needed: int
    memory_mb: dict[str, float] | None
    memory_gbs: float | None
    release_ms: dict[str, float] | None
    step_ms: dict[str, float] | None
    advice: tuple[str, ...]
    remote: bool = False
    fast_age: int | None = None
    positions: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, None where there is no number."""
        plain = asdict(self) | {"verdict": self.verdict, "configuration": self.configuration}
        remedy, delay = self.way or (None, 0)
        plain["way"] = remedy and {"name": remedy.name, "lines": remedy.lines(delay), "share": remedy.share}
        return {**plain, **{name: list(plain[name]) for name in ("rules", "slots", "advice")}}

    def to_json(self, path: str | Path) -> None:
        """Write the plan as JSON."""
        write_text_atomically(path_of(path), json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def __str__(self) -> str:
        """Summarize for a person."""
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        """Return the plan with its forecasts as a table, for a notebook."""
        forecasts = [*self.rules, *([] if self.enough is None else [self.enough])]
        before, _, after = str(self).partition(f"{_HEADER}\n")
        after = "\n".join(after.splitlines()[len(forecasts) :])
        heads = "".join(f"<th>{head}</th>" for head in _HEADS)
        rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in forecasts)
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<pre>{escape(before.strip())}</pre>{table}<pre>{escape(after.strip())}</pre>"

    @property
    def loop_ms(self) -> float:
        """The environment loop's computing time in a frame, in milliseconds: p99 of a release plus p99 of a step."""
        return sum(each["p99"] for each in (self.release_ms, self.step_ms) if each is not None)

    @property
    def verdict(self) -> str:
        """Whether it will work, and what the policy then gets, in words that begin with ``yes`` or ``no``."""
        if (enough := self.enough) is None:
            return f"no: no number of workers gives an action on {FRESH:.0%} of the frames"
        workers = "1 worker" if enough.workers == 1 else f"{enough.workers} workers"
        playout = "1 frame" if enough.playout_frames == 1 else f"{enough.playout_frames} frames"
        gets = (
            f"{workers}, playout {playout}, an action on {enough.fresh_share:.1%} of the frames, "
            f"{enough.mean_delay_frames:.1f} frames ({enough.mean_delay_ms:.0f} ms) after its observation"
        )
        if enough.first_action_s is None or enough.first_action_s >= self.seconds:
            return f"no: no action of theirs lands within {self.seconds:g} s ({gets})"
        if (frame_ms := 1000 / self.fps) < self.loop_ms:
            return f"no: the loop's own work takes {self.loop_ms:.3g} ms, and a frame has {frame_ms:.4g} ms ({gets})"
        if self.remote:
            return f"yes, if the other machine infers {enough.busy_workers:.1f} at a time: {gets}"
        if self.cores < enough.busy_workers:
            busy = f"{enough.busy_workers:.1f} workers are busy at a time"
            chunks = "" if self.chunk is None else f"; but one worker plays, with chunks of {self.chunk} actions"
            here = "is 1 core" if self.cores == 1 else f"are {self.cores} cores"
            return f"no: {busy}, and there {here} ({gets}){chunks}"
        return f"yes: {gets}"

    @property
    def chunk(self) -> int | None:
        """The shortest chunk with which one worker that never rests fills every frame from its first action on.

        None where one worker needs no chunks, where none is long enough, and where it would act within no episode.
        """
        one = next((row for row in self.rules if row.rule == "never_resting"), None)
        needs_none = self.enough is not None and self.enough.workers == 1
        if one is None or one.first_action_s is None or needs_none or 1000 / self.fps < self.loop_ms:
            return None
        return one.chunk_frames if one.first_action_s < self.seconds else None

    @property
    def way(self) -> tuple[which_way.Remedy, int] | None:
        """The row of docs/concepts/which_way.md that the plan comes to, and its delay in frames.

        None where no way helps: no action lands within an episode, or the loop's own work does not fit into a frame.
        """
        enough, rules = self.enough, {row.rule: row for row in self.rules}
        if 1000 / self.fps < self.loop_ms:
            return None
        found, row = which_way.SEQUENTIAL, rules.get("sequential")
        if self.verdict.startswith("yes"):
            found, row = which_way.TOLD, enough
            if enough is not None and enough.workers == 1:
                found = which_way.IN_TIME
            elif self.fast_age is not None:
                found = which_way.FAST_PATH
        elif self.chunk is not None:
            found, row = which_way.CHUNKS, rules.get("never_resting")
        if (
            row is None
            or row.p99_delay_frames is None
            or row.first_action_s is None
            or row.first_action_s >= self.seconds
        ):
            return None
        return found, max(1, math.ceil(row.p99_delay_frames))

    @property
    def configuration(self) -> dict[str, list[str]]:
        """Lines to copy, by their purpose, for the workers that are enough, and for one worker with chunks.

        Those of the workers are left out where the verdict is ``no``. `RealtimeDelay` then has the constant delay of
        the playout. The line under ``play`` and those under ``train`` need the default action that the environment is
        to have; ``"repeat"`` is one that every environment takes, and `Chunk.after` if nothing is given.
        """
        fps, file = f"{self.fps:.10g}", "Latencies" if self.latency.startswith("Latencies(") else "Trace"
        model = self.latency if "<" not in self.latency else f'{file}("FILE")'
        serve = f"python -m async_wrappers serve my_policy:make_policy --bind {_ADDRESS}"
        policy = f'"{_ADDRESS}"' if self.remote else "make_policy"
        chunks = {}
        if self.chunk is not None:
            on = f'workers=1, fps={fps}, stagger="none", default_action=Chunk({self.chunk})'
            play = [f"{serve} --workers 1"] if self.remote else []
            chunks = {
                "or one worker with chunks": [*play, f"AsyncRunner(make_env, {policy}, {on})"],
                "train it under": [f"RealtimeDelay(env, latency={model}, {on})"],
            }
        if self.enough is None or self.verdict.startswith("no"):
            return chunks
        workers = self.enough.workers
        delay = max(1, self.enough.playout_frames or 0)  # the least on a real clock
        on = f'workers={workers}, fps={fps}, playout={delay}, default_action="repeat"'
        live = {"play": [f"AsyncRunner(make_env, {policy}, {on})"]}
        if self.remote:
            live = {"serve": [f"{serve} --workers {workers} --threads"], **live}
        else:
            live = {
                **live,
                "play, in gin": [
                    f"AsyncRunner.workers = {workers}",
                    f"AsyncRunner.fps = {fps}",
                    f"AsyncRunner.playout = {delay}  # frames",
                    'AsyncRunner.default_action = "repeat"',
                ],
            }
        return live | {
            "train under": [f'RealtimeDelay(env, delay={delay}, noops=0, default_action="repeat")'],
            "train under, in gin": [
                f"RealtimeDelay.delay = {delay}  # frames",
                "RealtimeDelay.noops = 0  # frames",
                'RealtimeDelay.default_action = "repeat"',
            ],
            "or with missed frames": [f"RealtimeDelay(env, latency={model}, {on})"],
            **chunks,
        }

    def _lines(self) -> Iterator[str]:
        yield from (f"verdict   {self.verdict}", "")
        d = {name: f"{value:.4g}" for name, value in self.latency_ms.items()}
        yield f"latency   {self.latency}"
        yield f"          mean {d['mean']}, p50 {d['p50']}, p95 {d['p95']}, p99 {d['p99']}, max {d['max']} ms"
        yield f"          mean {self.latency_ms['mean'] * self.fps / 1000:.4g} frames at {self.fps:g} fps"
        yield from ("", _HEADER, *map(_line, self.rules))
        if self.enough is not None:
            yield _line(self.enough)
        if self.slots:
            yield from ("", _SLOTS_HEADER, *map(_slots_line, self.slots))
        learners = "" if self.learners is None else f"{self.learners} learners (one update per frame), "
        busy = self.cores_needed - (self.learners or 0) - 1
        workers = "" if self.remote else f"{busy} busy workers, "
        needed = f"{self.cores_needed} needed: {workers}{learners}1 environment loop"
        yield from ("", f"cores     {needed}; {self.cores} here")
        if self.loop_ms:
            parts = {"release": self.release_ms, "environment step": self.step_ms}
            shown = ", ".join(f"{name} {each['p99']:.3g} ms" for name, each in parts.items() if each is not None)
            yield f"loop      {shown} (p99); a frame has {1000 / self.fps:.4g} ms"
        if self.fast_age is not None:
            slow = (self.enough or self.rules[-1]).mean_delay_frames
            late = "no action" if slow is None else f"{slow:.1f} frames ({slow * 1000 / self.fps:.4g} ms)"
            age = f"{self.fast_age} frames ({self.fast_age * 1000 / self.fps:.4g} ms)"
            yield f"fast path reads what is {age} old when its action lands; the slow half {late}"
        if self.memory_mb is not None:
            m = self.memory_mb
            yield (
                f"memory    {m['weights']:.0f} MB of weights in two copies, {m['workers_measured']:.0f} MB of workers "
                f"({m['workers_budget']:.0f} at most); {self.memory_gbs:.1f} GB/s are read"
            )
        if self.advice:
            yield from ("", *(f"* {sentence}" for sentence in self.advice))
        for purpose, lines in self.configuration.items():
            yield from ("", f"{purpose}:", *(f"    {line}" for line in lines))
        if self.configuration:
            yield f"\n{self._where_no_action_arrives()}"
        if (way := self.way) is not None:
            remedy, delay = way
            yield f"\nwhich way: {remedy.name} ({remedy.case})"
            yield from (f"    {line}" for line in remedy.lines(delay))
            yield f"    kept on MinAtar of the gain over random play without delay: {remedy.share}"
            yield "    the other ways, each with its table: docs/concepts/which_way.md"

    def _where_no_action_arrives(self) -> str:
        if self.positions:
            return (
                'Where no action arrives "repeat" holds the last position, after the end of a chunk too; before the '
                "first action, that of the machine's hold_action."
            )
        chunk = "" if self.chunk is None else f", and Chunk({self.chunk}, after=RampDown(10))"
        return (
            f'For a robot that takes speeds or torques write RampDown(10), not "repeat"{chunk}: it comes to rest where '
            'no action arrives. One that takes positions is held by "repeat" (--positions, positions=True).'
        )


def plan(
    latency_or_policy: Any,
    observation: Any = None,
    fps: Any = 60,
    *,
    learn_ms: float | None = None,
    cores: int | None = None,
    model_mb: float | None = None,
    memory_gbs: float = 20.0,
    workers: int | None = None,
    release: Any = None,
    step: Any = None,
    seconds: float = 60,
    seed: int = 0,
    remote: bool = False,
    fast_age: int | None = None,
    positions: bool = False,
) -> Plan:
    """Return how many workers a latency needs at a frame rate, and the fresh frames and delays that they give.

    Example:
        >>> from async_wrappers.analysis.planning import plan
        >>> found = plan(0.120, fps=60, cores=16)
        >>> found.enough.workers, found.enough.fresh_share, found.enough.mean_delay_frames
        (8, 1.0, 8.0)
        >>> found.rules[1].workers, found.rules[1].chunk_frames  # one worker that never rests, with chunks
        (1, 16)

    Args:
        latency_or_policy: A latency model, a number or a list of seconds; or, with `observation`, a policy, which is
            then measured (53 inferences). Of a policy in two halves (`async_wrappers.policy.SplitPolicy`) both are, and
            the workers are planned for ``encode`` alone.
        observation: The observation that the policy is measured on.
        fps: Frames per second.
        learn_ms: How long one update of the weights takes, in milliseconds.
        cores: Cores of the machine; None means those of this one.
        model_mb: Size of the weights, in megabytes.
        memory_gbs: Gigabytes per second that the machine reads from memory; 20 is a desktop's two channels in use.
        workers: A number of workers to forecast beside the rules'; None for none.
        release: How long the environment loop takes to release one decision of a policy with memory, core and head: a
            latency as above. The policy's own time if not given and the policy is measured.
        step: How long the environment's step takes: a latency as above.
        seconds: How long an episode lasts. At least 10,000 frames and three mean latencies are simulated.
        seed: Of the simulated latencies.
        remote: Whether the workers are on another machine (`async_wrappers.live.remote`), whose cores are not counted;
            the latency is then that of a round trip.
        fast_age: How many frames old the observation is that a fast path reads at release; the policy's own if not
            given and the policy is measured.
        positions: Whether the machine takes positions: then the last one is held where no action arrives.

    Returns:
        Forecasts for each rule, the number of workers that is enough, and advice.

    Raises:
        ValueError: An argument out of range, a policy without an observation, or a latency above 100,000 frames.
    """
    cores = whole("cores", posix.cores() if cores is None else cores, 1)
    if learn_ms is not None:
        positive("learn_ms", learn_ms, "milliseconds")
    if model_mb is not None:
        positive("model_mb", model_mb, "megabytes")
    positive("memory_gbs", memory_gbs, "gigabytes per second")
    if workers is not None:
        workers = worker_count(workers)
    latency, measured = _latencies_of(latency_or_policy, observation)
    release_ms = _summary_ms("release", measured if release is None else release)
    if fast_age is None and measured is not None:
        fast_age = getattr(latency_or_policy, "fast_age", None)
    if fast_age is not None:
        fast_age = whole("fast_age", fast_age, 0, unit="frames")
        refuse("a planned fast path", {"release": release_ms, "fast_age": fast_age})
    step_ms = _summary_ms("step", step)
    world = Forecaster(latency, fps, seconds, seed)
    rules = tuple(world.rules())
    playout, enough = world.enough()
    remote = flag("remote", remote)
    slots = tuple(world.slots(1 if remote else cores))
    chosen = enough or rules[-1]
    if workers is not None:
        rules = (*rules, world.forecast("given", workers, "tickets"))
    learners = None if learn_ms is None else max(1, world.clock.frame_at(round(learn_ms * 1e6)))
    memory_mb = None
    if model_mb is not None:
        # Of processes that read two copies of the weights in shared memory; learners come on top.
        private, budget = (chosen.workers * each for each in (MEASURED_WORKER_MB, BUDGET_WORKER_MB))
        memory_mb = {"weights": 2.0 * model_mb, "workers_measured": private, "workers_budget": budget}
    found = Plan(
        latency=repr(world.latency),
        latency_ms={name: value * 1000 for name, value in world.draws.items()},
        fps=float(world.clock.fps),
        seconds=float(seconds),
        simulated_frames=world.frames,
        rules=rules,
        enough=enough,
        playout=playout,
        slots=slots,
        learners=learners,
        cores=cores,
        cores_needed=(0 if remote else math.ceil(chosen.busy_workers - 1e-9)) + (learners or 0) + 1,
        memory_mb=memory_mb,
        memory_gbs=None if model_mb is None else chosen.inferences_per_second * model_mb / 1000,
        release_ms=release_ms,
        step_ms=step_ms,
        advice=(),
        remote=remote,
        fast_age=fast_age,
        positions=flag("positions", positions),
    )
    return replace(found, advice=tuple(_advice(found, chosen, memory_gbs)))


def _latencies_of(latency_or_policy: Any, observation: Any) -> tuple[Latency, Latency | None]:
    """Return the latency to plan workers for, and that of a release, which only a policy in two halves has."""
    if observation is not None:
        if hasattr(latency_or_policy, "encode") and hasattr(latency_or_policy, "release"):
            return _halves(latency_or_policy, observation)
        return measure(latency_or_policy, observation), None
    is_policy = callable(latency_or_policy) or hasattr(latency_or_policy, "act")
    if is_policy and not (isinstance(latency_or_policy, Latency) and not isinstance(latency_or_policy, type)):
        raise ValueError(
            f"observation must be given for a policy to be measured on, got None with {latency_or_policy!r}"
        )
    return as_latency(latency_or_policy), None


def _halves(policy: Any, observation: Any) -> tuple[Latency, Latency]:
    """Return the latencies of ``encode`` and of ``release``, whose state goes on from call to call."""
    fresh = None if getattr(policy, "fast_age", None) is None else observation
    decision, memory = Decision(0, 0, 0, eval_mode=True), Memory(None, 0.0, True, None)

    def release(features: Any) -> None:
        nonlocal memory
        answer = policy.release(features, memory._replace(fresh=fresh), decision)
        memory = Memory(answer.action, 0.0, False, answer.state)

    encode = measure(lambda observation: policy.encode(observation, decision), observation)
    return encode, measure(release, policy.encode(observation, decision))


def _summary_ms(name: str, latency: Any) -> dict[str, float] | None:
    if latency is None:
        return None
    try:
        return {key: value * 1000 for key, value in summary(latency).items()}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _advice(found: Plan, chosen: Forecast, memory_gbs: float) -> Iterator[str]:
    """Yield advice on the time of an episode's first action, on the machine, and on the rules."""
    if chosen.workers == 1:
        yield "The latency is under a frame: one worker suffices, and staggering buys nothing."
    earliest = min((rule.first_action_s for rule in found.rules if rule.first_action_s is not None), default=None)
    if earliest is None or earliest >= found.seconds:
        when = "" if earliest is None else f": the earliest comes after {earliest:.4g} s"
        yield f"No action lands within {found.seconds:g} s{when}. Only a faster policy helps."
    elif chosen.first_action_s is None or chosen.first_action_s >= found.seconds:
        yield (
            f"Within {found.seconds:g} s no action of tickets workers lands, whose playout is the latency's "
            f"{found.playout}: the earliest of any rule comes after {earliest:.4g} s."
        )
    yield from _advice_on_the_machine(found, chosen, memory_gbs)
    yield from _advice_on_the_rules(found, chosen)
    if chosen.playout_frames and chosen.playout_frames > 1:
        yield (
            f"Tell the policy its last {chosen.playout_frames} actions, or it cannot know what became of its "
            f"observation: action_window = {chosen.playout_frames} (V-trace, PPO, R2D2, SAC), or "
            f"CommittedActions(env, {chosen.playout_frames}, known=False) around the delay."
        )


def _advice_on_the_machine(found: Plan, chosen: Forecast, memory_gbs: float) -> Iterator[str]:
    if found.remote:
        yield (
            f"The other machine must infer {chosen.busy_workers:.1f} at a time; the latency must be that of a round "
            "trip while it does."
        )
    if not found.remote and found.cores < chosen.busy_workers:
        yield (
            f"This cannot work on {found.cores} {'core' if found.cores == 1 else 'cores'}: {chosen.busy_workers:.1f} "
            "workers are busy at a time, and more of them only slow each other down. Make the policy faster, let "
            "frames last longer, or add machines."
        )
        each = next((row for row in found.slots if row.workers == found.cores), None)
        if each is not None and each.even.fresh_share > each.whole.fresh_share + 0.01:
            yield (
                f"One worker per core gives an action on {each.even.fresh_share:.1%} of the frames with slot='even', "
                f"on {each.whole.fresh_share:.1%} with whole slots."
            )
    elif found.cores < found.cores_needed:
        yield (
            f"The loop and the learners share cores{'' if found.remote else ' with workers'}: {found.cores_needed} are "
            f"needed, {found.cores} here."
        )
    # The environment loop.
    if (frame_ms := 1000 / found.fps) < found.loop_ms:
        parts = {"release": found.release_ms, "step": found.step_ms}
        named = " and ".join(f"{name} ({each['p99']:.3g} ms)" for name, each in parts.items() if each is not None)
        yield (
            f"The loop's {named} do not fit into a frame of {frame_ms:.4g} ms: take a smaller core and head, a faster "
            "environment, or longer frames."
        )
    if found.fast_age is not None and found.release_ms is not None:
        takes = math.floor(found.release_ms["p99"] / frame_ms)
        if takes > found.fast_age:
            yield (
                f"The fast path takes {found.release_ms['p99']:.3g} ms, which is {takes} frames, and says that it "
                f"reads what is {found.fast_age} old: take a smaller one, or fast_age = {takes}."
            )
    # Memory.
    if found.memory_gbs is not None and found.memory_gbs > memory_gbs:
        yield (
            f"Reading the weights takes {found.memory_gbs:.3g} GB/s where about {memory_gbs:g} are typical: unless "
            "they stay in a cache, each inference slows down as workers are added. Measure with all of them running."
        )


def _advice_on_the_rules(found: Plan, chosen: Forecast) -> Iterator[str]:
    p95, due = math.ceil(found.latency_ms["p95"] * found.fps / 1000 - 1e-6), chosen.playout_frames or 0
    if found.enough is None:
        yield f"No number of workers gives {FRESH:.0%} fresh frames, whatever the playout."
    elif found.playout != PLAYOUTS[0]:
        yield (
            f"At playout 'p99' no number of workers gives {FRESH:.0%} fresh frames, as up to 1 % of the actions come "
            f"late: use playout {found.playout!r}."
        )
    if due >= 1.5 * p95 > 0:
        yield (
            f"A few slow inferences set the delay: playout 'p95' is {p95} frames instead of {due}, "
            "but then more actions come late."
        )
    if found.chunk is not None:
        one = next(row for row in found.rules if row.rule == "never_resting")
        yield (
            f"One worker that never rests fills every frame with chunks of {one.chunk_frames} actions, from "
            f"{one.first_action_s:.3g} s on: default_action=Chunk({one.chunk_frames}), stagger='none'. "
            "That is the largest delay + interval of the simulation; 99 % of the decisions need at most "
            f"{one.chunk_p99_frames}."
        )
    learned, known = (next(r for r in found.rules if r.rule == name) for name in ("max_time", "max_time_known"))
    if known.fresh_share > learned.fresh_share + 0.05:
        yield (
            f"max_time loses its even spacing while it learns the maximum ({learned.fresh_share:.1%} fresh); "
            f"given as initial_latency={found.latency_ms['max'] / 1000:.4g}, it keeps it ({known.fresh_share:.1%})."
        )


_HEADS = ("rule", "workers", "fresh", "delay (p99) frames", "ms", "dropped/s", "late/s", "busy", "chunk (p99)")
_HEADER = "rule             workers   fresh   delay (p99) frames       ms   dropped/s   late/s      busy   chunk (p99)"


def _cells(row: Forecast) -> tuple[str, ...]:
    """Return the words of a forecast's line, in the order of `_HEADS`."""
    delay = "none" if row.mean_delay_frames is None else f"{row.mean_delay_frames:.1f} ({row.p99_delay_frames:.0f})"
    ms = "" if row.mean_delay_ms is None else f"{row.mean_delay_ms:.0f}"
    rates = (f"{row.dropped_per_second:.2f}", f"{row.late_per_second:.2f}", f"{row.busy_workers:.1f}")
    chunk = "none" if row.chunk_frames is None else f"{row.chunk_frames} ({row.chunk_p99_frames})"
    return row.rule, f"{row.workers}", f"{row.fresh_share:.3f}", delay, ms, *rates, chunk


def _line(row: Forecast) -> str:
    rule, workers, fresh, delay, ms, dropped, late, busy, chunk = _cells(row)
    return f"{rule:<17}{workers:>7}{fresh:>8}{delay:>21}{ms:>9}{dropped:>12}{late:>9}{busy:>10}{chunk:>14}"


_SLOTS_HEADER = "fewer workers          most   whole slots (delay)   chunk   slot='even' (delay)   chunk"


def _slots_line(row: Slots) -> str:
    whole_slots, even = (
        "none" if each.mean_delay_frames is None else f"{each.fresh_share:.3f} ({each.mean_delay_frames:.1f})"
        for each in (row.whole, row.even)
    )
    chunks = ("none" if each.chunk_frames is None else f"{each.chunk_frames}" for each in (row.whole, row.even))
    whole_chunk, even_chunk = chunks
    return f"{row.workers:>13}{row.sustained:>14.3f}{whole_slots:>22}{whole_chunk:>8}{even:>22}{even_chunk:>8}"
