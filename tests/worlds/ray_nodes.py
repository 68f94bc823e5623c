"""A Ray cluster of two nodes on this machine: the head, which takes no worker, and a node for workers.

Its processes are no children of the test's, so that a test can tell what it leaves behind itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["two_nodes"]

_START = "import subprocess, sys; subprocess.Popen([sys.executable, '-m', 'tests.worlds.ray_nodes'])"


@contextmanager
def two_nodes() -> Iterator[str]:
    """Give the address of the head; the cluster ends with the block, or with this process."""
    holder = subprocess.Popen([sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None and holder.stdout is not None
    with holder:
        yield holder.stdout.readline().strip()
        holder.stdin.close()
        holder.stdout.read()  # until it has ended


def hold() -> None:
    """Run the cluster until the other end of standard input is closed."""
    from ray.cluster_utils import Cluster

    small = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
    os.environ.update(RAY_worker_niceness="0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    try:
        cluster.add_node(num_cpus=2, **small)  # Ray starts a process for each at once
        print(cluster.address, flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    hold()
