"""The page of routes is that of the tables."""

from __future__ import annotations

import pytest

from service import routes_page
from service.routes.tables import TABLES


def test_the_committed_page_lists_the_routes() -> None:
    assert routes_page.main(["--check"]) == 0, "run: make docs"


def test_a_page_of_other_routes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_page, "page", lambda: "another page")
    assert routes_page.main(["--check"]) == 1


def test_every_route_is_listed_on_its_port_with_who_may_use_it() -> None:
    sections = routes_page.page().split("\n## ")[1:]
    for table, section in zip(TABLES, sections, strict=True):
        lines = [line for line in section.splitlines() if line.startswith("| `")]
        assert len(lines) == len(list(table))
        for route, line in zip(table, lines, strict=True):
            assert line.startswith(f"| `{route.method} {route.template}` |")
            assert f"{route.scope.value} |" in line
            assert line.endswith(f"| {route.does} |")
