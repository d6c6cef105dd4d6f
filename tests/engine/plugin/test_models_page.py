"""The page of served models says what the tests check."""

from __future__ import annotations

from tests.engine.plugin.families import FEW, HYBRIDS, MANY, REFUSED, require_release_with
from tests.engine.plugin.models_page import PAGE, updated


def test_the_page_is_up_to_date() -> None:
    require_release_with(*FEW, *MANY, *HYBRIDS, *REFUSED)
    page = PAGE.read_text()
    assert page == updated(page), "run make docs"
