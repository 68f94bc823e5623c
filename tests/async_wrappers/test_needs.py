"""The sentence of a setting that needs what is not offered, and the rows of both tables."""

from __future__ import annotations

from typing import Any

import pytest

from async_wrappers import needs
from async_wrappers.agents import needs_and_offers
from async_wrappers.needs import Beside, Need, Words, refuse

LAMPS = {
    "a cave": Beside("in {cave}", Need("lamp", "torch", "where it is dark", "take {other}"), Need("depth", 0)),
    "the sea": Beside("at sea", Need("depth", Words("> 0 m"), holds=lambda depth: depth > 0)),
}


def test_a_sentence_has_setting_right_value_place_reason_value_and_remedy() -> None:
    with pytest.raises(ValueError) as refused:
        refuse("a cave", {"lamp": "none"}, table=LAMPS, cave="a hole", other="one")
    assert str(refused.value) == "lamp must be 'torch' in a hole, where it is dark, got 'none': take one"
    with pytest.raises(ValueError, match=r"^depth must be > 0 m at sea, got 0$"):
        refuse({"a cave": False, "the sea": True}, {"depth": 0}, table=LAMPS)


def test_what_has_no_row_or_the_right_value_or_is_beside_nothing_is_offered() -> None:
    refuse("a cave", {"lamp": "torch", "rope": 3}, table=LAMPS)
    refuse({"a cave": None, "the sea": 0}, {"lamp": "none", "depth": 0}, table=LAMPS)


@pytest.mark.parametrize("table", [needs.TABLE, needs_and_offers.TABLE], ids=["realtime", "agents"])
def test_every_row_makes_a_sentence(table: Any) -> None:
    class Any_(dict[str, str]):
        def __missing__(self, name: str) -> str:
            return name

    for beside in table.values():
        sentences = [need.sentence(beside.where, "it", Any_()) for need in beside.needs]
        assert sentences and all(" must be " in each and ", got 'it'" in each for each in sentences)
        assert not [each for each in sentences if "  " in each or ",," in each]
