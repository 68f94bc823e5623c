"""`RayChildren`: a fleet of actors keeps what one of processes keeps, but for what cannot be seen from here.

Ray is an extra, which the development tools do not bring: `pip install -e '.[dev,ray]' -c constraints.txt`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from async_wrappers.fleet.process_fleet import ProcessFleet, Role
from async_wrappers.fleet.ray_fleet import RayChildren, refuse_other_versions
from async_wrappers.fleet.supervised import RunFailed
from async_wrappers.ray_cluster import connect_to_ray, disconnect_from_ray
from tests.contracts.fleet_contract import FleetContract
from tests.worlds.fleet_member import live


def test_a_node_with_another_version_is_refused() -> None:
    refuse_other_versions("learner 1 (there)", {"PyTorch": "2.0"}, {"PyTorch": "2.0"})
    with pytest.raises(RunFailed, match=r"^learner 1 \(there\) has PyTorch 2.0, and the learner has 1.0: install the "):
        refuse_other_versions("learner 1 (there)", {"PyTorch": "2.0"}, {"PyTorch": "1.0"})


def none_shared() -> Mapping[str, str]:
    return {}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    connect_to_ray(None, 4, niceness=0)
    yield
    disconnect_from_ray()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
class TestOnRay(FleetContract):
    killed = "has died ("

    def children(self) -> RayChildren:
        return RayChildren(0, none_shared, num_cpus=1)

    def role(self, at_once: str, **more: Any) -> Role:
        return Role("member {}", False, live, lambda each: (each.number, each.incarnation, at_once), **more)

    def test_one_for_which_there_is_no_room_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("async_wrappers.fleet.ray_fleet._START", 1.0)
        fleet = ProcessFleet("The test", RayChildren(1, none_shared, num_cpus=64))
        with pytest.raises(
            RunFailed, match=r"^member 0 has not started for 1 s: ray status says .* has 64 CPUs and 0 "
        ):
            fleet.add(self.role(""))
        fleet.close()
