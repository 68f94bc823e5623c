"""Functions of tensors that graphs replay: on a CPU they are called on the same buffers, and so they are here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from async_wrappers.agents.acting.decisions import Memories
from async_wrappers.agents.families.actor_critic.impact import Impact
from async_wrappers.agents.families.actor_critic.ppo import PPO
from async_wrappers.agents.families.actor_critic.sac import SAC
from async_wrappers.agents.families.actor_critic.terms import KLMask, PolicyCloning, TargetEntropy, ValueCloning
from async_wrappers.agents.families.actor_critic.vtrace import VTrace
from async_wrappers.agents.learning.captured import Captured, GraphWarning, HostReads, _buffer_like, copies
from async_wrappers.agents.learning.diverged import DivergedError
from async_wrappers.agents.learning.making import make_vector_learner
from async_wrappers.agents.losses.loss import LossOutput, create_optimizer
from async_wrappers.agents.networks.policy_value import create_policy_value_network
from async_wrappers.agents.networks.q_network import create_network
from async_wrappers.agents.networks.sequence_network import create_actor_critic, create_recurrent_q_network
from async_wrappers.agents.networks.torsos import MLPTorso
from async_wrappers.agents.play.many.vector_agent import VectorAgent
from async_wrappers.agents.registry import AGENTS
from async_wrappers.agents.spaces.compute import Compute, drawn
from async_wrappers.agents.teaching.student import with_teacher
from async_wrappers.policy import Decision, Memory
from benchmarks.gpu.cases import CASES as OF_THE_PAPERS
from benchmarks.gpu.cases import GAME, ROBOT, VECTOR, Case, pair
from tests.worlds.plain_data import assert_identical

pytestmark = pytest.mark.filterwarnings("ignore::async_wrappers.agents.families.value_based.c51.SupportWarning")
CPU = Compute("cpu", graphs=True)
UPDATES = 6  # three are eager, the next one is the capture


# The object.


def captured(function: Callable[..., Any], **arguments: Any) -> Captured:
    return Captured(function, CPU, "the sum", **arguments)


def test_a_run_has_the_arguments_draws_and_numbers_of_its_own() -> None:
    numbers = iter(range(100))

    def function(given: Any, rng: Any, host: Any) -> Any:
        noise = drawn(rng, lambda rng: rng.random(2, np.float32), CPU.tensor)
        steps = drawn(rng, lambda rng: rng.integers(9, size=2), CPU.tensor)
        again = drawn(rng, lambda rng: rng.standard_normal((1, 2), np.float32), CPU.tensor)
        return {"sum": given["x"] + noise + steps + again * host.now(lambda: next(numbers))}

    run, ours, theirs = captured(function), np.random.default_rng(3), np.random.default_rng(3)
    for call in range(UPDATES):
        x = torch.full((2,), float(call))
        expected = x + torch.from_numpy(theirs.random(2, np.float32)) + torch.from_numpy(theirs.integers(9, size=2))
        expected = expected + torch.from_numpy(theirs.standard_normal((1, 2), np.float32)) * call
        assert torch.equal(run({"x": x}, ours)["sum"], expected)
    assert not run.eager


def test_results_stay_where_they_are_and_copies_do_not_change() -> None:
    run = captured(lambda given, rng, host: {"twice": 2 * given["x"]})
    results = [run({"x": torch.ones(3) * call}) for call in range(UPDATES)]
    kept = copies(results[-1])
    assert results[3]["twice"].data_ptr() == results[5]["twice"].data_ptr()
    run({"x": torch.zeros(3)})
    assert results[5]["twice"].tolist() == [0, 0, 0] and kept["twice"].tolist() == [10, 10, 10]


def test_arguments_are_not_written_into_unless_they_are_adopted() -> None:
    def function(given: Any, rng: Any, host: Any) -> Any:
        return {"x": given["x"].add_(1)}

    for adopts, left in ((False, 0.0), (True, 1.0)):
        x, run = torch.zeros(1), captured(function, adopts=adopts)
        for _ in range(UPDATES):
            x.zero_()
            assert run({"x": x})["x"].item() == 1
        assert x.item() == left


def test_each_shape_and_each_outcome_of_a_choice_has_a_graph_of_its_own() -> None:
    negates = False

    def function(given: Any, rng: Any, host: Any) -> Any:
        return {"x": -given["x"] if host.whether(lambda: negates) else 1 * given["x"]}

    run = captured(function)
    for call in range(4 * UPDATES):
        negates, size = call % 2 == 1, 1 + call // 2 % 2
        assert torch.equal(run({"x": torch.ones(size)})["x"], torch.ones(size) * (-1 if negates else 1))
    assert sum(len(graphs) for graphs in run._graphs.values()) == 4


def test_only_shapes_that_occur_often_have_a_graph() -> None:
    run = captured(lambda given, rng, host: {"x": given["x"] * 2}, often=2)
    for size in (1, 2, 3, 2, 2):
        run({"x": torch.ones(size)})
    assert len(run._graphs) == 1


def test_arguments_of_endless_kinds_are_not_counted_for_ever() -> None:
    run = captured(lambda given, rng, host: {"x": given["x"] * given["rate"]})
    for update in range(30):
        assert run({"x": torch.ones(1), "rate": 1 / (1 + update)})["x"].item() == pytest.approx(1 / (1 + update))
    assert len(run._graphs) + len(run._runs) < 20


def test_another_precision_has_a_graph_of_its_own() -> None:
    compute = Compute("cpu", bf16="auto", graphs=True)
    run = Captured(lambda given, rng, host: {"x": given["x"] * (2 if compute.bf16 else 3)}, compute, "the product")
    for bf16 in (False, True, False):
        compute.keep_precision({"bf16": bf16})
        for _ in range(UPDATES):
            assert run({"x": torch.ones(1)})["x"].item() == (2 if bf16 else 3)
    assert len(run._graphs) == 2


def reads(x: Tensor) -> Tensor:
    return x * x.sum().item()


def branches(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x


def selects(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def is_made_on_the_host(x: Tensor) -> Tensor:
    return x + torch.tensor([1.0, 2.0])


@pytest.mark.parametrize("function", [reads, branches, selects, is_made_on_the_host])
def test_what_cannot_be_captured_stays_eager_and_one_warning_names_its_line(function: Callable[..., Any]) -> None:
    run, x = captured(lambda given, rng, host: {"x": function(given["x"])}), torch.ones(2)
    line = function.__code__.co_firstlineno + 1
    with pytest.warns(GraphWarning, match=rf"^the sum is computed without a CUDA graph, since \S*captured.py:{line} "):
        assert torch.equal(run({"x": x})["x"], function(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(run({"x": 2 * x})["x"], function(2 * x))
    assert run.eager


@pytest.mark.parametrize(
    "function", [lambda x: x * torch.ones(()), lambda x: x.copy_(torch.ones(2)), lambda x: torch.ones(2).to(x.device)]
)
def test_what_reads_the_hosts_memory_is_seen(function: Callable[..., Any]) -> None:
    with HostReads() as watched:
        function(torch.ones(2, device="meta"))
    assert len(watched.seen) == 1
    assert "host" in watched.seen[0]


def test_a_function_that_draws_by_itself_stays_eager_with_the_same_draws() -> None:
    def function(given: Any, rng: Any, host: Any) -> Any:
        first = drawn(rng, lambda rng: rng.random(2), CPU.tensor)
        return {"x": first + torch.from_numpy(rng.random(2))}

    run, rng = captured(function), np.random.default_rng(1)
    with pytest.warns(GraphWarning, match=r"test_captured.py:\d+ calls rng.random itself, in the place of"):
        found = run({}, rng)["x"].clone()
    again = run({}, rng)["x"]
    theirs = np.random.default_rng(1)
    for each in (found, again):
        assert torch.equal(each, torch.from_numpy(theirs.random(2)) + torch.from_numpy(theirs.random(2)))


def test_an_error_of_the_function_leaves_nothing_behind() -> None:
    broken = True

    def function(given: Any, rng: Any, host: Any) -> Any:
        noise = drawn(rng, lambda rng: rng.random(1), CPU.tensor)
        if broken:
            raise ValueError("not now")
        return {"x": noise}

    run, rng = captured(function), np.random.default_rng(0)
    with pytest.raises(ValueError, match="not now"):
        run({}, rng)
    broken = False
    theirs = np.random.default_rng(0)
    theirs.random(1)
    for _ in range(UPDATES):
        assert run({}, rng)["x"].item() == theirs.random(1).item()


class Device:
    """Stands for a GPU's streams and graphs: a capture runs the function, and a replay what `replays` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, replays: Callable[[], None]) -> None:
        self.captures = 0
        self.replay = replays
        stream = SimpleNamespace(wait_stream=lambda other: None)
        for name, value in {
            "current_stream": lambda device: stream,
            "stream": lambda stream: nullcontext(),
            "Stream": lambda device: stream,
            "CUDAGraph": lambda: self,
            "graph": self._capture,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(Captured, "_graph_of", self._on_gpu(Captured._graph_of))

    @contextmanager
    def _capture(self, graph: Any, *, stream: Any, capture_error_mode: str) -> Iterator[None]:
        assert graph is self and stream is not None and capture_error_mode == "thread_local"
        self.captures += 1
        yield

    def _on_gpu(self, graph_of: Any) -> Any:
        def found(run: Captured, kind: Any) -> Any:
            graph = graph_of(run, kind)
            graph._on_gpu, graph._stream = True, graph._stream or torch.cuda.Stream("cuda")
            return graph

        return found


def test_on_a_gpu_the_fourth_run_is_captured_and_all_further_ones_are_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []

    def function(given: Any, rng: Any, host: Any) -> Any:
        noise = drawn(rng, lambda rng: rng.random(1), CPU.tensor)
        runs.append((given["x"], noise, {"sum": given["x"] + noise}))
        return runs[-1][2]

    def replays() -> None:
        x, noise, results = runs[-1]
        results["sum"].copy_(x + noise)

    device, run = Device(monkeypatch, replays), captured(function)
    ours, theirs = np.random.default_rng(2), np.random.default_rng(2)
    for call in range(8):
        assert run({"x": torch.full((1,), float(call))}, ours)["sum"].item() == call + theirs.random(1).item()
    assert device.captures == 1 and len(runs) == 4


def test_a_capture_that_fails_leaves_the_eager_path_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, lambda: None)

    def function(given: Any, rng: Any, host: Any) -> Any:
        if device.captures and not run.eager:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        return {"sum": given["x"] + drawn(rng, lambda rng: rng.random(1), CPU.tensor)}

    run, ours, theirs = captured(function), np.random.default_rng(2), np.random.default_rng(2)
    for call in range(6):
        with (
            pytest.warns(GraphWarning, match=r"captured.py:\d+ \(operation not permitted when stream is capturing\)")
            if (call == 3)
            else nullcontext()
        ):
            assert run({"x": torch.full((1,), float(call))}, ours)["sum"].item() == call + theirs.random(1).item()


