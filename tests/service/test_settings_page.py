"""The documentation of settings is that of the tables; each setting is documented and used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.options import Option
from service import settings_page

ROOT = Path(__file__).resolve().parents[2]
SOURCES = "".join(
    path.read_text() for top in ("engine", "service") for path in (ROOT / top).rglob("*.py")
)


def test_the_committed_page_is_what_the_tables_say() -> None:
    assert settings_page.main(["--check"]) == 0, "run: make docs"


def test_a_stale_page_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_page, "page", lambda: "another page")
    assert settings_page.main(["--check"]) == 1


@pytest.mark.parametrize("option", list(settings_page.settings()), ids=lambda option: option.name)
def test_every_setting_is_documented_in_its_group_and_used(option: Option) -> None:
    sections = settings_page.page().split("\n## ")
    (section,) = (part for part in sections if f"| `{option.flag}` | `{option.variable}`" in part)
    assert section.startswith(f"{option.group}\n")
    assert option.description.endswith(".")
    assert option.file_variable in section or not option.secret
    assert re.search(rf"\.{option.name}\b", SOURCES), "no code reads it"


def test_the_model_is_not_called_required() -> None:
    [row] = [line for line in settings_page.page().splitlines() if "`QUIRE_MODEL`" in line]
    assert "| see the meaning |" in row
    assert row.endswith("Default: pocket, the model that comes with Quire. |")


def test_a_group_is_in_one_place() -> None:
    headings = re.findall(r"^## (.+)$", settings_page.page(), re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert all(headings)
