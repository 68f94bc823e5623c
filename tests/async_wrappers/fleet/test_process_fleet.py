"""`ProcessFleet`: kills and hangs, of processes that are spawned and of those that a server forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from async_wrappers.fleet.process_fleet import Role
from tests.contracts.fleet_contract import SeenFleetContract
from tests.worlds.fleet_member import run_member

ROOT = Path(__file__).parents[3]


class TestForked(SeenFleetContract):
    def role(self, at_once: str, **more: Any) -> Role:
        return Role("member {}", True, run_member, lambda each: (each.number, each.incarnation, at_once), **more)


UNGUARDED = """
from async_wrappers.fleet.process_fleet import ProcessFleet, Role
from tests.worlds.fleet_member import run_member

def fail(member):
    raise fleet.failure(member)

fleet = ProcessFleet("ThisRunner")
fleet.add(Role("member {}", False, run_member, lambda each: (0, 0, ""), lost=fail))
while True:
    fleet.turn()
"""


def test_a_script_without_a_main_guard_is_told_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(path)], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: ThisRunner starts processes, which import the main")
    assert done.stderr.count("Traceback") == 1
