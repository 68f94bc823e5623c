"""The version and its date are the same in the package, CITATION.cff and CHANGELOG.md."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import async_wrappers

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## \[([^\]]+)\](?: - (\S+))?$", CHANGELOG, re.MULTILINE)


def cited(field: str) -> str:
    (value,) = re.findall(rf"^{field}: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    return str(value.strip('"'))


def test_what_is_unreleased_comes_first_and_the_newest_version_is_the_packages() -> None:
    assert HEADINGS[0] == ("Unreleased", "")
    assert HEADINGS[1][0] == async_wrappers.__version__


def test_the_citation_is_of_the_newest_version_and_its_date() -> None:
    assert (cited("version"), cited("date-released")) == HEADINGS[1]


def test_each_version_has_a_date_and_none_comes_before_an_older_one() -> None:
    released = HEADINGS[1:]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in released)
    newest_first = sorted(released, key=lambda each: [int(part) for part in each[0].split(".")], reverse=True)
    assert released == newest_first
    assert [date for _, date in released] == sorted((date for _, date in released), reverse=True)


def test_setup_reads_the_version_from_the_package() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert setup["metadata"]["version"] == "attr: async_wrappers.version.__version__"


def test_changes_stand_under_the_names_of_keep_a_changelog() -> None:
    kinds = set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE))
    assert {"Added"} <= kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