def test_a_capture_that_ends_in_another_error_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    device, run = Device(monkeypatch, lambda: None), captured(lambda given, rng, host: {"x": function(given["x"])})

    def function(x: Tensor) -> Tensor:
        if device.captures == 1:
            raise ValueError("not now")
        return 2 * x

    for call in range(5):
        with pytest.raises(ValueError, match="not now") if call == 3 else nullcontext():
            assert run({"x": torch.ones(1)})["x"].item() == 2
    assert device.captures == 2


# The updates of every family.

_TINY = partial(create_network, torso=lambda shape: MLPTorso(shape, (8,)))
_ACTOR: Any = partial(create_actor_critic, torso=lambda shape: MLPTorso(shape, (8,)))
_MEMORY: Any = partial(create_recurrent_q_network, torso=lambda shape: MLPTorso(shape, (8,)), core="gru")
_REPLAYED: Mapping[str, Any] = {"replay_capacity": 500, "min_replay_history": 20, "batch_size": 8, "stack_size": 2}
_VALUES: Mapping[str, Any] = {**_REPLAYED, "network": _TINY, "target_update_period": 8}
_ATOMS: Mapping[str, Any] = {**_VALUES, "num_atoms": 7, "vmax": 3.0}
_TAUS: Mapping[str, Any] = {"num_tau_samples": 4, "num_tau_prime_samples": 3, "quantile_embedding_dim": 6}
_UNROLLS: Mapping[str, Any] = {"stack_size": 2, "unroll_length": 5, "batch_size": 4, "network": _ACTOR}
_SEQUENCES: Mapping[str, Any] = {**_VALUES, "network": _MEMORY, "stack_size": 1, "burn_in": 2, "unroll_length": 4}
_TERMS = (PolicyCloning(), ValueCloning(), KLMask(), TargetEntropy(target=0.5))
_ROUND: Mapping[str, Any] = {"update_period": 32, "batch_size": 16, "num_epochs": 2}
_SMALL_SAC: Mapping[str, Any] = {**_REPLAYED, "hidden_units": 8, "stack_size": 1}
_FALLS: Mapping[str, Any] = {"learning_rate_decay": 20, "learning_rate_end": 0.1, "max_gradient_norm": 0.3}

