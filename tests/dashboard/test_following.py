from __future__ import annotations

from typing import Any

import pytest
import streamlit as st

from dashboard.following import PAGES, come_back, follow_link
from dashboard.session import show


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


def arrives(monkeypatch: pytest.MonkeyPatch, path: str, **parameters: str) -> None:
    monkeypatch.setattr(st, "query_params", parameters)
    show(path)
    if path == "live":
        come_back("live", ("minutes",))


def test_a_page_comes_back_as_it_was_left(
    went: list[tuple[Any, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(st, "session_state", {})
    arrives(monkeypatch, "live")
    arrives(monkeypatch, "live", minutes="15", other="x")
    arrives(monkeypatch, "usage")
    assert went == []
    arrives(monkeypatch, "live", server="b")
    assert went == [("the live page", {"server": "b", "minutes": "15"})]


def test_choices_in_the_address_and_those_taken_back_are_not_replaced(
    went: list[tuple[Any, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(st, "session_state", {})
    arrives(monkeypatch, "live", minutes="15")
    arrives(monkeypatch, "usage")
    arrives(monkeypatch, "live", minutes="60")  # a link
    arrives(monkeypatch, "live")  # the first choice again
    arrives(monkeypatch, "usage")
    arrives(monkeypatch, "live")
    assert went == []
