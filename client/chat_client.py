"""A client for OpenAI-compatible chat APIs: streams one answer. Standard library only."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from client.address import ServerAddress

TIMEOUT_SECONDS = 300.0
MOST_ERROR_BYTES = 65536
_MOST_BYTES = 16 << 20  # of a line of an answer, and of a list of models
_MOST_TOKENS = 1 << 53


class ServerError(Exception):
    """The server cannot be reached, or returned an error. The message is for people."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that arrived. ``reasoning``: it belongs to the model's reasoning, not the answer."""

    text: str
    reasoning: bool = False


@dataclass(slots=True)
class Timings:
    """``first_token`` and ``total``: seconds since the request was sent. ``tokens``: the count that
    the server reports, 0 until then."""

    first_token: float | None = None
    total: float = 0.0
    tokens: int = 0

    @property
    def tokens_per_second(self) -> float | None:
        """Return the rate after the first token; None if it cannot be measured."""
        if self.first_token is None or self.tokens < 2 or self.total <= self.first_token:
            return None
        return (self.tokens - 1) / (self.total - self.first_token)


class ChatClient:
    """Raises ValueError if ``base_url`` is not a server's address, or if the API key cannot be
    sent in a header."""

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        self.address = ServerAddress.parse(base_url)
        self.url = self.address.url
        self._headers = {"content-type": "application/json"}
        if api_key:
            if not (api_key.isascii() and api_key.isprintable()):
                raise ValueError("the API key contains characters other than printable ASCII")
            self._headers["authorization"] = f"Bearer {api_key}"
        self.timings = Timings()

    def models(self) -> list[str]:
        """Return the names of the models that the server offers. Raises ServerError."""
        connection, response = self._request("GET", "/v1/models", None)
        try:
            body = _parsed(_bounded(response.read(_MOST_BYTES + 1), "the list of models"))
            names = [_text(model, "id") for model in body["data"]]
            if not all(names):
                raise ValueError("a model has no id")
            return names
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ServerError(f"{self.url} is not an OpenAI-compatible server ({error})") from error
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.url} did not send a whole list of models: {error}") from error
        finally:
            connection.close()

    def first_model(self) -> str:
        """Return the name of the model to use if none is given. Raises ServerError."""
        names = self.models()
        if not names:
            raise ServerError(f"{self.url} lists no models")
        return names[0]

    def stream(self, request: dict[str, Any]) -> Generator[Piece, None, None]:
        """Yield pieces of one answer as they arrive. Closing the generator closes the connection,
        which makes the server stop. Updates ``timings``. Raises ServerError."""
        self.timings = timings = Timings()
        begin = time.monotonic()
        body = {**request, "stream": True, "stream_options": {"include_usage": True}}
        connection, response = self._request("POST", "/v1/chat/completions", body)
        try:
            for event in _events(response):
                timings.total = time.monotonic() - begin
                if event.get("error"):
                    raise ServerError(error_message(event))
                timings.tokens = _output_tokens(event) or timings.tokens
                for piece in _pieces(event):
                    if timings.first_token is None:
                        timings.first_token = timings.total
                    yield piece
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerError(f"the stream failed: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kind = (
            http.client.HTTPSConnection if self.address.is_encrypted else http.client.HTTPConnection
        )
        connection = kind(self.address.host, self.address.port, timeout=TIMEOUT_SECONDS)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, self.address.prefix + path, payload, self._headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise ServerError(_read_error(response))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServerError(f"{self.url} cannot be reached: {error}") from error
        except ServerError:
            connection.close()
            raise
        return connection, response


def _bounded(data: bytes, what: str) -> bytes:
    """Raises ValueError."""
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{what} has more than {_MOST_BYTES >> 20} MiB")
    return data


def _parsed(text: str | bytes) -> Any:
    """Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent event stream, up to ``[DONE]``. Raises ValueError."""
    while line := _bounded(response.readline(_MOST_BYTES + 1), "a line"):
        field, _, value = line.decode().rstrip("\r\n").partition(":")
        if field != "data":
            continue
        value = value.removeprefix(" ")
        if value == "[DONE]":
            return
        event = _parsed(value)
        if isinstance(event, dict):
            yield event


def _pieces(event: dict[str, Any]) -> Iterator[Piece]:
    """Raises ValueError for an event of a wrong form. Null counts as missing, as for OpenAI's
    SDKs."""
    choices = event.get("choices") or []
    if not isinstance(choices, list):
        raise ValueError("'choices' of an event is not a list")
    for choice in choices:
        if not isinstance(choice, dict):
            raise ValueError("a choice of an event is not an object")
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise ValueError("'delta' of an event is not an object")
        thought = _text(delta, "reasoning_content") or _text(delta, "reasoning")
        if thought:
            yield Piece(thought, reasoning=True)
        if content := _text(delta, "content"):
            yield Piece(content)


def _text(fields: dict[str, Any], name: str) -> str:
    """Return a field; empty if it is null or missing. Raises ValueError if it is not text."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"'{name}' is not text")
    return value


def _output_tokens(event: dict[str, Any]) -> int:
    """Return the count that an event reports; 0 if it reports none that can be used."""
    usage = event.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if type(tokens) is int and 0 <= tokens < _MOST_TOKENS else 0


def _read_error(response: http.client.HTTPResponse) -> str:
    body = response.read(MOST_ERROR_BYTES)
    try:
        return f"{response.status}: {error_message(_parsed(body))}"
    except ValueError:
        return f"{response.status} {response.reason}"


def error_message(body: Any) -> str:
    """Return what an error object says. Raises ValueError if it is not one."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    if isinstance(error, str) and error:
        return error
    raise ValueError("not an error object")
