"""`hosts_or_inference`: where the network of many actors is best run, on their hosts or beside the learner.

Hosts are machines that step environments for a learner elsewhere. In the shape of IMPALA
(`arXiv 1802.01561 <https://arxiv.org/abs/1802.01561>`_) each has the network: it sends unrolls, and receives weights.
In that of SEED RL (`arXiv 1910.06591 <https://arxiv.org/abs/1910.06591>`_) the network is beside the learner alone: a
host sends observations, waits for actions, and needs no weights.

Model. A row is one decision of one environment. Whatever is the first to be full limits the rows per second:

============== ======================================== ================================================================
limit          IMPALA's shape                           SEED RL's shape
============== ======================================== ================================================================
hosts          H C / (s + n)                            H C / s
waiting        -                                        H E / (s + w), where w = trip + a + g b, and b = E / 2
network, up    B / (8 y (1 + 1 / T))                    B / (8 y)
accelerator    1 / l                                    1 / (l + g + a / b)
learner's core 1 / k                                    1 / k
============== ======================================== ================================================================

of H hosts with C cores and E environments each; s and n seconds of a host's core per row for a step and for the
network; a batch of b rows takes a + g b seconds on the accelerator, and learning l per row; the learner's core handles
a row in k; y bytes of an observation with what goes along; B bits a second through the learner's link, each way;
unrolls of T rows, which send one observation twice. A host's environments take turns in two halves, so that one half
steps while the other waits. Weights of W bytes go down to each host: at most B / (8 W H) versions a second. Wishing for
more than these makes weights older, not rows fewer.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from async_wrappers.checks import number, whole

_ENOUGH = 0.05  # by how much the better shape has to be ahead for a verdict


@dataclass(frozen=True)
class Shape:
    """One of the two shapes.

    Attributes:
        name: "network on the hosts" or "network beside the learner".
        limits: Rows per second that each part allows, by its name.
        up: Bits per second to the learner, at the rows of the least limit.
        down: Bits per second from it.
        versions: Weights per second that reach every host; None where none are sent.
    """

    name: str
    limits: dict[str, float]
    up: float
    down: float
    versions: float | None

    @property
    def rows_per_second(self) -> float:
        """What the whole does."""
        return min(self.limits.values())

    @property
    def limited_by(self) -> str:
        """The part that is full first."""
        return min(self.limits, key=self.limits.__getitem__)


@dataclass(frozen=True)
class HostsOrInference:
    """Both shapes, side by side.

    Attributes:
        on_hosts: IMPALA's.
        beside_learner: SEED RL's.
        environments: Of a host at least, so that none of its cores waits in SEED RL's shape.
        frames: Of the environment in a row.
    """

    on_hosts: Shape
    beside_learner: Shape
    environments: int
    frames: int

    @property
    def verdict(self) -> str:
        """Which is better, in a sentence."""
        hosts, learner = self.on_hosts.rows_per_second, self.beside_learner.rows_per_second
        if max(hosts, learner) < (1 + _ENOUGH) * min(hosts, learner):
            return f"Both do the same within {_ENOUGH:.0%}: keep the network on the hosts, where nothing waits."
        better, other = (
            (self.on_hosts, self.beside_learner) if hosts > learner else (self.beside_learner, self.on_hosts)
        )
        ratio = better.rows_per_second / other.rows_per_second
        return f"The {better.name} does {ratio:.2g} times the rows; the other is limited by {other.limited_by}."

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain data."""
        shapes = {"on_hosts": self.on_hosts, "beside_learner": self.beside_learner}
        made = {
            name: {**asdict(shape), "rows_per_second": shape.rows_per_second, "limited_by": shape.limited_by}
            for name, shape in shapes.items()
        }
        return {**made, "environments": self.environments, "frames": self.frames, "verdict": self.verdict}

    def __str__(self) -> str:
        """Return a table and the verdict."""
        lines = [f"{'':28}{'frames/s':>12}  {'limited by':<16}{'up, Gbit/s':>11}{'down':>7}{'versions/s':>12}"]
        for shape in (self.on_hosts, self.beside_learner):
            rate = f"{shape.rows_per_second * self.frames:,.0f}"
            versions = "-" if shape.versions is None else f"{shape.versions:.2f}"
            traffic = f"{shape.up / 1e9:>11.2f}{shape.down / 1e9:>7.2f}{versions:>12}"
            lines.append(f"{shape.name:28}{rate:>12}  {shape.limited_by:<16}{traffic}")
        lines.append(
            f"A host needs {self.environments} environments, so that no core waits for actions from elsewhere."
        )
        return "\n".join([*lines, self.verdict])


