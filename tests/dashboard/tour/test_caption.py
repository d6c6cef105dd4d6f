"""The tour's caption, from the tour to the pages."""

from __future__ import annotations

from pathlib import Path

from dashboard.tour.caption import VARIABLE, Caption, read, write

CAPTION = Caption(
    2, 4, "One key floods", "Bob starts 80 clients.", "Live: …", "/requests", 70, "key"
)


def test_pages_read_what_the_tour_wrote_last(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    environment = {VARIABLE: str(path)}
    assert read(environment) is None
    write(path, Caption(1, 4, "Agents", "", "", "/live", 70, "key"))
    write(path, CAPTION)
    assert read(environment) == CAPTION
    assert [each.name for each in tmp_path.iterdir()] == ["caption.json"]


def test_a_damaged_file_is_no_caption(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    path.write_text('{"number": "x"}')
    assert read({VARIABLE: str(path)}) is None


def test_without_the_variable_there_is_no_tour() -> None:
    assert read({}) is None
