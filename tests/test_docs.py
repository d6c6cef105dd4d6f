"""The documentation says what is so."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_named_in_the_docs_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    named |= set(re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets


def test_every_room_is_named_in_the_architecture() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for room in ("observability", "engine", "pocket", "client", "service", "dashboard", "helm"):
        assert f"`{room}/`" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_cell_of_a_reference_is_empty(page: Path) -> None:
    assert not re.findall(r"^\| `[^|]+\| *\|$", page.read_text(), re.MULTILINE)


FIELD_ISSUES = (ROOT / "docs" / "field-issues.md").read_text()


@cache
def functions_in(path: str) -> set[str]:
    found = ast.walk(ast.parse((ROOT / path).read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/.+?)`", FIELD_ISSUES))))
def test_every_test_named_against_a_field_issue_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert test.startswith("test_")
    assert test in functions_in(path)


def test_every_field_issue_names_a_test() -> None:
    headers = ("| elsewhere | thread | here |", "| what was wrong | row | test |")
    rows = [line for line in FIELD_ISSUES.splitlines() if line.startswith("| ")]
    without = [row for row in rows if "::test_" not in row and row not in headers]
    assert without == []
