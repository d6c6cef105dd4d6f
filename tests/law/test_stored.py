"""The law of work for requests without a body: what is asked of stored responses and streams that
grew long, and of all other routes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.law import bounds
from tests.law.measuring import Ask, LawServer
from tests.law.routes import WITHOUT_BODY
from tests.service.running import until

RESPONSES = "/v1/responses"
_BEYOND = 10**17


@dataclass(frozen=True)
class Size:
    """``items`` and ``bytes``: of a stored input; ``events``: of a stored stream; ``logprobs``:
    tokens of a stored answer, with twenty logprobs each."""

    items: int
    bytes: int
    events: int
    logprobs: int


@dataclass(frozen=True)
class Stored:
    """Ids of responses: after a long ``history``, a long ``stream``, a long ``answer``."""

    history: str
    items: list[str]
    stream: str
    events: int
    answer: str


SIZES = [
    pytest.param(Size(2000, 1 << 20, 4000, 1000), id="1MiB"),
    pytest.param(Size(8000, 4 << 20, 18_000, 2900), id="4MiB", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=SIZES)
def stored(server: LawServer, request: pytest.FixtureRequest) -> Stored:
    size: Size = request.param
    said = [
        {
            "role": ("user", "assistant")[number % 2],
            "content": bounds.text(size.bytes // size.items),
        }
        for number in range(size.items)
    ]
    few = {"max_output_tokens": 1, "store": True, "truncation": "auto"}
    first = _created(server, {"input": said, **few})
    history = _created(server, {"input": said, "previous_response_id": first, **few})
    page = server.get(f"{RESPONSES}/{history}/input_items?limit=100&order=asc")[1]
    items = json.loads(page)
    ignored = {"input": "a", "ignore_eos": True, "store": True}
    status, headers, _ = server.exchange(
        "POST",
        RESPONSES,
        json.dumps({**ignored, "stream": True, "max_output_tokens": size.events}).encode(),
    )
    assert status == 200
    stream = headers["x-quire-stream-id"]
    logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 20}
    long = {**ignored, **logprobs, "max_output_tokens": size.logprobs}
    for streamed in (False, True):
        server.lawful_cost_of([Ask(RESPONSES, {**long, "stream": streamed})])
    answer = _created(server, long)
    return Stored(history, [items["first_id"], items["last_id"]], stream, size.events, answer)


def _created(server: LawServer, body: dict[str, Any]) -> str:
    status, reply = server.post(RESPONSES, body)
    assert status == 200, reply
    return str(reply["id"])


def places(events: int) -> Iterator[str]:
    """Where a stream is resumed: from its start, within it, at its end and after that."""
    yield ""
    for number in (0, events // 2, events, _BEYOND):
        yield f"starting_after={number}"


def test_a_long_history_is_listed_in_every_way(server: LawServer, stored: Stored) -> None:
    path = f"{RESPONSES}/{stored.history}/input_items"
    ways = itertools.product(
        ("", "order=asc", "order=desc"),
        ("", "limit=1", "limit=100"),
        ("", "after=unknown", *(f"after={item}" for item in stored.items)),
    )
    check(server, [_get(path, *way) for way in ways], {200, 400, 404})


def test_a_long_stream_is_gone_on_with_from_anywhere(server: LawServer, stored: Stored) -> None:
    kept = f"/v1/streams/{stored.stream}"
    again = f"{RESPONSES}/{stored.stream}"
    asks = [
        ask
        for place in places(stored.events)
        for ask in (_get(kept, place), _get(again, "stream=true", place))
    ]
    check(server, asks, {200, 404})
    # From here on out of the store.
    until(lambda: server.get(kept)[0] == 404, 30, "the run is forgotten")
    check(server, [_get(again, "stream=true", place) for place in places(stored.events)], {200})


def test_a_long_answer_can_be_retrieved_again_and_cancelled(
    server: LawServer, stored: Stored
) -> None:
    path = f"{RESPONSES}/{stored.answer}"
    asks = [_get(path), _get(path, "stream=true"), Ask(f"{path}/cancel")]
    check(server, asks, {200, 400})
    for one in (stored.answer, stored.history, stored.stream):
        check(server, [Ask(f"{RESPONSES}/{one}", method="DELETE")], {200})


def test_a_request_without_a_body_does_not_block_other_requests(server: LawServer) -> None:
    """Beside a stream: holds are measured while there is one."""
    stream = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    check(
        server,
        [
            Ask("/v1/completions", stream),
            *(_get(path) for path in WITHOUT_BODY * 4),
            *(_get(path, "x=" + "a" * 8000) for path in WITHOUT_BODY),
        ],
        {200, 400, 404},
        at_once=4,
    )


def _get(path: str, *query: str) -> Ask:
    asked = "&".join(part for part in query if part)
    return Ask(f"{path}?{asked}" if asked else path, method="GET")


def check(server: LawServer, asks: list[Ask], statuses: set[int], *, at_once: int = 1) -> None:
    named = ((f"{ask.method} {ask.path}", ask) for ask in asks)
    answers = server.hold_to_the_law(named, at_once=at_once)
    assert {int(answer[:3]) for answer in answers.values()} <= statuses, answers