def hosts_or_inference(
    *,
    hosts: int,
    cores: int,
    environments: int,
    step: float,
    network: float,
    batch: tuple[float, float],
    learn: float,
    bandwidth: float,
    row_bytes: float,
    weight_bytes: float,
    versions: float = 2.0,
    trip: float = 0.001,
    handle: float = 20e-6,
    unroll: int = 20,
    frames: int = 4,
) -> HostsOrInference:
    """Compare the network on the hosts with the network beside the learner; see the module for the model.

    Args:
        hosts: Machines that step environments.
        cores: Of each.
        environments: Of each.
        step: Seconds of a core in which an environment steps one row, all of its frames.
        network: Seconds of a host's core in which the network computes one row.
        batch: Seconds that an inference on the learner's accelerator takes: fixed, and for each row.
        learn: Seconds of the accelerator to learn from one row.
        bandwidth: Bits per second through the learner's link, each way.
        row_bytes: Of an observation with reward, action and so on, packed as they are sent.
        weight_bytes: Of one version of the weights.
        versions: Versions of the weights per second that the hosts would like to have.
        trip: Seconds of a round trip to the learner's machine, without the inference.
        handle: Seconds of the learner's core for one row that arrives.
        unroll: Rows of an unroll.
        frames: Frames of the environment in a row, for the table.

    Raises:
        ValueError: A number out of range.
    """
    for name, count in (("hosts", hosts), ("cores", cores), ("unroll", unroll), ("frames", frames)):
        whole(name, count, 1)
    whole("environments", environments, 2)
    positive = {"step": step, "bandwidth": bandwidth, "row_bytes": row_bytes, "handle": handle}
    for name, value in positive.items():
        number(name, value, "a number > 0", lambda given: 0 < given < math.inf)
    fixed, each = batch
    others = {"network": network, "batch[0]": fixed, "batch[1]": each, "learn": learn, "weight_bytes": weight_bytes}
    for name, value in {**others, "versions": versions, "trip": trip}.items():
        number(name, value, "a number >= 0", lambda given: 0 <= given < math.inf)

    half = environments / 2
    wait = trip + fixed + each * half
    common = {"learner's core": 1 / handle}
    limits = {
        "hosts": hosts * cores / (step + network),
        "network": bandwidth / (8 * row_bytes * (1 + 1 / unroll)),
        "accelerator": _rate(learn),
        **common,
    }
    reached = min(versions, bandwidth / (8 * weight_bytes * hosts) if weight_bytes else math.inf)
    up = min(limits.values()) * 8 * row_bytes * (1 + 1 / unroll)
    on_hosts = Shape("network on the hosts", limits, up, reached * 8 * weight_bytes * hosts, reached)

    limits = {
        "hosts": hosts * cores / step,
        "waiting": hosts * environments / (step + wait),
        "network": bandwidth / (8 * row_bytes),
        "accelerator": _rate(learn + each + fixed / half),
        **common,
    }
    up = min(limits.values()) * 8 * row_bytes
    beside = Shape("network beside the learner", limits, up, min(limits.values()) * 64, None)
    return HostsOrInference(on_hosts, beside, _environments(cores, step, trip + fixed, each), frames)


def _rate(seconds: float) -> float:
    return 1 / seconds if seconds else math.inf


def _environments(cores: int, step: float, wait: float, each: float) -> int:
    """Return the least number E with E / (step + wait + each E / 2) >= cores / step; 0 if there is none."""
    left = 1 - cores * each / (2 * step)
    return math.ceil(cores * (step + wait) / step / left) if left > 0 else 0
