"""How many workers several latencies, and workers and learners several networks need, with a picture: Fig. 8 of arXiv
2412.14355.

An action on each frame needs as many workers as frames pass in an inference; an update on each frame needs as many
learners as frames pass in an update. The times are measured, or published ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from async_wrappers.analysis.forecast import Forecast, Forecaster
from async_wrappers.extras import extra
from async_wrappers.files import path_of
from async_wrappers.latency import LogNormal, nanoseconds
from async_wrappers.schedule.frames import FrameClock

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAME_BOY_FPS = 59.7275  # frames per second, of the published live experiments


@dataclass(frozen=True)
class WorkersNeeded:
    """The workers that one latency needs.

    Attributes:
        latency_s: Mean latency, in seconds.
        mean_rule: ``ceil(mean latency * fps)``.
        playout: The playout of `enough`, as a quantile of the latency.
        enough: The least number of ``tickets`` workers with a fresh action on 99 % of the frames.
    """

    latency_s: float
    mean_rule: int
    playout: str
    enough: Forecast | None


@dataclass(frozen=True)
class Network:
    """A network's size, and how long it takes.

    Attributes:
        name: Its name.
        parameters: How many it has.
        latency_s: Mean time of an inference, in seconds.
        update_s: Mean time of an update, in seconds; None if it is not known.
    """

    name: str
    parameters: int
    latency_s: float
    update_s: float | None = None


@dataclass(frozen=True)
class ProcessesNeeded:
    """Workers and learners that a network needs.

    Attributes:
        network: The network.
        need: The workers that its inference takes.
        learners: ``ceil(update time * fps)``, for one update per frame; None if the update time is not known.
    """

    network: Network
    need: WorkersNeeded
    learners: int | None


UPDATE_INFERENCES = 16 * 4
"""An update on a batch of 16, in inferences: for each transition network, target and backward, which is about two."""


def _published(name: str, parameters: int, latency_frames: int) -> Network:
    latency = latency_frames / GAME_BOY_FPS
    return Network(name, parameters, latency, UPDATE_INFERENCES * latency)


PUBLISHED = (
    _published("55k", 54_178, 1),
    _published("1m", 903_718, 5),
    _published("10m", 10_368_742, 8),
    _published("100m", 104_682_918, 70),
    _published("1b", 1_008_092_742, 596),
)
"""The published networks of 15 layers, with the inference times of the table: frames of a Game Boy, rounded up there.

