"""The command `watch`: each mistake is one sentence, Ctrl+C ends it."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.command_line import call, refused, start
from tests.worlds.recorded_run import write_run

__all__ = ["call"]


def test_it_prints_its_address_answers_there_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mine")
    process = start(tmp_path, "watch", str(run), "--port", "0")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"watching .*mine at (http://127\.0\.0\.1:\d+/) \(Ctrl\+C ends it\)\n", line)
        assert found is not None, line
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(found[1], timeout=60) as answer:
            assert b"Drifting-v0" in answer.read()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 15, 19)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_another_host_than_this_machine_is_told_with_the_flag_and_the_remedy(tmp_path: Path) -> None:
    process = start(tmp_path, "watch", str(write_run(tmp_path / "mine")), "--port", "0", "--host", "0.0.0.0")
    try:
        assert process.stdout is not None
        port = process.stdout.readline().partition("http://0.0.0.0:")[2].partition("/")[0]
        assert process.stdout.readline() == (
            "--host 0.0.0.0 lets everybody who reaches this machine read it: for yourself alone leave it out, and open "
            f"the page through `ssh -L {port}:127.0.0.1:{port} SERVER`\n"
        )
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_a_host_that_is_not_this_machines_is_one_sentence(call: Any, tmp_path: Path) -> None:
    done = call("watch", str(write_run(tmp_path)), "--host", "192.0.2.1", "--port", "0")
    assert refused(done) == (
        "--host 192.0.2.1 --port 0 cannot be listened on (Cannot assign requested address): give --host an address of "
        "this machine"
    )


def test_text_is_printed_once_into_a_pipe(call: Any, tmp_path: Path) -> None:
    done = call("watch", str(write_run(tmp_path / "mine")), "--text")
    assert (done.code, done.err) == (0, "")
    assert "mine stopped" in done.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["nowhere"],
            "nowhere is no directory: name a --base_dir of train.py, several, or a directory that holds them",
        ),
        ([], "results is no directory"),
        (["--port", "70000"], "--port: must be a whole number from 0 to 65535, got '70000'"),
        (["--seed", "3"], "watch has no flag --seed, which belongs to"),
    ],
)
def test_a_mistake_is_one_sentence(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(call("watch", *words)).startswith(sentence)


def test_a_port_that_is_taken_is_one_sentence(call: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = call("watch", str(write_run(tmp_path)), "--port", str(port))
    assert refused(done) == (
        f"--host 127.0.0.1 --port {port} cannot be listened on (Address already in use): give another --port, or 0 for "
        "a free one"
    )
