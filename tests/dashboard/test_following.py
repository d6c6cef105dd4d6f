from __future__ import annotations

from typing import Any

import pytest
import streamlit as st

from dashboard.following import PAGES, follow_link


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, str]]]:
    calls: list[tuple[Any, dict[str, str]]] = []
    monkeypatch.setitem(PAGES, "live", "the live page")
    monkeypatch.setattr(
        st, "switch_page", lambda to, query_params: calls.append((to, query_params))
    )
    return calls


def test_a_link_leads_to_a_page_with_its_parameters(
    went: list[tuple[Any, dict[str, str]]],
) -> None:
    follow_link("/live?minutes=15&key=a%20b")
    assert went == [("the live page", {"minutes": "15", "key": "a b"})]


@pytest.mark.parametrize("address", ["", "/nowhere", "https://elsewhere.example/", "//live/x"])
def test_other_addresses_lead_nowhere(went: list[tuple[Any, dict[str, str]]], address: str) -> None:
    follow_link(address)
    assert went == []