Update times were not published, and are estimated by `UPDATE_INFERENCES`.
"""

PUBLISHED_LIVE = {"1m": (7, 1), "10m": (12, 3), "100m": (72, 33)}
"""Workers and learners of the published live runs, by network."""


def workers_against_latency(
    latencies_s: Iterable[float], fps: Any = 60, *, cv: float = 0.2, seconds: float = 600, seed: int = 0
) -> list[WorkersNeeded]:
    """Return how many workers are enough over a range of log-normal latencies.

    Args:
        latencies_s: Mean latencies, in seconds.
        fps: Frames per second.
        cv: Coefficient of variation of each.
        seconds: How long to simulate each. In a minute, shares at the edge of 99 % are known to 0.2 % only, and the
            numbers of workers do not grow evenly.
        seed: Of the simulated latencies.

    Raises:
        ValueError: As `plan`.
    """
    needs = []
    for latency_s in latencies_s:
        world = Forecaster(LogNormal(latency_s, cv), fps, seconds, seed)
        playout, enough = world.enough()
        needs.append(WorkersNeeded(latency_s, world.mean_rule, playout, enough))
    return needs


def processes_needed(
    networks: Iterable[Network] = PUBLISHED,
    fps: Any = GAME_BOY_FPS,
    *,
    cv: float = 0.2,
    seconds: float = 600,
    seed: int = 0,
) -> list[ProcessesNeeded]:
    """Return how many workers and learners networks need for an action, and for an update, on each frame.

    Args:
        networks: The networks, the smallest first.
        fps: Frames per second.
        cv: Coefficient of variation of each network's latency, log-normal; 0 is a constant.
        seconds: How long to simulate each, as in `workers_against_latency`.
        seed: Of the simulated latencies.

    Raises:
        ValueError: As `plan`.
    """
    networks, clock = list(networks), FrameClock(fps)

    def learners(network: Network) -> int | None:
        return None if network.update_s is None else max(1, clock.frame_at(nanoseconds(network.update_s)))

    needs = workers_against_latency([network.latency_s for network in networks], fps, cv=cv, seconds=seconds, seed=seed)
    return [ProcessesNeeded(network, need, learners(network)) for network, need in zip(networks, needs, strict=True)]


def read_networks(path: str | Path) -> list[Network]:
    """Read networks from a JSON file: a list of objects with name, parameters, latency_ms and, if known, update_ms.

    Returns:
        The networks, the smallest first.

    Raises:
        OSError: There is no such file.
        ValueError: It holds something else.
    """
    try:
        networks = [_network(**entry) for entry in json.loads(path_of(path).read_text(encoding="utf-8"))]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be a JSON list of objects with name, parameters, latency_ms and, if known, update_ms, and "
            f"is not: {error}"
        ) from None
    if not networks:
        raise ValueError(f"{path} must hold at least one network, got an empty list")
    return sorted(networks, key=lambda network: network.parameters)


def _network(name: str, parameters: int, latency_ms: float, update_ms: float | None = None) -> Network:
    if not isinstance(parameters, int) or parameters < 1:
        raise ValueError(f"parameters is {parameters!r} and no whole number >= 1")
    for key, value in (("latency_ms", latency_ms), ("update_ms", update_ms)):
        if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
            raise ValueError(f"{key} is {value!r} and no number of milliseconds > 0")
    return Network(str(name), parameters, latency_ms / 1000, None if update_ms is None else update_ms / 1000)


PUBLISHED_TIMES = f"inferences as published, an update of {UPDATE_INFERENCES} inferences"  # in a title

# Colours of Okabe and Ito's, lines and markers: they differ in black and white too.
_ENOUGH: dict[str, Any] = {"color": "#0072B2", "linestyle": "-", "marker": "o"}
_RULE: dict[str, Any] = {"color": "#D55E00", "linestyle": "--", "marker": "s"}
_LEARNERS: dict[str, Any] = {"color": "#009E73", "linestyle": "-.", "marker": "D"}
_RAN: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white", "markersize": 10, "markeredgewidth": 1.5}


def scaling_picture(found: Sequence[ProcessesNeeded], title: str = "") -> Figure:
    """Draw workers and learners against parameters, and as open markers those of the published live runs.

    Needs matplotlib.

    Args:
        found: The result of `processes_needed`.
        title: The picture's title.

    Returns:
        The matplotlib figure.
    """
    with extra("a picture", "plot"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.9), layout="constrained")
    axes = figure.subplots()
    lines = {
        "workers: the usual rule, mean inference time x frame rate, rounded up": (
            _RULE,
            [(each.network.parameters, each.need.mean_rule) for each in found],
        ),
        "workers: enough for a fresh action on 99 % of the frames": (
            _ENOUGH,
            [(each.network.parameters, each.need.enough.workers) for each in found if each.need.enough],
        ),
        "learners: mean update time x frame rate, for an update on each frame": (
            _LEARNERS,
            [(each.network.parameters, each.learners) for each in found if each.learners is not None],
        ),
    }
    for label, (style, points) in lines.items():
        axes.plot(*_columns(points), label=label, markersize=5, linewidth=1.5, **style)
    size = {network.name: network.parameters for network in PUBLISHED}
    ran = [(size[name], *processes) for name, processes in PUBLISHED_LIVE.items()]
    for label, style, points in (
        ("workers of the published live runs", _RULE, [(parameters, workers) for parameters, workers, _ in ran]),
        ("learners of the published live runs", _LEARNERS, [(parameters, learners) for parameters, _, learners in ran]),
    ):
        look = {"marker": style["marker"], "markeredgecolor": style["color"], "zorder": 1, **_RAN}
        axes.plot(*_columns(points), label=label, **look)
    axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel="processes")
    axes.yaxis.set_major_formatter("{x:g}")
    names = {each.network.parameters: each.network.name for each in found}
    axes.set_xticks(list(names), list(names.values()), fontsize="small")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize="small")
    figure.suptitle(title, fontsize="small", color="0.3")
    return figure


def _columns(points: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [x for x, _ in points], [y for _, y in points]
