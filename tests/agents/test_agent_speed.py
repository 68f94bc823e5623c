"""The contestants of `benchmarks.agent_speed`: ours do the work that their peers do, and stop to wait."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from async_wrappers.agents.networks.q_network import count_parameters
from benchmarks.players.agents import peers_network

CONVOLUTIONS = (4 * 8 * 8 + 1) * 32 + (32 * 4 * 4 + 1) * 64 + (64 * 3 * 3 + 1) * 64
ATOMS_OF_ALL, ATOMS = 513 * 6 * 51, 513 * 51  # weights of the last layers


@pytest.mark.parametrize(
    ("agent", "parameters"),
    [
        ("rainbow", CONVOLUTIONS + (7744 + 1) * 512 + ATOMS_OF_ALL),
        ("full_rainbow", CONVOLUTIONS + 2 * (3136 + 1) * 512 + ATOMS_OF_ALL + ATOMS),
    ],
)
def test_our_network_is_as_large_as_the_peers(agent: str, parameters: int) -> None:
    network = peers_network(agent)((4, 84, 84), 6, 51)
    assert count_parameters(network) == parameters
    assert network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6, 51)


def test_a_turnstile_lets_as_many_steps_through_as_it_is_told_and_says_how_long_they_took() -> None:
    steps = """
from benchmarks.players.before_after import Turnstile
turnstile = Turnstile()
while True:
    turnstile.enter()
    print("step", flush=True)
"""
    told = subprocess.run(
        [sys.executable, "-c", steps], input="go 3\ngo 2\n", capture_output=True, text=True, timeout=60
    )
    assert told.stderr.count("step") == 5  # what a library prints does not get between the answers
    answers = [[float(seconds) for seconds in line.split()] for line in told.stdout.splitlines()]
    assert len(answers) == 2
    assert all(wall >= 0 and cpu >= 0 for wall, cpu in answers)
