"""What a server says of itself, and how its silence is put into words."""

from __future__ import annotations

import json

import httpx
import pytest

from dashboard.server import (
    Health,
    State,
    UnusableKeyError,
    authorization,
    base_url,
    health,
    interpret_health,
    list_models,
    refusal,
)


@pytest.mark.parametrize(
    "text",
    ["http://host:8000", "http://host:8000/", " http://host:8000/v1", "http://host:8000/v1/"],
)
def test_a_base_url_may_be_given_in_any_usual_form(text: str) -> None:
    assert base_url(text) == "http://host:8000"


@pytest.mark.parametrize(
    "text",
    [
        *("", "host:8000", "ftp://host", "file:///etc/passwd", "http://"),
        *("http://[::1", "http://host:port", "http://host:65536", "http://ho\x7fst"),
    ],
)
def test_anything_but_http_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an http"):
        base_url(text)


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        ("ok", State.READY, ""),
        ("loading", State.LOADING, "weights 3/7"),
        ("draining", State.DRAINING, "accepts no new ones. weights 3/7"),
        ("lost", State.FAILED, "The engine has exited. weights 3/7"),
        ("failing", State.FAILED, "keeps failing. out of memory weights 3/7"),
        ("silent", State.SILENT, "engine for too long. weights 3/7"),
    ],
)
def test_quire_says_its_state(status: str, state: State, words: str) -> None:
    engine = {"phase": "loading", "detail": "weights 3/7", "running": None}
    problem = "out of memory" if status == "failing" else None
    answer = {"status": status, "model": "pocket", "engine": engine, "problem": problem}
    body = json.dumps(answer).encode()
    found = interpret_health(503, body)
    assert (found.state, found.model) == (state, "pocket")
    assert found.detail.endswith(words)


@pytest.mark.parametrize(
    ("said", "unserved"), [(["image", "video"], ("image", "video")), ([], ()), (None, ())]
)
def test_quire_says_what_of_the_model_it_does_not_serve(
    said: list[str] | None, unserved: tuple[str, ...]
) -> None:
    answer = {"status": "ok", "model": "m", "engine": {"unserved_inputs": said}}
    found = interpret_health(200, json.dumps(answer).encode())
    assert found.unserved_inputs == unserved


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, State.READY), (404, State.READY), (503, State.LOADING), (500, State.FAILED)],
)
def test_of_another_server_the_status_has_to_do(status: int, state: State) -> None:
    assert interpret_health(status, b"").state is state


def test_a_server_that_is_not_there_is_unreachable(closed_url: str) -> None:
    with httpx.Client() as client:
        found = health(client, closed_url)
    assert found == Health(State.UNREACHABLE, detail=f"Could not connect to {closed_url}.")
    with pytest.raises(httpx.TransportError):
        list_models(closed_url, "")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Too busy.", "Too busy. Retry after 3 s."),
        ("1 of 13 places is free.", "1 of 13 places is free. Retry after 3 s."),
        ("Busy for 13 s.", "Busy for 13 s. Retry after 3 s."),
        ("Too busy; retry in 3 s.", "Too busy; retry in 3 s."),
        ("Please try again in 3s.", "Please try again in 3s."),
    ],
)
def test_a_refusal_says_once_what_the_server_said(said: str, shown: str) -> None:
    response = httpx.Response(
        429,
        json={"error": {"message": said, "type": "overloaded"}},
        headers={"retry-after": "3"},
    )
    assert str(refusal(response)) == f"The server refused (429): {shown}"


def test_a_refusal_without_words_still_is_a_sentence() -> None:
    assert str(refusal(httpx.Response(502, text="<html>"))) == (
        "The server refused (502): Bad Gateway"
    )


def test_without_a_key_nothing_is_sent_about_one() -> None:
    assert authorization("") == {}
    assert authorization("k") == {"Authorization": "Bearer k"}


@pytest.mark.parametrize("key", ["k\u200b", "schlüssel", "a\nb"])
def test_a_key_that_no_header_can_carry_is_refused_in_a_sentence(key: str) -> None:
    with pytest.raises(UnusableKeyError, match=r"other than printable ASCII\.$"):
        authorization(key)
