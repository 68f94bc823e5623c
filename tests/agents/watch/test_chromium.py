"""The page in a real browser, wide and narrow, light and dark; it needs Chromium and its driver (`-m browser`)."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from async_wrappers.agents.experiment.metrics import EventWriter
from async_wrappers.agents.watch.browser import PageServer, key_of
from async_wrappers.agents.watch.reading import Folder
from async_wrappers.agents.watch.watched_run import read_run
from async_wrappers.agents.watch.watched_sweep import read_sweep
from async_wrappers.agents.watch.watcher import Watcher
from tests.agents.watch.test_strangers import FILES, places_in, strange_run, with_part
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
        self.server = PageServer(Watcher([place]), "127.0.0.1", 0)
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


def test_nothing_that_stands_in_a_file_runs_or_is_an_element_of_the_page(browser: Browser, tmp_path: Path) -> None:
    attack = "\"'></title></svg></section><script>window.hit=1</script><img src=x onerror=window.hit=2><p id=hit>"
    directory, sweep = tmp_path / f"x{attack.replace('/', '')}", tmp_path / "s"
    strange_run(directory)
    sweep_amid(sweep)
    (directory / "log.txt").write_text(attack)
    (directory / "config.gin").write_text(f"DQNAgent.gamma = {attack}\n")
    writer = EventWriter(directory / "metrics" / "tensorboard", purge_step=0)
    writer.scalar(attack, 1.0, 100)
    writer.close()
    for path in (*(directory / "metrics" / name for name in FILES), sweep / "sweep.json", *sweep.rglob("*e.json")):
        reads = read_sweep if path.is_relative_to(sweep) else read_run
        whole = json.loads(path.read_text())
        for place in [*places_in(whole)][:-1]:
            path.write_text(json.dumps(tried := with_part(whole, place, attack)) + "\n")
            if not reads(Folder(sweep if reads is read_sweep else directory)).problems:
                whole = tried
        path.write_text(json.dumps(whole) + "\n")
    server = PageServer(Watcher([tmp_path]), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        for address in ("", f"run/{key_of(directory)}"):
            browser.open(server.address + address)
            assert browser.run("return document.body.textContent.split('window.hit=1').length") > 3
            assert not browser.run("return document.body.dataset.lost")
            # The page's own hands put the same parts once more, as two seconds later.
            told = "fetch(location.pathname + '?parts').then(a => a.json()).then(found => {for (const [n, h] of "
            told += "Object.entries(found)) document.getElementById(n).innerHTML = h; document.body.dataset.put = 1})"
            browser.run(f"{told}")
            browser.wait_until("document.body.dataset.put")
            assert browser.run(
                "return [window.hit, document.querySelectorAll('#hit, [onerror], main script').length]"
            ) == [
                None,
                0,
            ]
    finally:
        server.close()
        thread.join(30)


def test_the_policy_stops_a_script_that_is_put_into_the_page_all_the_same(browser: Browser, watched: Watched) -> None:
    browser.open(watched.address())
    put = "document.getElementById('log').innerHTML = '<img src=x onerror=window.hit=1><p style=color:red>x</p>';"
    put += (
        "document.addEventListener('securitypolicyviolation', e => (window.refused ||= []).push(e.violatedDirective));"
    )
    browser.run(put)
    browser.wait_until("(window.refused || []).length >= 1")
    assert browser.run(
        "return [window.hit, getComputedStyle(document.querySelector('#log p')).color == 'rgb(255, 0, 0)']"
    ) == [
        None,
        False,
    ]


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
