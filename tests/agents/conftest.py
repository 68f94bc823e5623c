"""What tests of agents share: they leave gin without bindings and PyTorch's threads as they were, and may fork."""

from __future__ import annotations

from tests.worlds.bindings import no_bindings  # noqa: F401 - a fixture
from tests.worlds.fork_server import children_of_a_server, fork_server  # noqa: F401 - fixtures
