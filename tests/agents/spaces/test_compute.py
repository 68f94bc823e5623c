"""Where and how tensors are computed."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from async_wrappers.agents.learning.making import make_learner
from async_wrappers.agents.spaces import compute
from async_wrappers.agents.spaces.compute import Compute
from async_wrappers.policy import Decision
from tests.worlds.agents import make_agent, make_spec, transitions
from tests.worlds.drifting_env import DriftingEnv


def test_auto_is_cuda_where_there_is_one_and_else_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Compute().torch_device == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Compute().torch_device == torch.device("cuda")
    assert Compute("cpu").torch_device == torch.device("cpu")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", ""])
def test_an_unknown_device_is_refused_in_one_sentence(device: str) -> None:
    with pytest.raises(ValueError) as caught:
        Compute(device)
    assert str(caught.value) == f"device must be 'auto', 'cpu' or 'cuda', got {device!r}"


def test_one_of_several_devices_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Compute("cuda:1").torch_device == torch.device("cuda:1")
    with pytest.raises(ValueError, match=r"^device='cuda:2' is not there, torch sees 2 CUDA devices: name another"):
        Compute("cuda:2")


def test_cuda_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError) as caught:
        Compute("cuda")
    assert str(caught.value) == "device='cuda' needs a CUDA device, and torch sees none: use device='auto' or 'cpu'"


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_network_is_placed_in_the_memory_format(channels_last: bool) -> None:
    network = nn.Conv2d(3, 4, 3)
    before = network.weight.detach().clone()
    assert Compute("cpu", channels_last).place(network) is network
    assert network.weight.is_contiguous(memory_format=torch.channels_last) == channels_last
    assert torch.equal(network.weight, before)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_batch_of_images_is_put_in_the_memory_format_and_keeps_its_values(channels_last: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), np.uint8)
    tensor = Compute("cpu", channels_last).tensor(images)
    assert tensor.is_contiguous(memory_format=torch.channels_last) == channels_last
    assert tensor.dtype == torch.uint8
    np.testing.assert_array_equal(tensor.numpy(), images)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 4, 6, 5), (3, 1, 6, 5), (3, 4, 6, 5), (3, 4, 1, 5)])
def test_images_lie_in_memory_as_torch_would_put_them(shape: tuple[int, ...], dtype: type) -> None:
    batch, channels, *size = shape
    longer = np.random.default_rng(0).integers(0, 256, (batch, channels + 1, *size)).astype(dtype)
    images = longer[:, :channels]  # a view, as the replay's stacks are
    expected = torch.from_numpy(images).contiguous(memory_format=torch.channels_last)
    tensor = Compute("cpu", channels_last=True).tensor(images)
    assert torch.equal(tensor, expected)
    assert tensor.stride() == expected.stride()


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4)])
def test_what_is_no_image_has_no_memory_format(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    np.testing.assert_array_equal(Compute("cpu", channels_last=True).tensor(array).numpy(), array)


@pytest.mark.parametrize(("bf16", "dtype"), [(False, torch.float32), (True, torch.bfloat16)])
def test_bf16_lowers_the_precision_of_forward_passes_alone(bf16: bool, dtype: torch.dtype) -> None:
    network = nn.Linear(3, 2)
    with Compute("cpu", bf16=bf16).autocast():
        assert network(torch.ones(1, 3)).dtype == dtype
    assert network(torch.ones(1, 3)).dtype == network.weight.dtype == torch.float32


@pytest.mark.parametrize("bf16", [False, True])
def test_autocast_can_be_left(bf16: bool) -> None:
    network, inputs = nn.Linear(3, 2), torch.ones(1, 3)
    with Compute("cpu", bf16=bf16).autocast():
        with compute.without_autocast(inputs):
            assert network(inputs).dtype == torch.float32
        assert network(inputs).dtype == (torch.bfloat16 if bf16 else torch.float32)


DUELING = "dqn, double, dueling, prioritized"
INTEL = "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16\n"
EPYC_WITH_AVX2 = "processor\t: 0\nmodel name\t: bf16 in a name\nflags\t\t: fpu avx2 fma\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n"


def machine_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(compute, "_PROCESSOR", tmp_path / "cpuinfo")


@pytest.mark.parametrize(("cpuinfo", "does"), [(INTEL, True), (EPYC_WITH_AVX2, False), (ARM, True), ("", False)])
def test_auto_takes_bf16_where_the_processor_computes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str, does: bool
) -> None:
    machine_of(monkeypatch, tmp_path, cpuinfo)
    auto = Compute("cpu", bf16="auto")
    assert auto.bf16 is does and auto.automatic
    assert pickle.loads(pickle.dumps(auto)).bf16 is does
    words = "bfloat16, for the CPU computes in" if does else "float32, for the CPU does not compute in"
    assert auto.precision_in_words().startswith(words)
    with auto.autocast():
        assert nn.Linear(3, 2)(torch.ones(1, 3)).dtype == (torch.bfloat16 if does else torch.float32)


def test_where_the_flags_cannot_be_read_auto_takes_float32(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compute, "_PROCESSOR", tmp_path / "none")
    assert Compute("cpu", bf16="auto").bf16 is False


@pytest.mark.parametrize("supported", [False, True])
def test_auto_asks_the_gpu_where_that_computes(monkeypatch: pytest.MonkeyPatch, supported: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert Compute("cuda", bf16="auto").bf16 is supported


@pytest.mark.parametrize("bf16", ["yes", 1, None])
def test_another_word_for_bf16_is_refused_in_one_sentence(bf16: Any) -> None:
    with pytest.raises(ValueError) as caught:
        make_spec("rainbow", DriftingEnv(), bf16=bf16)
    assert str(caught.value).splitlines()[0] == f"bf16 must be True, False or 'auto', got {bf16!r}"


@pytest.mark.parametrize("began", [False, True])
def test_a_run_goes_on_in_the_precision_that_it_began_with_on_any_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, began: bool
) -> None:
    machine_of(monkeypatch, tmp_path, INTEL if began else EPYC_WITH_AVX2)
    state = make_agent(DUELING, DriftingEnv(), bf16="auto").learner.state_dict()
    assert state["bf16"] is began
    machine_of(monkeypatch, tmp_path, EPYC_WITH_AVX2 if began else INTEL)
    agent = make_agent(DUELING, DriftingEnv(), bf16="auto")
    assert agent.spec.compute.bf16 is not began  # type: ignore[attr-defined]
    agent.learner.load_state_dict(state)
    assert agent.spec.compute.bf16 is began  # type: ignore[attr-defined]
    assert "as when the run began" in agent.spec.compute.precision_in_words()  # type: ignore[attr-defined]
    # The policy and the learner's forward passes follow, though they were made before.
    policy: Any = agent.policy
    assert policy.compute.bf16 is began
    linear = nn.Linear(3, 2)
    assert agent.learner._forward_of(linear)(torch.ones(1, 3)).dtype == (torch.bfloat16 if began else torch.float32)
    assert agent.learner.state_dict()["bf16"] is began


@pytest.mark.parametrize("bf16", [False, True])
def test_a_precision_that_is_bound_is_not_taken_from_a_checkpoint(bf16: bool) -> None:
    agent = make_agent(DUELING, DriftingEnv(), bf16=bf16)
    state = agent.learner.state_dict()
    assert "bf16" not in state
    assert agent.spec.compute.precision_in_words() == ("bfloat16" if bf16 else "float32")  # type: ignore[attr-defined]
    agent.learner.load_state_dict({**state, "bf16": not bf16})
    assert agent.spec.compute.bf16 is bf16  # type: ignore[attr-defined]


def test_compiling_without_a_compiler_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError) as caught:
        Compute("cpu", compile=True)
    assert str(caught.value) == (
        "compile=True needs a C++ compiler, and 'no-such-compiler' is not on the PATH: install it, name another in the "
        "environment variable CXX, or use compile=False"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::async_wrappers.agents.families.value_based.c51.SupportWarning"
)
def test_compiled_networks_give_the_same_within_rounding() -> None:
    results: list[dict[str, Any]] = []
    for compiled in (False, True):
        made = make_spec("full_rainbow", DriftingEnv(), compile=compiled, max_gradient_norm=1.0)
        policy, learner = made.make_policy(), make_learner(made)
        for transition in transitions(40):
            learner.observe(transition)
        losses = [float(learner.update()["Loss"]) for _ in range(5)]
        policy.load_weights(learner.weights(), 1)
        values = [policy._policy.q_values(t["observation"][None]) for t in transitions(10)]  # type: ignore[attr-defined]
        actions = [policy.act(t["observation"], Decision(0, i, i, False)) for i, t in enumerate(transitions(10))]
        results.append({"losses": losses, "values": torch.stack(values), "actions": actions})
    eager, compiled_ones = results
    np.testing.assert_allclose(compiled_ones["losses"], eager["losses"], rtol=1e-4)
    torch.testing.assert_close(compiled_ones["values"], eager["values"], rtol=1e-4, atol=1e-5)
    assert compiled_ones["actions"] == eager["actions"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0  # something was compiled
