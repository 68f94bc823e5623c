"""The books of workers on Ray, without Ray: answers, deaths, hangs, exceptions, weights, refusals."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest

from async_wrappers import AsyncRunner, RayWorkers
from async_wrappers.fleet import waits
from async_wrappers.fleet.block import Block
from async_wrappers.live import RunFailed
from async_wrappers.live.cluster import ray_transport
from async_wrappers.live.cluster.ray_transport import RayTransport
from async_wrappers.live.cluster.ray_worker import RayWorker, WorkerJob, versions
from async_wrappers.live.inference.transport import Ready
from async_wrappers.live.memory.exchange import Fate, Finished, ticket_of
from async_wrappers.live.memory.layout import SharedLayout
from async_wrappers.live.memory.weights import WeightsBoard, WeightsLayout
from async_wrappers.live.report.journey import parts_ms
from async_wrappers.live.run_spec import LoopConfig
from async_wrappers.schedule.stagger import NoStagger
from tests.worlds.ray_fake import FakeRay

OBSERVATIONS, ACTIONS = gym.spaces.Box(-1000, 1000, (2,), np.int64), gym.spaces.Discrete(100)
SECOND = 1_000_000_000


class Adding:
    """Adds its weights to the observation; raises at negative ones."""

    def __init__(self) -> None:
        self._number, self.made = 0, True

    def load_weights(self, weights: Any, version: int) -> None:
        self._number = int(weights["number"][0])

    def act(self, observation: Any, decision: Any) -> int:
        if observation[0] < 0:
            raise ArithmeticError("below zero")
        return int(observation.sum()) + self._number


class World:
    """A transport to a Ray that is none."""

    def __init__(self, ray: FakeRay, board: WeightsBoard | None = None, make_policy: Any = Adding, **overdue: Any):
        weights = None if board is None else board.layout
        layout = SharedLayout(OBSERVATIONS, ACTIONS, 2, 0, 8, weights)
        config = LoopConfig(2, 50, NoStagger(), overdue=overdue.get("overdue", (10.0, SECOND)))
        self.ray, self.warnings, self._number = ray, [], 0
        given = RayWorkers(num_cpus=2, resources={"arms": 1})
        payload = cloudpickle.dumps(make_policy)
        self.transport = RayTransport(layout, config, given, self.warnings.append, payload, board)

    def until(self, wanted: Callable[[list[Any]], bool]) -> list[Any]:
        """Return the events until some are there."""
        events: list[Any] = []
        deadline = time.monotonic() + 60
        while not wanted(events):
            assert time.monotonic() < deadline, events
            events += self.transport.collect(time.monotonic_ns() + SECOND // 100)
        return events

    def up(self) -> World:
        """Wait until both workers are."""
        self.until(lambda events: len(events) == 2)
        return self

    def start(self, worker: int, *shown: int) -> None:
        self._number += 1
        self.transport.show(self._number, np.array(shown))
        self.transport.start(worker, ticket_of(0, self._number, 0, self._number, self._number, False))

    def ask(self, worker: int, *shown: int) -> Finished:
        """Return what comes of a ticket."""
        self.start(worker, *shown)
        [*_, finished] = self.until(lambda events: any(isinstance(event, Finished) for event in events))
        assert isinstance(finished, Finished)
        return finished

    def back(self, worker: int) -> None:
        self.until(lambda events: Ready(worker) in events)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """Ray, and transports that are closed at the end."""
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(ray_transport, "connect_to_ray", lambda *address, **given: None)
    monkeypatch.setattr(ray_transport, "disconnect_from_ray", lambda: None)
    monkeypatch.setattr(waits, "PAUSES", (0,) * 5)
    made: list[RayTransport] = []
    begin = RayTransport.__init__

    def noted(self: RayTransport, *arguments: Any) -> None:
        begin(self, *arguments)
        made.append(self)

    monkeypatch.setattr(RayTransport, "__init__", noted)
    yield fake
    for transport in made:
        transport.close()


def test_a_ticket_is_answered_in_the_loops_time_and_the_parts_of_its_way_are_told(ray: FakeRay) -> None:
    world = World(ray).up()
    begin = time.monotonic_ns()
    finished = world.ask(1, 3, 4)
    assert (finished.worker, finished.number, finished.fate, finished.action) == (1, 1, Fate.DONE, 7)
    assert begin <= finished.began <= finished.ended <= time.monotonic_ns()
    assert finished.trip is not None and (finished.trip.sent, finished.trip.here) == (finished.began, finished.ended)
    assert parts_ms([finished.trip])["round_trip"]["p50"] == pytest.approx((finished.ended - finished.began) / 1e6)
    assert ray.options == {
        **{"num_cpus": 2, "num_gpus": 0, "resources": {"arms": 1}, "max_restarts": 0, "max_task_retries": 0}
    }


def test_an_answer_that_is_no_action_is_refused_with_its_sentence(ray: FakeRay) -> None:
    finished = World(ray).up().ask(0, 300, 1)
    assert finished.fate == Fate.REFUSED
    assert "worker 0 answered" in finished.action and "301" in finished.action


def test_a_dead_actor_is_a_lost_worker_told_once_and_another_takes_its_place(ray: FakeRay) -> None:
    world = World(ray).up()
    for death in range(3):
        ray.actors[-1 if death else 0].died = "the actor died unexpectedly\nand more"
        lost = world.ask(0, 1, 1)
        assert (lost.fate, lost.number, lost.worker) == (Fate.LOST, -1, 0)
        world.start(0, 1, 1)  # as the loop may before it hears of it: dropped
        world.back(0)
        assert world.ask(0, 2, 2).action == 4
    assert world.transport.take_reconnections() == 3
    assert world.transport.take_reconnections() == 0
    assert len(ray.actors) == 5 and ray.actors[0] in ray.killed
    assert world.warnings == [
        "worker 0 on Ray was lost: the actor died unexpectedly; it is started again, and frames go on without it"
    ]


def test_an_actor_that_hangs_is_ended_and_its_late_answer_dropped(ray: FakeRay) -> None:
    world = World(ray, overdue=(1.0, SECOND // 20)).up()
    assert world.ask(0, 1, 1).action == 2
    ray.actors[0].silent = True
    assert world.ask(0, 1, 1).fate == Fate.LOST
    world.back(0)
    assert ray.killed == [ray.actors[0]]
    assert "worker 0 on Ray has not answered for 0." in world.warnings[0]
    assert world.ask(0, 5, 5).action == 10


def test_the_loop_goes_on_while_a_call_of_ray_does_not_return(ray: FakeRay) -> None:
    world = World(ray).up()
    ray.gate.clear()
    begin = time.monotonic_ns()
    world.start(0, 1, 2)
    world.start(1, 3, 4)
    assert world.transport.collect(time.monotonic_ns() + SECOND // 50) == []
    assert time.monotonic_ns() - begin < SECOND  # the gate opens by itself after ten
    ray.gate.set()
    answers = world.until(lambda events: len(events) == 2)
    assert {answer.worker: answer.action for answer in answers} == {0: 3, 1: 7}


def test_a_policy_that_raises_is_made_anew_in_its_actor_until_it_does_nothing_else(ray: FakeRay) -> None:
    world = World(ray).up()
    for _ in range(5):
        assert world.ask(1, -1, 0).fate == Fate.LOST
        world.back(1)
    assert world.ask(1, 1, 0).action == 1
    for _ in range(5):
        assert world.ask(1, -1, 0).fate == Fate.LOST
        world.back(1)
    with pytest.raises(ArithmeticError, match="below zero") as error:
        world.ask(1, -1, 0)
    assert error.value.__notes__[0].startswith("raised in worker 1 on Ray; its traceback:\nTraceback of")
    assert len(ray.actors) == 2 and not ray.killed
    assert "worker 1 on Ray raised ArithmeticError: below zero; it is started again" in world.warnings[0]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (SystemExit("no licence"), "raised SystemExit('no licence')"),
        (SystemExit(0), "raised SystemExit(0)"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt()"),
    ],
)
def test_a_policy_that_ends_its_program_is_a_lost_worker_told_in_its_words(
    ray: FakeRay, ends: BaseException, words: str
) -> None:
    class Ends(Adding):
        def act(self, observation: Any, decision: Any) -> int:
            if observation[0] < 0:
                raise ends
            return super().act(observation, decision)

    world = World(ray, make_policy=Ends).up()
    assert world.ask(0, -1, 0).fate == Fate.LOST
    world.back(0)
    assert world.ask(0, 1, 1).action == 2
    assert world.transport.take_reconnections() == 1
    assert world.warnings == [f"worker 0 on Ray {words}; it is started again, and frames go on without it"]


def test_a_policy_that_ends_its_program_as_it_is_made_ends_the_run_in_its_words(ray: FakeRay) -> None:
    def ends() -> Any:
        sys.exit("no licence")

    with pytest.raises(RunFailed, match=r"^worker . on Ray raised SystemExit\('no licence'\)$"):
        World(ray, make_policy=ends).up()


def test_a_cluster_that_does_not_answer_is_left_at_the_end(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, has_left = threading.Event(), threading.Event()

    def disconnect() -> None:
        answers.wait(60)
        has_left.set()

    monkeypatch.setattr(ray_transport, "disconnect_from_ray", disconnect)
    monkeypatch.setattr(ray_transport, "_ENDING", 0.01)
    World(ray).up().transport.close()
    assert not has_left.is_set()
    answers.set()
    assert has_left.wait(60)


def test_actors_that_die_before_they_have_begun_end_the_run_after_six(ray: FakeRay) -> None:
    ray.born_dead = "no memory"
    with pytest.raises(RunFailed, match=r"^worker . on Ray was lost: no memory; it was the 6th time in a row$"):
        World(ray).up()
    assert len(ray.actors) <= 12


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            "The actor died: ModuleNotFoundError: No module named 'async_wrappers'",
            "has no module 'async_wrappers': ",
        ),
        ("ModuleNotFoundError: No module named 'mine'", "has no module 'mine': install it on all nodes"),
    ],
)
def test_nodes_without_a_module_are_a_sentence_at_once(ray: FakeRay, reason: str, sentence: str) -> None:
    ray.born_dead = reason
    with pytest.raises(RunFailed, match=f"^worker . on Ray {sentence}"):
        World(ray).up()
    assert len(ray.actors) <= 2


def test_what_make_policy_raises_is_raised_at_once(ray: FakeRay) -> None:
    def fails() -> Any:
        raise LookupError("no weights here")

    with pytest.raises(LookupError, match="no weights here"):
        World(ray, make_policy=fails).up()


def test_weights_are_put_once_per_version_and_a_new_actor_gets_those_that_are_there(ray: FakeRay) -> None:
    weights = {"number": np.array([10.0])}
    layout = WeightsLayout.of(weights)
    block = Block(shared=False)
    block.resize(WeightsBoard.size(layout, 2))
    board = WeightsBoard(block, layout, 2)
    board.publish(weights, updates=3)
    world = World(ray, board).up()
    puts = len(ray.puts)  # the job
    told = [world.ask(worker, 1, 1) for worker in (0, 1, 0)]
    assert [(each.action, each.version, each.updates) for each in told] == [(12, 1, 3)] * 3
    assert len(ray.puts) == puts + 1
    board.publish({"number": np.array([20.0])}, updates=8)
    board.publish({"number": np.array([30.0])}, updates=9)  # nobody has needed the one before
    told = [world.ask(worker, 1, 1) for worker in (1, 0)]
    assert [(each.action, each.version, each.updates) for each in told] == [(32, 3, 9)] * 2
    assert len(ray.puts) == puts + 2
    ray.actors[0].died = "gone"
    world.ask(0, 1, 1)
    world.back(0)
    assert world.ask(0, 1, 1).action == 32
    assert len(ray.puts) == puts + 2


def test_the_trouble_is_what_has_no_room(ray: FakeRay) -> None:
    world = World(ray).up()
    assert world.transport.trouble == (
        "Ray has not started them: each asks for num_cpus=2 and num_gpus=0 and {'arms': 1.0}, and of the cluster "
        "4 CPUs and 0 GPUs are free"
    )
    ray.actors[0].died = "gone"
    world.ask(0, 1, 1)
    assert world.transport.trouble == "worker 0 on Ray was lost: gone"


def job(make_policy: Any, weights: WeightsLayout | None = None) -> bytes:
    return cloudpickle.dumps(WorkerJob(cloudpickle.dumps(make_policy), OBSERVATIONS, ACTIONS, None, False, weights, 1))


def test_a_node_with_other_versions_refuses_before_anything_is_unpickled() -> None:
    for name, other in (("async_wrappers", "0.0.1"), ("Python", "2.7")):
        said = RayWorker().begin(0, {**versions(), name: other}, b"no pickle")
        assert said == f"has {name} {versions()[name]}, and the environment loop {other}: " + (
            "install the same version on all nodes"
        )


def test_a_policy_that_cannot_learn_is_refused_where_a_learner_runs() -> None:
    layout = WeightsLayout.of({"number": np.zeros(1)})
    with pytest.raises(ValueError, match=r"a policy needs load_weights\(weights, version\) where a learner runs, got"):
        RayWorker().begin(0, versions(), job(lambda: lambda observation: 0, layout))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"address": "ray://head:10001"}, r"address must be that of a cluster's head, such as '10.0.0.1:6379', .* got"),
        ({"num_cpus": -1}, "num_cpus must be a number >= 0, got -1"),
        ({"num_gpus": "all"}, "num_gpus must be a number >= 0, got 'all'"),
        ({"resources": ["arms"]}, r"resources must be a dict of names and amounts, .* got \['arms'\]"),
        ({"resources": {"arms": -2}}, r"resources\['arms'\] must be a number >= 0, got -2"),
        ({"runtime_env": "here"}, "runtime_env must be a dict, .* got 'here'"),
    ],
)
def test_arguments_are_refused_with_their_names(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        RayWorkers(**arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"workers": 0}, r"workers must be >= 1 with backend='ray', got 0"),
        ({"pin": True}, r"pin must be False with backend='ray', got True"),
        (
            {"make_policy": "tcp://h:1"},
            "make_policy must be a function, called on the workers' nodes, with back",
        ),
        (
            {"make_learner": Adding, "learner_latency": 0.1},
            "learner_latency=0.1 needs backend='virtual', got backend='ray'",
        ),
    ],
)
def test_what_does_not_go_with_ray_is_refused_by_the_constructor(arguments: dict[str, Any], sentence: str) -> None:
    given = {"make_policy": Adding, "workers": 2, "fps": 50, "backend": "ray", **arguments}
    with pytest.raises(ValueError, match=f"^{sentence}"):
        AsyncRunner(lambda: None, **given)


def test_a_machine_without_ray_is_told_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    runner = AsyncRunner(lambda: gym.make("CartPole-v1"), Adding, 2, 50, backend="ray")
    with pytest.raises(gym.error.DependencyNotInstalled, match=r"backend='ray' needs the extra 'ray' .*: pip install"):
        runner.run(frames=5)