CASES: Mapping[str, Case] = {
    "DQN": Case(AGENTS["dqn"], VECTOR, GAME, _VALUES, 2, 30),
    "DQN by priorities": Case(AGENTS["dqn"], VECTOR, GAME, {**_VALUES, "replay_scheme": "prioritized"}, 2, 30),
    "DQN whose learning rate falls": Case(AGENTS["dqn"], VECTOR, GAME, {**_VALUES, **_FALLS}, 2, 30),
    "C51": Case(AGENTS["c51"], VECTOR, GAME, _ATOMS, 2, 30),
    "full Rainbow": Case(AGENTS["full_rainbow"], VECTOR, GAME, {**_ATOMS, "one_step_loss": True}, 2, 30),
    "QR-DQN": Case(AGENTS["quantile"], VECTOR, GAME, {**_VALUES, "num_atoms": 5}, 2, 30),
    "IQN": Case(AGENTS["implicit_quantile"], VECTOR, GAME, {**_VALUES, **_TAUS}, 2, 30),
    "R2D2": Case(AGENTS["r2d2"], VECTOR, GAME, {**_SEQUENCES, "state_period": 2}, 2, 60),
    "V-trace": Case(VTrace, VECTOR, GAME, {**_UNROLLS, **_FALLS, "store_version": True}, 4, 20),
    "V-trace with terms": Case(VTrace, VECTOR, GAME, {**_UNROLLS, "terms": _TERMS, "entropy_cost": 0.1}, 4, 20),
    "V-trace with an LSTM": Case(VTrace, VECTOR, GAME, {**_UNROLLS, "network": partial(_ACTOR, core="lstm")}, 4, 20),
    "IMPACT": Case(Impact, VECTOR, GAME, {**_UNROLLS, "buffer_size": 2}, 4, 20),
    "PPO": Case(PPO, VECTOR, ROBOT, _ROUND, 4, 70),
    "PPO of Discrete actions": Case(PPO, VECTOR, GAME, {**_ROUND, **_FALLS, "store_version": True}, 4, 70),
    "SAC": Case(SAC, VECTOR, ROBOT, _SMALL_SAC, 2, 30),
    "SAC in two phases": Case(SAC, VECTOR, ROBOT, {**_SMALL_SAC, "critics_first": True}, 2, 30),
}


