"""Dopamine-style agents in PyTorch: policies, learners, replay and the experiment runner, bound by gin files."""

# Another package on PyPI has the name `agents`. A second copy of this one would register its gin names twice.
if __name__ != "async_wrappers.agents":
    raise ImportError("import this package as async_wrappers.agents, not as agents")

from importlib.util import find_spec

__all__ = ["LIBRARIES"]

# What is imported, here or there, beyond what async_wrappers itself needs.
LIBRARIES = ("absl", "gin", "jinja2", "matplotlib", "safetensors", "scipy", "tensorboard", "torch", "tqdm")
# Before a long import ends in the middle.
if missing := [name for name in LIBRARIES if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"{__name__} needs the extra 'agents' (No module named {missing[0]!r}): pip install 'async-wrappers[agents]'",
        name=__name__,
    )
