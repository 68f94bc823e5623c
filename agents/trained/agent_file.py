"""A trained agent in one file: the weights it acts with, the configuration that builds it, and what it is.

The file is one of safetensors: arrays, and texts by name. Nothing in it is unpickled. Its texts are

* ``format``: ``"async_wrappers.agent.1"``;
* ``config.gin``: the gin configuration, which may import modules and is refused or trusted as that of a run;
* ``about``: as JSON, environment, agent, delay, seed, command, frames, score, version and licence;
* ``identity``: as JSON, what is compared before weights are loaded, as in a checkpoint;
* ``state``: as JSON, the learner's state as `LearnerInterface.load_policy` reads it, with a name for each array;
* ``statistics``: as JSON, those of the environment's wrappers, where there are any;
* ``sha256``: of the other texts and of the arrays.

Some agents ship with this package, in ``agents/trained``; a file's place there is its name, as ``"minatar/breakout"``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from async_wrappers.files import path_of, refuse_damage, write_atomically
from async_wrappers.printing import printable

SUFFIX = ".safetensors"
_SHIPPED = Path(__file__).parent
_FORMAT = "async_wrappers.agent.1"
_TEXTS = ("format", "config.gin", "about", "identity", "state", "sha256")
# What makes a directory a run, which a shipped agent of the same name does not hide.
_OF_A_RUN = ("config.gin", "checkpoints")


class AgentFile(NamedTuple):
    """What a file holds.

    Attributes:
        config: The gin configuration.
        about: What the agent is; see the module.
        bundle: As `checkpoint.read_bundle` returns it, with the weights alone.
    """

    config: str
    about: dict[str, Any]
    bundle: dict[str, Any]


# Names.


def shipped_agents() -> dict[str, Path]:
    """Return the files of the agents that ship, by name."""
    files = sorted(_SHIPPED.rglob(f"*{SUFFIX}"))
    return {path.relative_to(_SHIPPED).with_suffix("").as_posix(): path for path in files}


def agent_path(name: str | Path) -> Path:
    """Return the path that a name stands for: the file of an agent that ships, or the name itself as a path.

    A file, or the directory of a run, that is there under this name wins.
    """
    path = path_of(name)
    there = os.path.isfile(path) or any(os.path.exists(path / part) for part in _OF_A_RUN)
    return path if there else shipped_agents().get(path.as_posix(), path)


def is_agent_file(path: Path) -> bool:
    """Return whether a path is named as a file of an agent."""
    return path.suffix == SUFFIX


def no_such_agent(argument: str, name: str | Path, places: str = "") -> str:
    """Return the sentence that refuses a name.

    Args:
        argument: What the name was given as.
        name: It.
        places: Where else an agent may come from, such as ``"a run's directory, "``.
    """
    known = shipped_agents()
    close = get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return (
        f"{argument} must be {places}a {SUFFIX} file of an agent, or one that ships ({', '.join(known) or 'none'}), "
        f"got {str(name)!r}{hint}"
    )


# Reading.


def read_config(path: Path) -> str:
    """Return the gin configuration of a file; of another file its text, which is one.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged, or no agent's file.
    """
    return _texts(path)["config.gin"] if is_agent_file(path) else path.read_text(encoding="utf-8-sig")


def read_about(path: Path) -> dict[str, Any]:
    """Return what a file says of its agent, without reading the weights.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged, or no agent's file.
    """
    text = _texts(path)["about"]
    with refuse_damage(path, _REMEDY):
        about = _about(text)
        # What is shown of an agent must be there.
        if any(not isinstance(about[name], str) for name in ("environment", "agent", "delay", "licence")):
            raise TypeError("a text is missing")
        score_in_words(about)
        return about


def read_agent(path: Path) -> AgentFile:
    """Read a file, checked against its SHA-256.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged, or no agent's file.
    """
    texts = _texts(path)
    try:
        with _opened(path, "pt") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no dict
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): {_REMEDY}") from None
    if _sha256(texts, arrays) != texts["sha256"]:
        raise ValueError(f"{path} is damaged (its SHA-256 is not the one recorded): {_REMEDY}")
    with refuse_damage(path, _REMEDY):
        about = _about(texts["about"])
        state = _with_arrays(json.loads(texts["state"]), arrays)
        bundle = {"identity": json.loads(texts["identity"]), "agent": {"learner": state}, "frames": about["frames"]}
        bundle["statistics"] = json.loads(texts.get("statistics", "{}"))
    return AgentFile(texts["config.gin"], about, bundle)


_REMEDY = "take another copy of it"


def _about(text: str) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(text)
    if not isinstance(about["frames"], int):
        raise TypeError(f"frames is {about['frames']!r}")
    return about


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[Any]:
    """Open a file with safetensors, which neither says why it cannot open one nor takes a path that is no UTF-8."""
    with open(path, "rb") as file:
        name = str(path) if printable(path) == str(path) else f"/dev/fd/{file.fileno()}"
        with safe_open(name, kind) as opened:
            yield opened


def _texts(path: Path) -> dict[str, str]:
    if path.exists() and not path.is_file():  # to open a pipe would wait for its other end
        raise ValueError(f"{path} is a directory or a device, and no {SUFFIX} file of an agent")
    try:
        with _opened(path, "np") as file:
            texts: dict[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or no {SUFFIX} file ({error}): {_REMEDY}") from None
    if not texts.get("format", "").startswith("async_wrappers.agent."):
        raise ValueError(
            f"{path} holds no agent of async_wrappers, whose metadata has a format, but other weights: name a file "
            "that `train.py export` has written"
        )
    if texts["format"] != _FORMAT:
        raise ValueError(f"{path} has the format {texts['format']!r}, and this version reads {_FORMAT!r} alone")
    if missing := [name for name in _TEXTS if name not in texts]:
        raise ValueError(f"{path} is damaged (its metadata has no {missing[0]!r}): {_REMEDY}")
    return texts


# Writing.


def write_agent(
    path: Path,
    config: str,
    about: Mapping[str, Any],
    identity: Mapping[str, Any],
    state: Mapping[str, Any],
    statistics: Mapping[str, Any] | None = None,
) -> None:
    """Write a file, whole or not at all.

    Args:
        path: Of the file; its directory is made.
        config: The gin configuration that builds agent and environment.
        about: What the agent is, as plain data, with its ``"frames"`` of training.
        identity: The agent's.
        state: The learner's, as `LearnerInterface.load_policy` reads it: tensors, arrays and plain data.
        statistics: Those of the environment's wrappers, if there are any.

    Raises:
        ValueError: The state holds something else.
    """
    from safetensors.torch import save

    arrays: dict[str, Any] = {}
    named = _without_arrays(state, "", arrays)
    texts = {
        "format": _FORMAT,
        "config.gin": config,
        "about": json.dumps(about, indent=1),
        "identity": json.dumps(identity),
        "state": json.dumps(named),
        **({"statistics": json.dumps(statistics)} if statistics else {}),
    }
    content = save(arrays, {**texts, "sha256": _sha256(texts, arrays)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(content))


def _without_arrays(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Return a state as JSON holds it, and put its arrays into `arrays`, each under the way that leads to it."""
    import torch

    if isinstance(value, np.ndarray):
        # Copied: one that is a view of another cannot be stored beside it.
        arrays[name] = torch.from_numpy(np.array(value))
        return {"array": name}
    if isinstance(value, torch.Tensor):
        arrays[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {
            "dict": {
                key: _without_arrays(each, f"{name}/{key}" if name else key, arrays) for key, each in value.items()
            }
        }
    if isinstance(value, list | tuple):
        return {"list": [_without_arrays(each, f"{name}/{place}", arrays) for place, each in enumerate(value)]}
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(
        f"an agent's file holds tensors, arrays and plain data, and its learner's state has {name!r}, a "
        f"{type(value).__name__}: leave it out of the learner's policy_state()"
    )


def _with_arrays(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Return the state that `_without_arrays` was given; its tuples have become lists."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return arrays[content]
    if kind == "array":
        return arrays[content].numpy()
    if kind == "dict":
        return {key: _with_arrays(each, arrays) for key, each in content.items()}
    return [_with_arrays(each, arrays) for each in content]


def _sha256(texts: Mapping[str, str], arrays: Mapping[str, Any]) -> str:
    import torch

    digest = hashlib.sha256()
    for name in sorted({*texts} - {"sha256"}):
        digest.update(json.dumps([name, texts[name]]).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        digest.update(array.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def score_in_words(about: Mapping[str, Any]) -> str:
    """Return a score in words, with that of random play."""
    score = about["score"]
    low, high = score["interval"]
    return (
        f"mean return {score['mean']:.1f} (95 % interval {low:.1f} to {high:.1f}, {score['episodes']} episodes), "
        f"random play {score['random']['mean']:.1f}"
    )