def played(case: Case, changed: Mapping[str, Any] = {}, *, late: bool = False) -> tuple[Any, Any]:
    """Return two learners that have observed the same: by graphs, and plain."""
    ours, plain = case.spec("cpu", graphs=True, **changed), case.spec("cpu", **changed)
    for spec in (ours, plain):
        align(spec, wait=not late)
    learners = pair(case, ours, plain)
    for learner in learners:
        draw_again(case, learner)
    return learners


def draw_again(case: Case, learner: Any) -> None:
    if "unroll_length" in case.settings and case.agent is not AGENTS["r2d2"]:
        learner.source = Again(learner.replay)


class Aligned(Compute):
    """Reads from new memory, as graphs do: where numbers begin there decides the last bits of a CPU's products."""

    def tensor(self, array: Any) -> Tensor:
        return _buffer_like(super().tensor(array))


def align(spec: Any, **changed: Any) -> Any:
    spec.compute = spec.reader._compute = Aligned("cpu", graphs=spec.compute.graphs, **changed)
    return spec


class Again:
    """Two batches of a queue in turn, which would be learnt from once."""

    def __init__(self, queue: Any) -> None:
        self._batches = cycle([queue.sample(), queue.sample()])

    def sample(self) -> Any:
        return next(self._batches)


def both(learners: tuple[Any, Any], updates: int) -> None:
    for _ in range(updates):
        one, other = ({name: each.clone() for name, each in learner.update().items()} for learner in learners)
        assert_identical(one, other)


@pytest.fixture(autouse=True)
def _without_warnings(request: pytest.FixtureRequest) -> Iterator[None]:
    with warnings.catch_warnings():
        if "learner" in request.node.name:
            warnings.simplefilter("error", GraphWarning)
        yield


