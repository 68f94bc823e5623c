"""Where the network of many actors is best run: each limit by hand, a table worked out before, what holds for all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_wrappers import hosts_or_inference

PLAIN: dict[str, Any] = {
    **{"hosts": 2, "cores": 4, "environments": 20, "step": 0.001, "network": 0.001, "batch": (0.002, 0.0001)},
    **{"learn": 0.0001, "bandwidth": 1e9, "row_bytes": 10_000, "weight_bytes": 1e6, "trip": 0.002, "handle": 20e-6},
    "unroll": 20,
}


def test_each_limit_is_the_modules_formula() -> None:
    found = hosts_or_inference(**PLAIN)
    assert found.on_hosts.limits == pytest.approx(
        {"hosts": 4000, "network": 1e9 / 80_000 / 1.05, "accelerator": 10_000, "learner's core": 50_000}
    )
    assert found.beside_learner.limits == pytest.approx(
        {
            "hosts": 8000,
            "waiting": 40 / (0.001 + 0.002 + 0.002 + 0.001),
            "network": 12_500,
            "accelerator": 1 / (0.0001 + 0.0001 + 0.0002),
            "learner's core": 50_000,
        }
    )
    assert (found.on_hosts.limited_by, found.on_hosts.rows_per_second) == ("hosts", pytest.approx(4000))
    assert (found.beside_learner.limited_by, found.beside_learner.rows_per_second) == (
        *("accelerator", pytest.approx(2500)),
    )
    assert found.on_hosts.up == pytest.approx(4000 * 80_000 * 1.05)
    assert found.on_hosts.down == pytest.approx(2 * 8e6 * 2)


@pytest.mark.parametrize(
    ("cores", "network", "batch", "learn", "weights", "expected"),
    [
        (4, 0.26e-3, (25e-6, 4e-6), 10e-6, 6.7e6, (200, 200)),
        (16, 0.26e-3, (25e-6, 4e-6), 10e-6, 6.7e6, (200, 200)),
        (4, 2.6e-3, (25e-6, 20e-6), 50e-6, 6.25e6, (80, 56)),
        (16, 2.6e-3, (25e-6, 20e-6), 50e-6, 6.25e6, (80, 57)),
        (4, 1.61e-3, (25e-6, 10e-6), 30e-6, 40e6, (129, 97)),
        (16, 1.61e-3, (25e-6, 10e-6), 30e-6, 40e6, (133, 99)),
    ],
    ids=["Nature 4", "Nature 16", "ImpalaDeep 4", "ImpalaDeep 16", "10 M 4", "10 M 16"],
)
def test_thousands_of_frames_a_second_of_16_hosts_at_25_gbit(
    cores: int, network: float, batch: Any, learn: float, weights: float, expected: tuple[int, int]
) -> None:
    given_ = {"hosts": 16, "cores": cores, "environments": 10 * cores, "step": 0.37e-3, "network": network}
    found = hosts_or_inference(**given_, batch=batch, learn=learn, bandwidth=25e9, row_bytes=7140, weight_bytes=weights)
    shapes = found.on_hosts, found.beside_learner
    assert tuple(round(shape.rows_per_second * 4 / 1000) for shape in shapes) == expected


def test_a_link_that_is_too_narrow_makes_weights_older_and_rows_no_fewer() -> None:
    wide, narrow = (hosts_or_inference(**{**PLAIN, "weight_bytes": size}) for size in (1e6, 1e8))
    assert (wide.on_hosts.versions, narrow.on_hosts.versions) == (2.0, pytest.approx(1e9 / 8e8 / 2))
    assert narrow.on_hosts.rows_per_second == wide.on_hosts.rows_per_second
    assert narrow.on_hosts.down == pytest.approx(1e9)


amounts = st.floats(1e-6, 1e-2)


@given(st.integers(1, 64), st.integers(1, 64), amounts, amounts, amounts, amounts, amounts, amounts)
def test_the_environments_that_a_host_needs_are_the_fewest_with_which_no_core_waits(
    hosts: int, cores: int, step: float, network: float, fixed: float, each: float, learn: float, trip: float
) -> None:
    given_: dict[str, Any] = {
        **{"hosts": hosts, "cores": cores, "step": step, "network": network, "batch": (fixed, each), "learn": learn},
        **{"bandwidth": 1e10, "row_bytes": 7000, "weight_bytes": 1e6, "trip": trip},
    }
    needed = hosts_or_inference(environments=2, **given_).environments
    if not needed:
        many = hosts_or_inference(environments=10**7, **given_).beside_learner.limits
        assert many["waiting"] < many["hosts"] * 1.0001
        return
    limits = hosts_or_inference(environments=max(needed, 2), **given_).beside_learner.limits
    assert limits["waiting"] >= limits["hosts"] * 0.9999
    if needed > 3:
        limits = hosts_or_inference(environments=needed - 1, **given_).beside_learner.limits
        assert limits["waiting"] < limits["hosts"] * 1.0001


def test_the_verdict_names_the_better_shape_and_what_limits_the_other() -> None:
    heavy = {**PLAIN, "network": 0.02, "batch": (0.001, 0.00001), "learn": 0.00001}
    assert "network beside the learner does 21 times the rows; the other is limited by hosts." in str(
        hosts_or_inference(**heavy)
    )
    light = {**PLAIN, "network": 0.0}
    assert hosts_or_inference(**light).verdict.startswith("The network on the hosts does 3.2 times the rows; the other")
    equal = {**PLAIN, "network": 0.0, "batch": (0.0, 0.0), "trip": 0.0}
    assert "Both do the same within 5%: keep the network on the hosts" in hosts_or_inference(**equal).verdict


def test_it_is_plain_data() -> None:
    data = json.loads(json.dumps(hosts_or_inference(**PLAIN).to_dict()))
    assert data["on_hosts"]["limited_by"] == "hosts"
    assert data["beside_learner"]["versions"] is None


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("hosts", 0, "hosts must be a whole number >= 1, got 0"),
        ("environments", 1, "environments must be a whole number >= 2, got 1"),
        ("step", 0, "step must be a number > 0, got 0"),
        ("network", -1, "network must be a number >= 0, got -1"),
        ("batch", (0.1, -0.1), r"batch\[1\] must be a number >= 0, got -0.1"),
        ("bandwidth", float("nan"), "bandwidth must be a number > 0, got nan"),
    ],
)
def test_a_number_out_of_range_is_named(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        hosts_or_inference(**{**PLAIN, name: value})
