"""What the tour's clients see of streams."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from dashboard.tour.streams import Traffic, Watched


def answer(*events: str, status: int = 200) -> httpx.MockTransport:
    body = "".join(f"data: {event}\n\n" for event in events)
    return httpx.MockTransport(lambda request: httpx.Response(status, text=body))


def seen(monkeypatch: pytest.MonkeyPatch, transport: httpx.MockTransport) -> Watched:
    traffic = Traffic("http://server")
    monkeypatch.setattr(traffic, "_client", httpx.AsyncClient(
        base_url="http://server", transport=transport
    ))  # fmt: skip

    async def read() -> Watched:
        watched = await traffic.stream("/v1/chat/completions", "key", {"model": "m"})
        await traffic.close()
        return watched

    return asyncio.run(read())


def test_a_stream_is_complete_if_it_ends_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    role, text = '{"delta":{"role":"assistant"}}', '{"delta":{"content":"a"}}'
    watched = seen(monkeypatch, answer(role, text, text, "[DONE]"))
    assert (watched.status, watched.pieces, watched.is_complete) == (200, 2, True)


@pytest.mark.parametrize(
    "events", [('{"delta":{"content":"a"}}',), ('{"error":{"message":"gone"}}', "[DONE]")]
)
def test_a_stream_that_is_cut_or_fails_is_not(
    monkeypatch: pytest.MonkeyPatch, events: tuple[str, ...]
) -> None:
    assert not seen(monkeypatch, answer(*events)).is_complete


def test_a_refused_request_has_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, answer(status=429)).status == 429


def test_the_longest_gap_is_between_pieces_of_text() -> None:
    watched = Watched()
    for at in (0.0, 0.5, 0.75, 3.0):
        watched.piece(at)
    assert watched.longest_gap == 2.25


def test_gaps_are_counted_anew_when_measuring_begins() -> None:
    traffic = Traffic("http://server")
    watched = Watched()
    watched.piece(1.0)
    watched.piece(9.0)
    traffic.watched.append(watched)
    traffic.begin_measuring()
    assert watched.longest_gap == 0.0
    asyncio.run(traffic.close())