# One learner serves all agents, so that each way of making a loss and batches is looked at late once.
LATE = ("DQN by priorities", "C51", "IQN", "R2D2", "V-trace with terms", "IMPACT", "PPO", "SAC")


@pytest.mark.parametrize(
    ("name", "late"),
    [*((name, False) for name in CASES), *((name, True) for name in LATE)],
    ids=lambda value: value if isinstance(value, str) else "late" * value,
)
def test_a_learner_with_graphs_equals_the_plain_one_bit_for_bit(name: str, late: bool) -> None:
    learners = played(CASES[name], late=late)
    both(learners, UPDATES)
    state, _ = states = [learner.state_dict() for learner in learners]
    assert_identical(*states)
    assert_identical(*(learner.replay.state_dict() for learner in learners))
    assert learners[0].summary() == learners[1].summary()
    # A checkpoint is loaded into running buffers.
    saved = {**state, "network": {key: each.clone() for key, each in state["network"].items()}}
    saved["optimizer"] = torch.utils._pytree.tree_map(
        lambda each: each.clone() if isinstance(each, Tensor) else each, state["optimizer"]
    )
    for learner in learners:
        learner.load_state_dict(saved)
    both(learners, 2)
    assert_identical(*(learner.state_dict() for learner in learners))


def test_a_learner_without_a_policy_is_captured_too() -> None:
    case = CASES["SAC in two phases"]
    _, learner = pair(case, case.spec("cpu"), case.spec("cpu", graphs=True))
    learner.update()
    assert not learner._gradient.eager


def test_a_learner_whose_gradients_are_averaged_in_place_steps_by_the_average() -> None:
    def halved(gradients: Mapping[str, Tensor], count: Any) -> Mapping[str, Tensor]:
        for gradient in gradients.values():
            gradient.mul_(0.5 + 0 * torch.as_tensor(count))
        return gradients

    learners = played(CASES["V-trace"])
    for learner in learners:
        learner.average, learner.learners = halved, 2
    both(learners, UPDATES)
    assert_identical(*(learner.state_dict() for learner in learners))


def test_a_learner_applies_the_gradients_of_another_one() -> None:
    learners = played(CASES["DQN by priorities"])
    for _ in range(UPDATES):
        for learner in learners:
            learner.gradients()
            learner.apply({name: torch.ones_like(each) for name, each in learner.network.named_parameters()})
    assert_identical(*(learner.state_dict() for learner in learners))


def test_gradients_that_a_learner_applies_in_turn_stay_as_they_are() -> None:
    learners = played(CASES["DQN"])
    for learner in learners:
        each = dict(learner.network.named_parameters())
        in_turn = [{name: torch.full_like(one, value) for name, one in each.items()} for value in (1.0, 2.0)]
        for update in range(2 * UPDATES):
            learner.apply(in_turn[update % 2])
        assert [next(iter(gradients.values())).max().item() for gradients in in_turn] == [1.0, 2.0]
    assert_identical(*(learner.state_dict() for learner in learners))


def test_a_loss_that_checks_a_number_stays_eager() -> None:
    learners = played(CASES["DQN"], late=True)
    checked: list[list[bool]] = [[], []]
    for learner, of_one in zip(learners, checked, strict=True):

        def loss(networks: Any, batch: Any, rng: Any, inner: Any = learner._loss, of_one: Any = of_one) -> LossOutput:
            networks.check(batch["reward"].sum() > 1e9, lambda: of_one.append(True))
            output: LossOutput = inner(networks, batch, rng)
            return output

        learner._loss = loss
    with pytest.warns(GraphWarning, match="the loss checks a number"):
        for learner in learners:
            for _ in range(UPDATES):
                learner.update()
            learner.finish_update()
    assert [len(of_one) for of_one in checked] == [UPDATES, UPDATES]


def test_where_steps_are_counted_is_a_setting_and_not_of_a_checkpoint() -> None:
    made = partial(create_optimizer, name="rmsprop", learning_rate=0.01)
    _, learner = played(CASES["DQN"], {"optimizer": made})
    learner.update()
    state = learner.state_dict()
    for moments in state["optimizer"]["state"].values():
        moments["step"] = moments["step"].double()
    for group in learner._optimizer.param_groups:
        group["capturable"] = True  # as on a GPU with graphs, where a step on the host could not be counted
    learner.load_state_dict(state)
    assert {moments["step"].dtype for moments in learner._optimizer.state.values()} == {torch.float32}
    assert all(group["capturable"] for group in learner._optimizer.param_groups)


