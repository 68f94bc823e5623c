"""Needs and offers: which settings need what something beside them does not offer, and the sentence that says so.

A table has a row for each such setting::

    "no core of its own": Beside(
        "where this process may use one core alone",
        Need("core", None, why="..", remedy=".."),
    )

Whoever knows what there is, a way of playing, a replay or a wrapper, gives `refuse` the rows of that and the settings.
A setting without a row is offered. So an option is a row for each thing that lacks it, and no branch in any of them.
`TABLE` is of realtime; agents have their own, `async_wrappers.agents.needs_and_offers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Words(str):
    """Words that a sentence has without quotation marks."""

    def __repr__(self) -> str:
        """Return the words."""
        return str(self)


class Need:
    """A setting of which all values but one need what is not offered.

    Args:
        setting: As users bind it.
        right: The value that needs nothing; `Words` of which values need nothing, with `holds`.
        why: Why the others are not offered.
        remedy: What to do instead.
        holds: Whether a value needs nothing; None for `right` alone.
    """

    def __init__(
        self, setting: str, right: Any, why: str = "", remedy: str = "", holds: Callable[[Any], bool] | None = None
    ) -> None:
        self.setting, self.right = setting, right
        self._why, self._remedy, self._holds = why, remedy, holds

    def is_met(self, value: Any) -> bool:
        """Return whether a value needs nothing."""
        return bool(value == self.right) if self._holds is None else self._holds(value)

    def sentence(self, where: str, value: Any, words: Mapping[str, Any]) -> str:
        """Return the sentence that refuses a value.

        Args:
            where: What does not offer it, after the right value.
            value: Of the setting.
            words: Those that the table leaves open, by name.
        """
        why = f", {self._why}" if self._why else ""
        remedy = f": {self._remedy}" if self._remedy else ""
        before, after = (text.format_map(words) for text in (f"{self.right!r} {where}{why}", remedy))
        return f"{self.setting} must be {before}, got {value!r}{after}"


def _never(value: Any) -> bool:
    """Return False: whoever gives the setting has found it wrong."""
    return False


class Beside:
    """What a thing does not offer.

    Args:
        where: Names it, such as ``"where backend='thread'"``.
        needs: The settings that need more.
    """

    def __init__(self, where: str, *needs: Need) -> None:
        self.where, self.needs = where, needs


Table = Mapping[str, Beside]


TABLE: Table = {
    # Live runs.
    "a policy elsewhere": Beside(
        "with make_policy={make_policy!r}",
        Need(
            "backend",
            Words("'process' or 'thread'"),
            "as the virtual clock infers in this process",
            holds=lambda backend: backend != "virtual",
        ),
        Need("pin", False, "whose workers are not here"),
    ),
    "a policy elsewhere, in the loop": Beside(
        "with a policy on another machine ({make_policy!r})", Need("workers", Words(">= 1"), holds=bool)
    ),
    "an address": Beside(
        "with an address",
        Need(
            "features and make_release",
            Words("given together"),
            "as the environment loop releases the features that the server encodes",
            "give both, or neither for a policy without memory",
            _never,
        ),
    ),
    "no workers": Beside(
        "with workers=0",
        Need("stagger", "tickets", "where there is nobody to spread", holds=_never),
        Need(
            "latency",
            None,
            "where the policy answers within its frame",
            "give workers=1 to model one that takes longer",
            _never,
        ),
    ),
    "Ray": Beside(
        "with backend={backend!r}",
        Need(
            "make_policy",
            Words("a function, called on the workers' nodes,"),
            holds=lambda make: not isinstance(make, str),
        ),
        Need("workers", Words(">= 1"), holds=bool),
        Need("pin", False),
    ),
    "threads": Beside(
        "with backend='thread'",
        Need("realtime", None, "whose environment loop runs in the caller's thread", "use backend='process'"),
    ),
    "a real clock": Beside(
        "on a real clock",
        Need("max_age", Words(">= 1 frame"), "where the smallest delay is one frame", holds=lambda age: age != 0),
    ),
    "chunks and stacks": Beside(
        "with chunks and stacks",
        Need("report_effect", False, "whose observations are not those of one frame", holds=_never),
    ),
    "updates without end": Beside(
        "where updates_per_transition is None or infinite",
        Need("learner_latency", Words("> 0"), "as many updates as there is time for", holds=_never),
    ),
    "learners on the virtual clock": Beside(
        "where learners work on the virtual clock",
        Need("learner_latency", Words("given"), "as a model or in seconds", holds=lambda latency: latency is not None),
    ),
    "one core": Beside("where this process may use one core alone", Need("core", None)),
    # Features that are too old for a fast path.
    "chunks": Beside(
        "where actions are chunks",
        Need("max_features_age", None, "which go on by themselves", "bind another default_action"),
    ),
    "no fast path": Beside(
        "with a policy without a fast path (fast_age)", Need("max_features_age", None, "which reads nothing new")
    ),
    "nothing fresh": Beside(
        "where nothing shows a fast path the fresh observation",
        Need("max_features_age", None, remedy="wrap in FreshObservation, or bind a network with a fast path"),
    ),
    # Others.
    "limits of a rate": Beside("where rate or jerk is limited", Need("low and high", Words("finite"), holds=_never)),
    "games of one life": Beside(
        "where terminal_on_life_loss=True", Need("episodic_life", False, "which begins a new game after each life")
    ),
    "a planned fast path": Beside(
        "with fast_age={fast_age}",
        Need("release", Words("given"), "the fast path's time in the loop", holds=lambda release: release is not None),
    ),
}


def refuse(
    there: str | Mapping[str, Any], settings: Mapping[str, Any], /, *, table: Table = TABLE, **words: Any
) -> None:
    """Refuse the first setting that needs what is not offered.

    Args:
        there: The thing that there is; or of several whether each is there.
        settings: The values of settings by name; those that are left out need nothing.
        table: The rows.
        words: Further ones that the table's sentences name; they may name the settings too.

    Raises:
        ValueError: It needs more, in a sentence with the setting, the value and the remedy.
    """
    names = [there] if isinstance(there, str) else [name for name, is_there in there.items() if is_there]
    for name in names:
        for need in table[name].needs:
            if need.setting in settings and not need.is_met(value := settings[need.setting]):
                raise ValueError(need.sentence(table[name].where, value, {**settings, **words}))
