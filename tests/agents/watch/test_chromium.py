"""The page in a real browser, wide and narrow, light and dark; it needs Chromium and its driver (`-m browser`)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from async_wrappers.agents.watch.browser import Server, key_of
from async_wrappers.agents.watch.watcher import Watcher
from tests.agents.watch.test_sweep import sweep_amid
from tests.worlds.chromium import Browser, browsing
from tests.worlds.recorded_run import hold, show_live, snapshot, write_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("chromium") / "profile") as opened:
        yield opened


class Watched:
    """Directories that are watched, and the page of them."""

    def __init__(self, place: Path) -> None:
        write_run(place / "turns")
        show_live(write_run(place / "live", gamma=0.5), snapshot(), np.zeros((6, 8), np.uint8))
        hold(place / "live")
        sweep_amid(place / "sweep")
        self.place = place
        self.server = Server(Watcher([place]), "127.0.0.1", 0)
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def address(self, name: str = "") -> str:
        return self.server.address + (f"run/{key_of(self.place / name)}" if name else "")

    def end(self) -> None:
        self.server.close()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("runs"))
    yield made
    if made.server is not None:
        made.end()


SHOWN = "[...document.querySelectorAll('section')].filter(each => each.offsetHeight > 0).map(each => each.id)"
PAGES = {
    "": {"bar", "sweeps", "returns", "runs", "machine"},
    "turns": {"bar", "head", "game", "returns", "rates", "times", "updates", "episodes", "machine"},
    "live": {"bar", "head", "game", "returns", "live", "rates", "times", "updates", "episodes", "machine"},
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_part_is_shown_and_fits_in_light_and_dark(
    browser: Browser, watched: Watched, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    browser.look(width, dark=dark)
    browser.open(watched.address(name))
    assert set(browser.run(f"return {SHOWN}")) == PAGES[name]
    assert browser.run("return document.documentElement.scrollWidth") == width
    beyond = (
        "[...document.querySelectorAll('section')].filter(s => s.getBoundingClientRect().right > innerWidth).length"
    )
    assert browser.run(f"return {beyond}") == 0
    back, ink = (browser.run(f"return getComputedStyle(document.body).{each}") for each in ("backgroundColor", "color"))
    assert (brightness(back) < brightness(ink)) == dark
    assert browser.run("return [...document.querySelectorAll('svg text')].every(t => t.getBBox().x > -1)")
    assert browser.run("return performance.getEntriesByType('resource').every(r => r.name.startsWith(location.origin))")
    picture = tmp_path / "page.png"
    browser.photograph(picture)
    assert picture.stat().st_size > 10_000


def brightness(colour: str) -> int:
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")[:3])


def test_the_page_goes_on_with_the_run_and_the_picture_moves(browser: Browser, watched: Watched) -> None:
    browser.look(1280)
    browser.open(watched.address("live"))
    middle = (
        "(() => {const c = document.createElement('canvas').getContext('2d'), f = document.getElementById('frame');"
    )
    middle += "if (!f.naturalWidth) return -1; c.drawImage(f, 0, 0); return c.getImageData(3, 3, 1, 1).data[0]})()"
    browser.wait_until(f"{middle} === 0")
    show_live(watched.place / "live", {**snapshot(), "score": 123.0}, np.full((6, 8), 200, np.uint8))
    browser.wait_until(f"{middle} === 200")
    browser.wait_until("document.getElementById('live').textContent.includes('123')")


def test_damage_is_told_while_the_page_is_open(browser: Browser, watched: Watched) -> None:
    browser.open(watched.address("turns"))
    path = watched.place / "turns" / "metrics" / "iterations.jsonl"
    whole = path.read_text()
    path.write_text("{")
    browser.wait_until("document.getElementById('problems').textContent.includes('iterations.jsonl is damaged')")
    path.write_text(whole)
    browser.wait_until("document.getElementById('problems').offsetHeight === 0")


def test_a_run_that_goes_and_a_watch_that_ends_are_told_on_the_page(browser: Browser, watched: Watched) -> None:
    browser.open(watched.address("turns"))
    shutil.rmtree(watched.place / "turns")
    browser.wait_until("document.getElementById('problems').textContent.includes('this run is gone')")
    assert "Drifting-v0" in browser.run("return document.getElementById('head').textContent")
    watched.end()
    watched.server = None  # type: ignore[assignment]
    browser.wait_until("document.getElementById('problems').textContent.includes('watch has ended')")
