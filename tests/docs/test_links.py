"""Links of the pages lead to what is there, and so do the paths of pages in code and gin files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "NOTICE.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*/*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = [inline or defined for inline, defined in LINK.findall(re.sub(r"`[^`\n]*`", "", text))]
    return [target for target in found if not re.match(r"\w+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


def test_the_readme_uses_each_link_that_it_defines() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    defined = re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)
    assert defined == sorted(defined)
    assert [name for name in defined if f"][{name}]" not in text] == []
    assert set(re.findall(r"\]\[([^\]]+)\]", text)) <= set(defined)


def test_pages_that_code_and_gin_files_name_exist() -> None:
    files = [
        file
        for folder in ("agents", "async_wrappers", "benchmarks", "configs", "docs/examples", "tests")
        for kind in ("py", "gin")
        for file in sorted((ROOT / folder).rglob(f"*.{kind}"))
    ]
    named = {(file.name, page) for file in files for page in re.findall(r"docs/[\w/]+\.md", file.read_text("utf-8"))}
    assert len(named) > 20
    assert [(name, page) for name, page in sorted(named) if not (ROOT / page).is_file()] == []


def test_design_names_files_and_classes_that_are_there() -> None:
    text = (ROOT / "docs" / "reference" / "design.md").read_text(encoding="utf-8").partition("## Decisions")[2]
    code = {file: file.read_text("utf-8") for at in ("agents", "async_wrappers") for file in (ROOT / at).rglob("*.py")}
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    classes = set(re.findall(r"`(?:[a-z]\w*\.)?((?:[A-Z][a-z]+)+)(?:\.\w+)*`", text))
    assert len(files) > 3 and len(classes) > 8
    assert [name for name in sorted(files) if not any(file.as_posix().endswith(f"/{name}") for file in code)] == []
    defined = set(re.findall(r"^class (\w+)", "\n".join(code.values()), re.MULTILINE))
    assert sorted(classes - defined) == []
