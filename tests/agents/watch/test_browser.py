"""The browser's face, asked over HTTP; `test_chromium.py` looks at it in a browser."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from werkzeug.test import Client

from async_wrappers.agents.watch import browser
from async_wrappers.agents.watch.browser import LOOPBACK, Page, PageServer, key_of
from async_wrappers.agents.watch.watcher import Watcher
from tests.agents.watch.test_sweep import sweep_amid
from tests.worlds.recorded_run import hold, show_live, snapshot, words_in, write_run


def client(*places: Path, trusted: tuple[str, ...] = ()) -> Client:
    """Return what asks a page; each question is answered anew."""
    clock = iter(range(0, 10**6, 100))
    return Client(Page(Watcher(places, lambda: float(next(clock))), trusted))


def parts(asked: Client, path: str = "/") -> dict[str, str]:
    answer = asked.get(f"{path}?parts")
    assert answer.status_code == 200
    return json.loads(answer.get_data(as_text=True))  # type: ignore[no-any-return]


def test_the_page_of_one_run_has_all_that_is_known(tmp_path: Path) -> None:
    shown = parts(client(write_run(tmp_path / "mine", report=True)))
    assert words_in(shown["bar"], "mine", "finished") == []
    assert words_in(shown["head"], "2 / 4", "training frames", "Drifting-v0", "DQNAgent", 'width="50.00"') == []
    assert shown["returns"].count("<svg") == 2
    assert shown["returns"].count('class="band c0"') == 2
    assert words_in(shown["rates"], "frames/s in training", "actions per second") == []
    assert words_in(shown["times"], "acting", "0.5 s", "25 %", "losses", "other") == []
    assert words_in(shown["updates"], "Loss", "0.5") == []
    assert words_in(shown["episodes"], "train 9", "eval 3") == []
    assert words_in(shown["results"], "random", "[0.5, 1.5]") == []
    assert words_in(shown["machine"], "cores", "in use") == []
    assert (shown["live"], shown["problems"], shown["hosts"]) == ("", "", "")
    assert words_in(shown["game"], "evaluate --base_dir", "--video") == []


def test_the_whole_page_holds_the_same_parts_and_takes_nothing_from_elsewhere(tmp_path: Path) -> None:
    asked = client(write_run(tmp_path))
    answer = asked.get("/")
    page = answer.get_data(as_text=True)
    assert "Drifting-v0" in page
    assert not re.findall(r"(?:src|href)=.(?:https?:)?//", page)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Cache-Control"] == "no-store"
    assert len(page) < 60_000


def test_only_the_pages_own_script_and_style_have_the_nonce_that_the_policy_asks_for(tmp_path: Path) -> None:
    asked = client(show_live(write_run(tmp_path / "a"), snapshot()), sweep_amid(tmp_path / "s").directory)
    nonces = set()
    for path in ("/", f"/run/{key_of(tmp_path / 'a')}", "/run/00"):
        answer = asked.get(path)
        policy, page = answer.headers["Content-Security-Policy"], answer.get_data(as_text=True)
        (nonce,) = set(re.findall(r"'nonce-([\w-]{22})'", policy))
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert re.findall(r"<(?:script|style)[^>]*>", page) == (
            [f'<style nonce="{nonce}">', f'<script nonce="{nonce}">'] if answer.status_code == 200 else []
        )
        assert not re.search(r"\s(?:style|on\w+)=", page)
        nonces.add(nonce)
    assert len(nonces) == 3
    for path in ("/?parts", "/run/00/picture", "/favicon.ico"):
        assert asked.get(path).headers["X-Content-Type-Options"] == "nosniff"


def test_a_live_run_has_its_picture_its_time_line_and_its_ages(tmp_path: Path) -> None:
    directory = show_live(tmp_path, snapshot(), np.full((3, 4), 7, np.uint8), under=".")
    asked = client(directory)
    shown = parts(asked)
    assert words_in(shown["live"], "75.0 %", "of 60 frames/s", "2<small", "/ 5", "worker 1, 30.0 ms") == []
    assert shown["live"].count('class="idle"') == 30
    answer = asked.get(f"/run/{key_of(directory)}/picture")
    assert np.asarray(Image.open(io.BytesIO(answer.data))).tolist() == [[[7] * 3] * 4] * 3
    assert f"/run/{key_of(directory)}/picture" in shown["game"]
    (directory / "now.npy").write_bytes(b"damaged")
    assert asked.get(f"/run/{key_of(directory)}/picture").status_code == 404
    assert "now.npy is damaged" in parts(asked)["problems"]


def test_the_newest_video_is_served_in_parts_too(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    asked = client(directory)
    video = f"/run/{key_of(directory)}/video"
    assert asked.get(video).status_code == 404
    (directory / "videos").mkdir()
    (directory / "videos" / "evaluation-episode-0.mp4").write_bytes(bytes(range(100)))
    assert f'src="{video}?' in parts(asked)["game"]
    answer = asked.get(video, headers={"Range": "bytes=10-19"})
    assert (answer.status_code, answer.data) == (206, bytes(range(10, 20)))
    assert asked.get(video).data == bytes(range(100))
    assert asked.get(video, headers={"Range": "bytes=200-"}).status_code == 416


def test_a_video_that_is_a_link_to_another_file_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    directory = write_run(tmp_path / "results" / "a")
    (directory / "videos").mkdir()
    (directory / "videos" / "a.mp4").write_bytes(b"film")
    asked = client(directory)
    parts(asked)
    (directory / "videos" / "b.mp4").symlink_to(tmp_path / "secret")
    os.utime(tmp_path / "secret", (2**32, 2**32))  # it would be the newest one
    video = f"/run/{key_of(directory)}/video"
    assert asked.get(video).data == b"film"
    assert "b.mp4 is a link that leads out of" in parts(asked)["problems"]
    (directory / "videos" / "a.mp4").unlink()
    assert asked.get(video).status_code == 404


def test_several_runs_and_a_sweep_are_a_list_with_a_page_for_each(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", gamma=0.5)
    sweep_amid(tmp_path / "s")
    asked = client(tmp_path)
    shown = parts(asked)
    assert (
        words_in(shown["sweeps"], "3 / 6", "gamma 0.99", ">waiting</a>", 'class="trial failed"', "the game broke") == []
    )
    assert shown["returns"].count('class="legend"') == 2
    key = key_of(tmp_path / "b")
    assert f'href="/run/{key}"' in shown["runs"]
    assert words_in(parts(asked, f"/run/{key}")["bar"], "b", 'href="/"') == []
    trial = key_of(tmp_path / "s" / "trials" / "0004")
    assert f'href="/run/{trial}"' in shown["sweeps"]
    assert "1 / 4" in parts(asked, f"/run/{trial}")["head"]


def test_runs_of_several_environments_have_panels_of_their_own(tmp_path: Path) -> None:
    for number, environment in enumerate(("Drifting-v0", "Drifting-v0", "CartPole-v1")):
        write_run(tmp_path / f"{number}", seed=number, environment=environment)
    returns = parts(client(tmp_path))["returns"]
    titles = re.findall(r'<h3 title="([^"]*)"', returns)
    assert len(titles) == 4
    for environment in ("Drifting-v0", "CartPole-v1"):
        assert sum(title.endswith(f", {environment}") for title in titles) == 2
    assert "mean of up to 2 runs" in returns and "a run for each curve" in returns


def test_a_run_that_is_damaged_or_goes_while_it_is_watched_is_a_sentence(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "mine")
    asked = client(tmp_path)
    path = f"/run/{key_of(directory)}"
    assert parts(asked, path)["problems"] == ""
    (directory / "metrics" / "iterations.jsonl").write_text("{")
    shown = parts(asked, path)
    assert words_in(shown["problems"], "iterations.jsonl is damaged") == []
    assert "train 9" in shown["episodes"]
    shutil.rmtree(directory)
    assert "mine is gone" in parts(asked)["problems"]
    assert asked.get(path).status_code == 404


def test_names_of_directories_are_no_html(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "<b>x")
    (directory / "report.json").write_text('[{"agent": "<i>", "mean": 1}]')
    (directory / "log.txt").write_text("<script>\n")
    page = client(directory).get("/").get_data(as_text=True)
    assert [word for word in ("<b>x", "<i>", "<script>\n</pre>") if word in page] == []
    assert "&lt;b&gt;x" in page


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8600", 200),
        ("LOCALHOST", 200),
        ("[::1]:8600", 200),
        ("elsewhere.example:8600", 404),
        ("127.0.0.1.elsewhere.example", 404),
        ("[", 404),
    ],
)
def test_it_only_answers_who_asks_for_this_machine(tmp_path: Path, host: str, status: int) -> None:
    asked = client(write_run(tmp_path), trusted=LOOPBACK)
    assert asked.get("/", headers={"Host": host}).status_code == status


def test_it_is_only_asked_and_serves_no_other_file(tmp_path: Path) -> None:
    asked = client(write_run(tmp_path))
    assert asked.post("/").status_code == 405
    assert asked.get("/run/../../etc/passwd").status_code == 404
    assert asked.get("/run/00000000/video").status_code == 404


@contextmanager
def served(watcher: Any) -> Iterator[PageServer]:
    server = PageServer(watcher, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(30)
        assert not thread.is_alive()


def test_a_browser_that_goes_away_is_nobodys_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hold(write_run(tmp_path))
    with served(Watcher([tmp_path])) as server:
        host, port = server.address.removeprefix("http://").removesuffix("/").split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset, not closed
        asked = http.client.HTTPConnection(host, int(port), timeout=30)
        asked.request("GET", "/?parts")
        assert asked.getresponse().status == 200
        asked.close()
    assert capfd.readouterr() == ("", "")


def test_of_very_many_browsers_that_do_not_read_the_oldest_give_way_and_none_outlives_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "_MOST_OPEN", 8)
    before = set(threading.enumerate())
    with served(Watcher([write_run(tmp_path)])) as server, ExitStack() as opened:
        host, port = server.address.removeprefix("http://").removesuffix("/").split(":")
        silent = [opened.enter_context(socket.create_connection((host, int(port)), timeout=30)) for _ in range(30)]
        asked = http.client.HTTPConnection(host, int(port), timeout=30)
        asked.request("GET", "/?parts")
        assert asked.getresponse().status == 200
        asked.close()
        assert [each.recv(1) for each in silent[:20]] == [b""] * 20
    assert set(threading.enumerate()) <= before
    assert [each.fileno() for each in silent] == [-1] * 30
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_an_error_of_the_system(tmp_path: Path) -> None:
    watcher = Watcher([write_run(tmp_path)])
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        PageServer(watcher, "127.0.0.1", taken.getsockname()[1])
