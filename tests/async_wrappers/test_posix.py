"""How many cores a process may use: by its affinity, and by the quota of its control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_wrappers import posix

ROOT = Path(__file__).parents[2]


def system(root: Path, **files: str) -> Path:
    """Write files of a system: ``__`` in a name is a slash, and a path's last dot its last ``_``."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path = path.with_name(path.name.replace("cpu_", "cpu.", 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("", {}, None),
        ("0::/\n", {"sys__fs__cgroup__cpu_max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"sys__fs__cgroup__cpu_max": "max 100000\n"}, None),
        ("0::/a.slice/b\n", {"sys__fs__cgroup__a.slice__b__cpu_max": "200000 100000"}, 2.0),
        (
            "0::/a/b\n",
            {"sys__fs__cgroup__a__cpu_max": "100000 100000", "sys__fs__cgroup__a__b__cpu_max": "300000 100000"},
            1.0,
        ),
        # A container sees its own group at the top, and the host's path of it.
        ("0::/docker/7b3d\n", {"sys__fs__cgroup__cpu_max": "50000 100000"}, 0.5),
        ("0::/../b\n", {"sys__fs__cgroup__cpu_max": "50000 100000"}, 0.5),
        (
            "4:memory:/x\n1:cpu,cpuacct:/x\n0::/\n",
            {"sys__fs__cgroup__cpu__x__cpu_cfs_quota_us": "250000"},
            None,
        ),
        (
            "4:memory:/x\n1:cpuacct,cpu:/x\n0::/\n",
            {
                "sys__fs__cgroup__cpu__x__cpu_cfs_quota_us": "250000",
                "sys__fs__cgroup__cpu__x__cpu_cfs_period_us": "100000",
            },
            2.5,
        ),
        (
            "1:cpu:/\n",
            {"sys__fs__cgroup__cpu__cpu_cfs_quota_us": "-1", "sys__fs__cgroup__cpu__cpu_cfs_period_us": "100000"},
            None,
        ),
    ],
)
def test_the_quota_is_the_least_of_the_control_groups_around_the_process(
    tmp_path: Path, groups: str, files: dict[str, str], quota: float | None
) -> None:
    assert posix.quota(system(tmp_path, proc__self__cgroup=groups, **files)) == quota


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (0.2, 1), (1.5, 2), (3.0, 3), (64.0, 4)])
def test_cores_are_those_of_the_affinity_and_of_the_quota(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1, 2, 3, 5}, raising=False)
    monkeypatch.setattr(posix, "quota", lambda: quota)
    assert posix.cores() == cores


def test_nobody_counts_the_machines_cores_besides() -> None:
    places = [ROOT / name for name in ("agents", "async_wrappers", "docs/examples")]
    counting = {path.name for place in places for path in place.rglob("*.py") if "cpu_count" in path.read_text()}
    assert counting == {"posix.py"}