@pytest.mark.parametrize("name", ["rmsprop", "sgd", "adam"])
def test_a_learner_steps_by_any_optimizer_and_at_another_rate(name: str) -> None:
    case = CASES["DQN whose learning rate falls"]
    made = partial(create_optimizer, name=name, learning_rate=0.01)
    learners = played(case, {"optimizer": made})
    both(learners, UPDATES)
    for learner in learners:
        learner.restart_optimizer()
        learner.set_learning_rate(0.1)
    both(learners, 2)
    assert_identical(*(learner.state_dict() for learner in learners))


def test_a_term_whose_weight_changes_and_ends_is_learnt_as_without_graphs() -> None:
    weights = [0.5, 0.25, 0.7, 0.1, 0.9, 0.0, 0.0, 0.3]
    learners = played(CASES["DQN"])
    for learner in learners:

        def term(networks: Any, batch: Any, rng: Any) -> LossOutput:
            return LossOutput(networks.online(batch["observation"]).square().sum(dim=1), metrics={})

        turn = iter(weights)
        amount = [0.0]
        learner._loss = with_teacher(learner._loss, term, lambda amount=amount: amount[0], lambda: 0.5)
        learner.begin = partial(_next, amount, turn)
    for _ in weights:
        for learner in learners:
            learner.begin()
        both(learners, 1)
    assert_identical(*(learner.state_dict() for learner in learners))


def _next(amount: list[float], turn: Iterator[float]) -> None:
    amount[0] = next(turn)


def test_a_loss_that_is_not_finite_is_refused_with_graphs_too(tmp_path: Path) -> None:
    for late in (False, True):
        learner, _ = played(CASES["DQN"], {"diverged_dir": str(tmp_path)}, late=late)
        for _ in range(UPDATES):
            learner.update()
        before = {name: each.clone() for name, each in learner.network.state_dict().items()}
        sample = learner.source.sample
        learner.source = SimpleNamespace(sample=lambda sample=sample: {**sample(), "reward": np.full(8, np.nan, "f4")})
        with pytest.raises(DivergedError, match="nan as its reward"):
            learner.update()
            learner.finish_update()
        after = learner.network.state_dict()
        assert all(each.isfinite().all() for each in after.values())
        assert late or all(torch.equal(each, before[name]) for name, each in after.items())


