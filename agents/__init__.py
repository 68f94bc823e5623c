"""Dopamine-style agents in PyTorch: policies, learners, replay and the experiment runner, bound by gin files."""

# Another package on PyPI has the name `agents`. A second copy of this one would register its gin names twice.
if __name__ != "async_wrappers.agents":
    raise ImportError("import this package as async_wrappers.agents, not as agents")

from async_wrappers.agents.extras import need_agents

need_agents(__name__)
