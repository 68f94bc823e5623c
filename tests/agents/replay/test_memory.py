"""Free memory is the least of what the machine, the control group and the process's limit leave."""

from __future__ import annotations

from typing import Any

import pytest

from async_wrappers.agents.replay import memory


def test_memory_is_what_the_machine_the_group_and_the_limit_leave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 3 kB\n")
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_memory() == 3 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert memory.available_memory() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() == 3 * 1024
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "none")
    monkeypatch.setattr(memory, "_of_process", lambda: 1000)
    assert memory.available_memory() == 1000
    monkeypatch.setattr(memory, "_of_process", lambda: None)
    assert memory.available_memory() is None
    memory.check_memory(10**18, "what nobody knows the room of", "nothing")