@pytest.mark.filterwarnings("ignore::async_wrappers.agents.learning.captured.GraphWarning")
@pytest.mark.parametrize("what", ["memory", "optimizer"])
def test_an_agent_that_reads_on_the_host_learns_as_without_graphs(what: str) -> None:
    name, changed = "DQN", {"optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.01)}
    if what == "memory":
        name, changed = "PPO", {"network": partial(create_policy_value_network, core="gru"), "unroll_length": 4}
    learners = played(CASES[name], changed)
    with pytest.warns(GraphWarning, match="a mask as an index" if what == "memory" else "numbers"):
        both(learners, 1)
    both(learners, UPDATES - 1)
    assert_identical(*(learner.state_dict() for learner in learners))


# Decisions.


@pytest.mark.parametrize(
    ("name", "bf16"),
    [*((name, False) for name in (*CASES, "SAC with a window")), ("R2D2", True), ("V-trace with an LSTM", True)],
)
def test_a_policy_with_graphs_decides_as_the_plain_one(name: str, bf16: bool) -> None:
    case = CASES.get(name) or Case(SAC, VECTOR, ROBOT, {**_SMALL_SAC, "action_window": 2}, 2)
    rng = np.random.default_rng(0)
    specs = [align(case.spec("cpu", graphs=graphs), bf16=bf16) for graphs in (True, False)]
    policies = [spec.make_vector_policy(make_vector_learner(spec, 3), 3) for spec in specs]
    remembers = getattr(policies[0], "remembers", False)
    states: list[Any] = [policy.initial_state(3) if remembers else () for policy in policies]
    for decision in range(24):
        rows, some = (3, slice(None)) if decision % 4 else (2, slice(2))
        inputs = rng.standard_normal((rows, case.settings.get("stack_size", 1), 17), np.float32)
        decisions = [Decision(0, decision, 1000, decision % 3 == 0, env_id) for env_id in range(rows)]
        outputs = []
        for policy, state in zip(policies, states, strict=True):
            action = policy.actions.blank(rows) if remembers else None
            memories = Memories(state[some], action, np.ones(rows, "f4"), np.full(rows, decision == 0))
            outputs.append(policy.act(inputs, memories if remembers else (), decisions))
        states = [output.state if rows == 3 else state for output, state in zip(outputs, states, strict=True)]
        assert_identical(*(output._asdict() for output in outputs))


def test_the_halves_of_a_policy_with_graphs_decide_as_those_of_the_plain_one() -> None:
    rng, outputs = np.random.default_rng(0), []
    case = CASES["V-trace with an LSTM"]
    specs = [align(case.spec("cpu", graphs=graphs, stack_size=1)) for graphs in (True, False)]
    workers = [spec.make_policy() for spec in specs]
    memories: list[Any] = [Memory(None, 0.0, True, None)] * 2
    for decision in range(40):
        observation, of_now = rng.standard_normal(17, np.float32), Decision(0, decision, 0, False, 0)
        outputs = []
        for number, worker in enumerate(workers):
            if decision == 30:  # new weights
                worker.load_weights({name: 0.5 * each for name, each in worker.weights().items()}, 3)
            outputs.append(worker.release(worker.encode(observation, of_now), memories[number], of_now))
            memories[number] = Memory(outputs[-1].action, 0.5, False, outputs[-1].state)
        assert_identical(*(output._asdict() for output in outputs))


def test_a_policy_with_graphs_acts_on_new_weights() -> None:
    policy, other = (make_vector_policy(graphs) for graphs in (True, False))
    inputs = np.random.default_rng(0).standard_normal((1, 2, 17), np.float32)
    for call in range(30):
        new = {name: (1 + call % 3) * each.clone() for name, each in other.weights().items()}
        policy.load_weights(new, call)
        other.load_weights({name: each.clone() for name, each in new.items()}, call)
        assert torch.equal(policy.q_values(inputs), other.q_values(inputs))


def test_a_policy_on_the_host_has_no_graphs_where_its_learner_is_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (CASES["DQN"].spec("cpu", graphs=True) for _ in range(2))
    monkeypatch.setattr(Compute, "place", lambda compute, network: network)  # there is none here
    there.compute.__dict__["torch_device"] = torch.device("cuda")
    assert [spec.on_device("cpu").compute.graphs for spec in (here, there)] == [True, False]


def make_vector_policy(graphs: bool) -> Any:
    spec = align(CASES["DQN"].spec("cpu", graphs=graphs))
    return spec.make_vector_policy(make_vector_learner(spec, 1), 1)


# What an update does.


def watched(learner: Any) -> HostReads:
    """Return what was seen of an update that nobody waits for, as on a GPU."""
    batch = learner.draw()
    with HostReads() as seen:
        learner.learn(batch)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_an_update_is_read_on_the_host(name: str) -> None:
    case = CASES[name]
    agent = VectorAgent(align(case.spec("cpu"), wait=False), case.envs)
    case.play(agent)
    draw_again(case, agent.learner)
    seen = watched(agent.learner).seen
    # Only the batch and the draws, which a graph has in buffers, come from the host.
    assert [each for each in seen if "makes a tensor of the host's numbers" not in each] == []


@pytest.mark.parametrize(("name", "most"), [("DQN", 90), ("V-trace", 220), ("SAC", 180)])
def test_an_update_has_few_operations(name: str, most: int) -> None:
    case = OF_THE_PAPERS[name]._replace(rounds=25)
    spec = case.spec("cpu")
    spec.compute = spec.reader._compute = Compute("cpu", wait=False)
    learner, _ = pair(case, spec, case.spec("cpu"))
    assert watched(learner).operations.total() <= most


@pytest.mark.parametrize("name", ["DQN", "full Rainbow", "V-trace", "V-trace with an LSTM", "SAC", "R2D2"])
def test_a_worker_has_its_graphs_before_it_plays(name: str) -> None:
    stack = {} if name == "R2D2" else {"stack_size": 1}
    policy = CASES[name].spec("cpu", graphs=True, **stack).make_policy().policy
    captured = policy._captured
    ready = [each for each in ([captured] if isinstance(captured, Captured) else captured.values()) if each._graphs]
    graphs = [graph for each in ready for known in each._graphs.values() for graph in known]
    assert graphs and all(graph.captured for graph in graphs)
    assert len(graphs) == (1 if name in ("DQN", "SAC") else 2)  # with and without noise; both halves
