"""Charts as SVG: curves with bands, the workers' time line, ages, loads. Colours are the page's, so both themes fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from async_wrappers.agents.watch.curves import Panel
from async_wrappers.agents.watch.live import Live

COLOURS = 8
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 170, 44, 22, 8, 8
_MOST_ROWS = 32


def chart(panel: Panel, small: bool = False) -> str:
    """Return a panel: dots of episodes, bands, curves, and axes with round numbers; a small one is half as wide."""
    width, height, left = (172, 64, 36) if small else (_WIDTH, _HEIGHT, _LEFT)
    points = [point for curve in panel.curves for point in curve.points]
    xs = [point.x for point in points] + [x for x, _ in panel.dots]
    ys = [bound for point in points for bound in (point.low, point.high)] + [y for _, y in panel.dots]
    ys = [y for y in ys if math.isfinite(y)]
    if not xs or not ys:
        return ""
    x_ticks, y_ticks = [] if small else _ticks(0.0, max(xs), 4), _ticks(min(ys), max(ys), 1 if small else 3)
    x_end, low, high = max(*xs, 1e-9), min(*ys, y_ticks[0]), max(*ys, y_ticks[-1])
    wide, tall = width - left - _RIGHT, height - _TOP - (6 if small else _BOTTOM)

    def at(x: float, y: float) -> str:
        return f"{left + x / x_end * wide:.1f},{_TOP + (high - y) / max(high - low, 1e-12) * tall:.1f}"

    parts = []
    for y in y_ticks:
        x0, y0 = at(0, y).split(",")
        parts.append(f'<line class="grid" x1="{x0}" x2="{width - _RIGHT}" y1="{y0}" y2="{y0}"/>')
        parts.append(f'<text class="end" x="{left - 5}" y="{float(y0) + 3.5:.1f}">{short(y)}</text>')
    for x in x_ticks:
        x0 = at(x, low).partition(",")[0]
        side = "end" if x == x_ticks[-1] and float(x0) > _WIDTH - 30 else "middle"
        parts.append(f'<text class="{side}" x="{x0}" y="{height - 6}">{short(x)}</text>')
    for x, y in panel.dots:
        place = at(x, y).split(",")
        parts.append(f'<circle class="dot" cx="{place[0]}" cy="{place[1]}" r="1.6"/>')
    for number, curve in enumerate(panel.curves):
        colour, dash = f"c{number % COLOURS}", ' stroke-dasharray="5 3"' if number // COLOURS % 2 else ""
        if any(point.low < point.high for point in curve.points):
            bounds = [at(p.x, p.high) for p in curve.points] + [at(p.x, p.low) for p in reversed(curve.points)]
            parts.append(f'<polygon class="band {colour}" points="{" ".join(bounds)}"/>')
        line = " ".join(at(point.x, point.value) for point in curve.points)
        parts.append(f'<polyline class="line {colour}" points="{line}"{dash}/>')
        for point in curve.points[-1:] if len(curve.points) > 30 else curve.points:
            place = at(point.x, point.value).split(",")
            interval = f" [{point.low:.5g}, {point.high:.5g}]" if point.low < point.high else ""
            told = escape(f"{curve.name} {short(point.x)} frames: {point.value:.5g}{interval}".strip())
            parts.append(
                f'<circle class="mark {colour}" cx="{place[0]}" cy="{place[1]}" r="2.4"><title>{told}</title></circle>'
            )
    return _svg(height, panel.title, parts, width)


def time_line(live: Live) -> str:
    """Return the last second: a row for each worker, filled where its action was applied, and one for the frames."""
    workers = sorted({worker for worker, *_ in live.inferences})
    shown = {worker: row for row, worker in enumerate(workers[:_MOST_ROWS])}
    row_height = 12 if len(shown) <= 12 else 7
    height = _TOP + row_height * (len(shown) + 1) + 10 + _BOTTOM
    wide, whole = _WIDTH - _LEFT - _RIGHT, live.seconds * 1000

    def x(ms: float) -> float:
        return _LEFT + min(max(ms / whole, 0.0), 1.0) * wide

    parts = []
    step = max(1, math.ceil(len(shown) / 16))
    for worker, row in shown.items():
        if row % step == 0:
            y = _TOP + row_height * (row + 0.8)
            parts.append(f'<text class="end small" x="{_LEFT - 5}" y="{y:.1f}">{worker}</text>')
    for worker, began, ended, applied in live.inferences:
        if worker in shown and ended > 0:
            y, width = _TOP + row_height * shown[worker], max(x(ended) - x(began), 0.8)
            kind = "used" if applied else "lost"
            parts.append(
                f'<rect class="{kind}" x="{x(began):.1f}" y="{y + 1:.1f}" width="{width:.1f}" '
                f'height="{row_height - 2}" rx="1.5"><title>worker {worker}, {ended - began:.1f} ms</title></rect>'
            )
    y = _TOP + row_height * len(shown) + 6
    parts.append(f'<text class="end small" x="{_LEFT - 5}" y="{y + row_height - 2:.1f}">frames</text>')
    frame = wide / max(live.seconds * live.facts["fps"], 1)
    for began, age in live.frames:
        kind, told = ("idle", "default action") if age is None else ("used", f"action {age} frames old")
        parts.append(
            f'<rect class="{kind}" x="{x(began):.1f}" y="{y:.1f}" width="{max(frame - 0.6, 0.5):.2f}" '
            f'height="{row_height}"><title>{told}</title></rect>'
        )
    for share in (0.0, 0.5, 1.0):
        side = ("start", "middle", "end")[round(share * 2)]
        told = f"{(share - 1) * live.seconds:g} s" if share < 1 else "now"
        parts.append(f'<text class="{side}" x="{_LEFT + share * wide:.1f}" y="{height - 6}">{told}</text>')
    return _svg(height, "the workers' time line", parts)


def histogram(counts: Mapping[str, int], title: str) -> str:
    """Return a bar for each number, whose share of all stands above it."""
    ages = sorted((int(age), count) for age, count in counts.items())
    if not ages:
        return ""
    whole, height = sum(count for _, count in ages), 96
    least, most = ages[0][0], ages[-1][0]
    slots = max(most - least + 1, 6)
    slot = (_WIDTH - 2 * _RIGHT) / slots
    first = (slots - (most - least + 1)) / 2
    parts = []
    for age, count in ages:
        middle, tall = _RIGHT + (first + age - least + 0.5) * slot, count / max(c for _, c in ages) * (height - 36)
        parts.append(
            f'<rect class="used" x="{middle - slot * 0.4:.1f}" y="{height - 18 - tall:.1f}" width="{slot * 0.8:.1f}" '
            f'height="{max(tall, 0.7):.1f}"><title>{age}: {count / whole:.1%}</title></rect>'
        )
        if slots <= 16 or age in (least, most) or age % math.ceil(slots / 8) == 0:
            parts.append(f'<text class="middle" x="{middle:.1f}" y="{height - 5}">{age}</text>')
        if slots <= 9:
            parts.append(
                f'<text class="middle small" x="{middle:.1f}" y="{height - 22 - tall:.1f}">{count / whole:.0%}</text>'
            )
    return _svg(height, title, parts)


def trace(values: Sequence[float | None], title: str, top: float | None = None) -> str:
    """Return values, the newest at the right, as a small line; None is a gap.

    Args:
        values: The oldest first.
        title: What they are.
        top: Value at the upper edge; None for the greatest.
    """
    known = [value for value in values if value is not None]
    height, most = 42, max(top if top is not None else max(known, default=0.0), 1e-9)
    parts, run = [], list[str]()
    step = _WIDTH / max(len(values) - 1, 60)
    for place, value in enumerate([*values, None]):
        if value is not None:
            x = _WIDTH - (len(values) - 1 - place) * step
            run.append(f"{x:.1f},{height - 3 - min(value / most, 1.0) * (height - 6):.1f}")
        elif run:
            parts.append(f'<polyline class="line c0" points="{" ".join(run)}"/>')
            run = []
    return _svg(
        height, title, [f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{height - 2}" y2="{height - 2}"/>', *parts]
    )


def _svg(height: float, title: str, parts: Iterable[str], width: int = _WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


def short(value: float) -> str:
    """Return a number as on an axis: 400k, 2M, 0.03."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers that cover a range, about `most` of them."""
    span = high - low or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / most))
    step = next(step * times for times in (1, 2, 2.5, 5, 10) if span / (step * times) <= most)
    begin, end = math.floor(low / step), math.ceil(high / step - 1e-9)
    ticks = [round(place * step, 12) for place in range(begin, max(end, begin + 1) + 1)]
    return [tick for tick in ticks if tick <= high * (1 + 1e-9)] if low == 0 and high > 0 else ticks
