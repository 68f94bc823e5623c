"""The image's commands are the README's: it installs what both install, and runs the first one's program."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^python3 -m venv \.venv && (\S+) -m pip install -e '\.\[(\w+)\]' (-c \S+) && (.+)$", re.M)
RUN = re.compile(r"^RUN python3 -m venv \.venv && (\S+) -m pip .* -e '\.\[([\w,]+)\]' (-c \S+) ", re.M)


def image() -> str:
    return (ROOT / "Dockerfile").read_text()


def test_the_image_installs_what_the_two_commands_install_and_runs_the_first() -> None:
    first, second = COMMAND.findall((ROOT / "README.md").read_text())
    [[python, extras, constraints]] = RUN.findall(image())
    assert (python, constraints) == (first[0], first[2]) == (second[0], second[2])
    assert second[1] in extras.split(",")
    declared = (ROOT / "setup.cfg").read_text().partition("\ndev =\n")[2].splitlines()[0]
    assert first[1] in re.split(r"[\[\],]", declared)  # `dev` brings `all`
    [run] = re.findall(r"^CMD (.+)$", image(), re.M)
    assert " ".join(json.loads(run)) == first[3]
    assert second[3] in image()


def test_the_images_python_is_one_that_the_package_takes() -> None:
    [version] = re.findall(r"^FROM python:(\d+\.\d+)-slim$", image(), re.M)
    assert f"Programming Language :: Python :: {version}" in (ROOT / "setup.cfg").read_text()


def test_the_image_leaves_out_what_a_fresh_clone_does_not_have() -> None:
    assert {".venv", "results"} <= set((ROOT / ".dockerignore").read_text().split("\n"))
