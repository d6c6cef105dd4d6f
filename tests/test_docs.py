"""The documentation matches the product."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.parsing import parsed
from tests.test_rooms import ORDER

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@cache
def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    code = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", code.sub("", page.read_text()), re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_a_heading_lead_to_one(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            other = page.parent / target if target else page
            assert anchor in anchors_of(other.resolve()), f"{page.name}: {target}#{anchor}"


def test_the_list_of_decisions_has_all_in_order() -> None:
    folder = ROOT / "docs" / "decisions"
    rows = re.findall(r"^\| \[(\d+)\]\((.+?)\) \| \S", (folder / "README.md").read_text(), re.M)
    pages = sorted(page.name for page in folder.glob("0*.md"))
    assert rows == [(str(int(name[:4])), name) for name in pages]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_named_in_the_docs_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    named |= set(re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_folder_of_the_product_has_its_floor_in_the_architecture() -> None:
    for folder in ("observability", "engine", "pocket", "service", "dashboard", "client", "helm"):
        assert f"`{folder}/`" in ARCHITECTURE


@pytest.mark.parametrize("top", ORDER)
def test_the_drawing_of_the_rooms_has_each_in_its_place(top: str) -> None:
    drawing = re.search(rf"^{top}/\n((?:  .*\n)+)", ARCHITECTURE, re.MULTILINE)
    assert drawing
    columns = [line.strip().split("  ")[0] for line in drawing[1].splitlines()]
    drawn = [room for column in columns for room in re.findall(r"\w+", column)]
    assert [room for room in reversed(drawn) if room in ORDER[top]] == list(ORDER[top])


CLAIM = re.compile(r"\[(\w+)\]\((\S+?)\) \(at most (\d+) lines\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_that_a_page_calls_short_is_short(page: Path) -> None:
    """A page may say ``[name](path) (at most N lines)`` about a function or class."""
    for name, target, most in CLAIM.findall(page.read_text()):
        tree = parsed((page.parent / target).read_text())
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        node = next(n for n in ast.walk(tree) if isinstance(n, kinds) and n.name == name)
        assert node.end_lineno is not None
        assert node.end_lineno - node.lineno < int(most)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_cell_of_a_reference_is_empty(page: Path) -> None:
    assert not re.findall(r"^\| `[^|]+\| *\|$", page.read_text(), re.MULTILINE)


FIELD_ISSUES = (ROOT / "docs" / "field-issues.md").read_text()
SECURITY = (ROOT / "docs" / "security.md").read_text()


@cache
def functions_in(path: str) -> set[str]:
    found = ast.walk(parsed((ROOT / path).read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/.+?)`", FIELD_ISSUES + SECURITY))))
def test_every_test_named_against_an_issue_or_a_threat_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert test.startswith("test_")
    assert test in functions_in(path)


def test_every_field_issue_names_a_test() -> None:
    headers = ("| elsewhere | thread | here |", "| what was wrong | row | test |")
    rows = [line for line in FIELD_ISSUES.splitlines() if line.startswith("| ")]
    without = [row for row in rows if "::test_" not in row and row not in headers]
    assert without == []


def test_every_threat_names_a_test() -> None:
    table = SECURITY.partition("| threat | promise | held by |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) > 10
    assert [row for row in rows if "::test_" not in row] == []
