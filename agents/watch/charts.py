"""Charts as SVG: curves with bands, the workers' time line, ages, loads. Colours are the page's, so both themes fit.

`_element` makes every element, and escapes what is in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from async_wrappers.agents.watch.curves import Panel
from async_wrappers.agents.watch.last_shown import LiveSnapshot

COLOURS = 8
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 170, 44, 22, 8, 8
_MOST_ROWS = 32


def _element(name: str, text: object = "", title: str = "", parts: Iterable[str] = (), **attributes: object) -> str:
    """Return an element with elements as its parts; its attributes, its title and its text are escaped."""
    words = "".join([f' {_SPELT.get(key, key)}="{escape(str(value))}"' for key, value in attributes.items()])
    told = f"<title>{escape(title)}</title>" if title else ""
    return f"<{name}{words}>{told}{escape(str(text))}{''.join(parts)}</{name}>"


_SPELT = {"class_": "class", "aria_label": "aria-label", "stroke_dasharray": "stroke-dasharray"}


def _svg(height: float, title: str, parts: Iterable[str], width: int = _WIDTH) -> Markup:
    box = f"0 0 {width} {height:.0f}"
    return Markup(_element("svg", parts=parts, viewBox=box, role="img", aria_label=title))


def chart(panel: Panel, small: bool = False) -> Markup:
    """Return a panel: dots of episodes, bands, curves, and axes with round numbers; a small one is half as wide."""
    width, height, left = (172, 64, 36) if small else (_WIDTH, _HEIGHT, _LEFT)
    points = [point for curve in panel.curves for point in curve.points]
    xs = [point.x for point in points] + [x for x, _ in panel.dots]
    ys = [bound for point in points for bound in (point.low, point.high)] + [y for _, y in panel.dots]
    if not xs:
        return Markup("")
    x_ticks, y_ticks = [] if small else _ticks(0.0, max(xs), 4), _ticks(min(ys), max(ys), 1 if small else 3)
    x_end, low, high = max(*xs, 1e-9), min(*ys, y_ticks[0]), max(*ys, y_ticks[-1])
    wide, tall = width - left - _RIGHT, height - _TOP - (6 if small else _BOTTOM)

    def at(x: float, y: float) -> str:
        return f"{left + x / x_end * wide:.1f},{_TOP + (high - y) / max(high - low, 1e-12) * tall:.1f}"

    parts = []
    for y in y_ticks:
        x0, y0 = at(0, y).split(",")
        parts.append(_element("line", class_="grid", x1=x0, x2=width - _RIGHT, y1=y0, y2=y0))
        parts.append(_element("text", short(y), class_="end", x=left - 5, y=f"{float(y0) + 3.5:.1f}"))
    for x in x_ticks:
        x0 = at(x, low).partition(",")[0]
        side = "end" if x == x_ticks[-1] and float(x0) > _WIDTH - 30 else "middle"
        parts.append(_element("text", short(x), class_=side, x=x0, y=height - 6))
    if panel.dots:  # each is a line without length, whose round ends are the dot
        parts.append(_element("path", class_="dot", d="".join(f"M{at(x, y)}h0" for x, y in panel.dots)))
    for number, curve in enumerate(panel.curves):
        colour = f"c{number % COLOURS}"
        dash = {"stroke_dasharray": "5 3"} if number // COLOURS % 2 else {}
        if any(point.low < point.high for point in curve.points):
            bounds = [at(p.x, p.high) for p in curve.points] + [at(p.x, p.low) for p in reversed(curve.points)]
            parts.append(_element("polygon", class_=f"band {colour}", points=" ".join(bounds)))
        line = " ".join(at(point.x, point.value) for point in curve.points)
        parts.append(_element("polyline", class_=f"line {colour}", points=line, **dash))
        for point in curve.points[-1:] if len(curve.points) > 30 else curve.points:
            x0, y0 = at(point.x, point.value).split(",")
            interval = f" [{point.low:.5g}, {point.high:.5g}]" if point.low < point.high else ""
            told = f"{curve.name[:80]} {short(point.x)} frames: {point.value:.5g}{interval}".strip()
            parts.append(_element("circle", title=told, class_=f"mark {colour}", cx=x0, cy=y0, r=2.4))
    return _svg(height, panel.title, parts, width)


def time_line(live: LiveSnapshot) -> Markup:
    """Return the last second: a row for each worker, filled where its action was applied, and one for the frames."""
    workers = sorted({worker for worker, *_ in live.inferences})
    shown = {worker: row for row, worker in enumerate(workers[:_MOST_ROWS])}
    row_height = 12 if len(shown) <= 12 else 7
    height = _TOP + row_height * (len(shown) + 1) + 10 + _BOTTOM
    wide, whole = _WIDTH - _LEFT - _RIGHT, live.seconds * 1000

    def x(ms: float) -> float:
        return _LEFT + min(max(ms / whole, 0.0), 1.0) * wide

    def bar(kind: str, told: str, begin: float, width: str, y: float, tall: int, **more: float) -> str:
        place: Any = {"x": f"{begin:.1f}", "y": f"{y:.1f}", "width": width, "height": tall, **more}
        return _element("rect", title=told, class_=kind, **place)

    parts = []
    step = max(1, math.ceil(len(shown) / 16))
    for worker, row in shown.items():
        if row % step == 0:
            y = _TOP + row_height * (row + 0.8)
            parts.append(_element("text", worker, class_="end small", x=_LEFT - 5, y=f"{y:.1f}"))
    for worker, began, ended, applied in live.inferences:
        if worker in shown and ended > 0:
            kind, told = "used" if applied else "lost", f"worker {worker}, {ended - began:.1f} ms"
            y, width = _TOP + row_height * shown[worker] + 1, f"{max(x(ended) - x(began), 0.8):.1f}"
            parts.append(bar(kind, told, x(began), width, y, row_height - 2, rx=1.5))
    y = _TOP + row_height * len(shown) + 6
    parts.append(_element("text", "frames", class_="end small", x=_LEFT - 5, y=f"{y + row_height - 2:.1f}"))
    frame = wide / max(live.seconds * live.facts["fps"], 1)
    going = set(live.chunks)
    for number, (began, age) in enumerate(live.frames):
        kind, told = ("idle", "default action") if age is None else ("used", f"action {age} frames old")
        kind = "chunk" if number in going else kind
        parts.append(bar(kind, told, x(began), f"{max(frame - 0.6, 0.5):.2f}", y, row_height))
    for share in (0.0, 0.5, 1.0):
        side = ("start", "middle", "end")[round(share * 2)]
        told = f"{(share - 1) * live.seconds:g} s" if share < 1 else "now"
        parts.append(_element("text", told, class_=side, x=f"{_LEFT + share * wide:.1f}", y=height - 6))
    return _svg(height, "the workers' time line", parts)


def histogram(counts: Mapping[int, int], title: str) -> Markup:
    """Return a bar for each number, whose share of all stands above it."""
    ages = sorted((age, count) for age, count in counts.items() if count)
    if not ages:
        return Markup("")
    whole, height = sum(count for _, count in ages), 96
    least, most = ages[0][0], ages[-1][0]
    slots = max(most - least + 1, 6)
    slot = (_WIDTH - 2 * _RIGHT) / slots
    first = (slots - (most - least + 1)) / 2
    parts = []
    for age, count in ages:
        middle, tall = _RIGHT + (first + age - least + 0.5) * slot, count / max(c for _, c in ages) * (height - 36)
        place = {"x": f"{middle - slot * 0.4:.1f}", "y": f"{height - 18 - tall:.1f}", "width": f"{slot * 0.8:.1f}"}
        told = f"{age}: {count / whole:.1%}"
        parts.append(_element("rect", title=told, class_="used", height=f"{max(tall, 0.7):.1f}", **place))
        if slots <= 16 or age in (least, most) or age % math.ceil(slots / 8) == 0:
            parts.append(_element("text", age, class_="middle", x=f"{middle:.1f}", y=height - 5))
        if slots <= 9:
            place = {"x": f"{middle:.1f}", "y": f"{height - 22 - tall:.1f}"}
            parts.append(_element("text", f"{count / whole:.0%}", class_="middle small", **place))
    return _svg(height, title, parts)


def trace(values: Sequence[float | None], title: str, top: float | None = None) -> Markup:
    """Return values, the newest at the right, as a small line; None is a gap.

    Args:
        values: The oldest first.
        title: What they are.
        top: Value at the upper edge; None for the greatest.
    """
    known = [value for value in values if value is not None]
    height, most = 42, max(top if top is not None else max(known, default=0.0), 1e-9)
    parts, run = [_element("line", class_="grid", x1=0, x2=_WIDTH, y1=height - 2, y2=height - 2)], list[str]()
    step = _WIDTH / max(len(values) - 1, 60)
    for place, value in enumerate([*values, None]):
        if value is not None:
            x = _WIDTH - (len(values) - 1 - place) * step
            run.append(f"{x:.1f},{height - 3 - min(value / most, 1.0) * (height - 6):.1f}")
        elif run:
            parts.append(_element("polyline", class_="line c0", points=" ".join(run)))
            run = []
    return _svg(height, title, parts)


def bar(parts: Sequence[tuple[str, float, str]]) -> Markup:
    """Return parts of a whole side by side: of each the class, the share and the words."""
    begin, drawn = 0.0, []
    for kind, share, words in parts:
        place: Any = {"x": f"{100 * begin:.2f}", "width": f"{100 * share:.2f}", "height": 1}
        drawn.append(_element("rect", title=words, class_=kind, **place))
        begin += share
    box = {"viewBox": "0 0 100 1", "preserveAspectRatio": "none"}
    return Markup(_element("svg", parts=drawn, class_="bar", **box))


def short(value: float) -> str:
    """Return a number as on an axis: 400k, 2M, 0.03."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers that cover a range, about `most` of them."""
    # Not less than can be told apart, and not 0 when it is divided.
    span = max(high - low or abs(high) or 1.0, 1e-9 * max(abs(low), abs(high)), 1e-100)
    step = 10 ** math.floor(math.log10(span / most))
    step = next(step * times for times in (1, 2, 2.5, 5, 10) if times == 10 or span / (step * times) <= most)
    begin, end = math.floor(low / step), math.ceil(high / step - 1e-9)
    ticks = [round(place * step, 12) for place in range(begin, max(end, begin + 1) + 1)]
    return [tick for tick in ticks if tick <= high * (1 + 1e-9)] if low == 0 and high > 0 else ticks
