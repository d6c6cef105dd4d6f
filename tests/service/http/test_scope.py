"""Headers as clients send them, and what the layers around a route leave for it."""

from __future__ import annotations

from typing import Any

import pytest

from service.http.scope import EXCHANGE, api_key_header, client_address, exchange_in, header
from service.serving.exchange import Exchange
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord


def scope(*headers: tuple[bytes, bytes], **state: object) -> Any:
    return {"headers": list(headers), "state": state}


def test_the_first_of_repeated_headers_counts() -> None:
    asked = scope((b"accept", b"text/html"), (b"accept", b"*/*"))
    assert header(asked, b"accept") == b"text/html"
    assert header(asked, b"authorization") == b""


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ([], b""),
        ([(b"api-key", b"azure")], b"azure"),
        ([(b"api-key", b"azure"), (b"x-api-key", b"anthropic")], b"anthropic"),
        ([(b"x-api-key", b""), (b"api-key", b"azure")], b"azure"),
    ],
)
def test_anthropics_header_goes_before_azures(
    headers: list[tuple[bytes, bytes]], key: bytes
) -> None:
    assert api_key_header(scope(*headers)) == key


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("::1", 50_012), "::1"),
        (("::ffff:10.0.0.7", 50_012), "10.0.0.7"),
        (None, None),
        (("", 0), None),
    ],
)
def test_a_clients_address_is_the_one_that_the_listener_saw(
    client: object, address: str | None
) -> None:
    assert client_address({"client": client, "headers": []}) == address  # type: ignore[typeddict-item]


def test_a_request_that_no_counted_route_took_has_no_exchange() -> None:
    record = RequestRecord("req_1", "chat_completions", "POST", "/", 0.0, 0)
    exchange = Exchange(record, NoTelemetry())
    assert exchange_in(scope(**{EXCHANGE: exchange})) is exchange
    assert exchange_in(scope()) is None
