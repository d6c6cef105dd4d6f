"""The documentation of metrics, spans and log fields is that of the catalogue."""

from __future__ import annotations

import pytest

from observability import catalogue, generate, schema
from observability.outcomes import OUTCOMES, PREFIX_MISS_REASONS, QUEUE_REFUSALS, WAITING_REASONS


def test_the_committed_page_is_what_the_catalogue_says() -> None:
    assert generate.main(["--check"]) == 0, "run: python -m observability.generate"


def test_a_stale_page_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "page", lambda: "another page")
    assert generate.main(["--check"]) == 1


def test_everything_declared_is_on_the_page_with_its_meaning() -> None:
    page = generate.page()
    for metric in catalogue.METRICS:
        assert f"| `{metric.name}` | {metric.kind.value} | {metric.scope.value} |" in page
        assert metric.help in page
    for outcome in OUTCOMES:
        assert f"| `{outcome.name}` | {outcome.group.value} | {outcome.sentence} |" in page
    for reason, sentence in (WAITING_REASONS | PREFIX_MISS_REASONS | QUEUE_REFUSALS).items():
        assert f"| `{reason}` | {sentence} |" in page
    for span in schema.SPANS:
        assert f"### `{span.name}`" in page
        for attribute in span.attributes:
            assert f"| `{attribute.name}` | {attribute.help} |" in page
    for field in schema.REQUEST_LOG_FIELDS:
        assert f"| `{field.name}` | {field.help} |" in page


def test_every_row_of_a_table_has_a_cell_for_each_column() -> None:
    """Markdown drops what the head has no column for."""
    columns = 0
    for line in generate.page().splitlines():
        cells = line.count(" | ") + 1 if line.startswith("| ") else 0
        if cells and columns:
            assert cells == columns, line
        columns = cells
