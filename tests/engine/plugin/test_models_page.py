"""The page of served models says what the tests check."""

from __future__ import annotations

from tests.engine.plugin.models_page import PAGE, updated


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert page == updated(page), "run make docs"
