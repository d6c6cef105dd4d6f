"""Reads a server's health and its models."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import msgspec

from dashboard.certificates import certificates

TIMEOUT = httpx.Timeout(5.0)


class State(enum.StrEnum):
    READY = "ready"
    DOWNLOADING = "downloading"
    LOADING = "loading"
    DRAINING = "draining"
    SILENT = "silent"
    FAILED = "failed"
    UNREACHABLE = "unreachable"


# Quire's words for its own health, and what to add to them.
_STATUSES = {
    "ok": (State.READY, ""),
    "downloading": (State.DOWNLOADING, ""),
    "loading": (State.LOADING, ""),
    "draining": (State.DRAINING, "It is finishing the requests in flight and accepts no new ones."),
    "lost": (State.FAILED, "The engine has exited."),
    "failing": (State.FAILED, "The engine keeps failing."),
    "silent": (State.SILENT, "No message from the engine for too long."),
}


@dataclass(frozen=True, slots=True)
class Health:
    """``detail``: a sentence for people, empty when there is nothing to add. ``unserved_inputs``:
    what the model's checkpoint reads besides text, which the server does not take."""

    state: State
    model: str = ""
    detail: str = ""
    unserved_inputs: tuple[str, ...] = ()


class RefusalError(Exception):
    """The server answered with an error. The message is a sentence for people."""

    def __init__(self, status: int, message: str, retry_after: str | None = None) -> None:
        self.status = status
        # Quire's limits say it themselves.
        says_when = retry_after and re.search(rf"\b{re.escape(retry_after)} ?s\b", message)
        wait = f" Retry after {retry_after} s." if retry_after and not says_when else ""
        super().__init__(f"The server refused ({status}): {message}{wait}")


class UnusableKeyError(ValueError):
    """No header can carry the API key; the message is a sentence for people."""


class _EngineBody(msgspec.Struct):
    phase: str = ""
    detail: str = ""
    unserved_inputs: tuple[str, ...] | None = None


class _HealthBody(msgspec.Struct):
    status: str = ""
    model: str = ""
    engine: _EngineBody = msgspec.field(default_factory=_EngineBody)
    problem: str | None = None


class _ErrorBody(msgspec.Struct):
    message: str = ""


class _Error(msgspec.Struct):
    error: _ErrorBody | str


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def base_url(text: str) -> str:
    """The server's root: no trailing slash, no ``/v1``.

    Raises ValueError when ``text`` is not an http(s) URL.
    """
    root = text.strip().rstrip("/").removesuffix("/v1")
    if not _is_http(root):
        raise ValueError(f"{text!r} is not an http:// or https:// URL")
    return root


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port, httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def engine_query(engine: int) -> dict[str, str]:
    """Return the parameter of the admin API that names one of several engines."""
    return {"engine": str(engine)} if engine else {}


def authorization(api_key: str) -> dict[str, str]:
    """Raises UnusableKeyError."""
    if not (api_key.isascii() and api_key.isprintable()):
        raise UnusableKeyError("The API key contains characters other than printable ASCII.")
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def unreachable(url: str, error: httpx.TransportError) -> str:
    """Return the message for the case that the server did not respond at all."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout):
        return f"{url} did not respond in time."
    if isinstance(error, httpx.ConnectError):
        return f"Could not connect to {url}."
    return f"The connection to {url} was lost."


def refusal(response: httpx.Response) -> RefusalError:
    """``response``: read to its end, with an error status."""
    try:
        error = msgspec.json.decode(response.content, type=_Error).error
        message = error if isinstance(error, str) else error.message
    except msgspec.DecodeError:
        message = response.reason_phrase
    return RefusalError(
        response.status_code, message or "no reason given", response.headers.get("retry-after")
    )


def health(client: httpx.Client, url: str) -> Health:
    """Never raises for what the network or the server does."""
    try:
        response = client.get(f"{url}/health", timeout=TIMEOUT)
    except httpx.TransportError as error:
        return Health(State.UNREACHABLE, detail=unreachable(url, error))
    return interpret_health(response.status_code, response.content)


def interpret_health(status: int, content: bytes) -> Health:
    """``/health`` of Quire says its state in JSON; of other servers, the status has to do."""
    try:
        body = msgspec.json.decode(content, type=_HealthBody)
    except msgspec.DecodeError:
        body = _HealthBody()
    if body.status in _STATUSES:
        state, words = _STATUSES[body.status]
    elif status < 400 or status == 404:  # 404: a server without this route still is one
        state, words = State.READY, ""
    else:
        state, words = (State.LOADING if status == 503 else State.FAILED), ""
    told = () if state is State.READY else (body.problem, body.engine.detail)
    return Health(
        state,
        body.model,
        " ".join(filter(None, (words, *told))),
        body.engine.unserved_inputs or (),
    )


def list_models(url: str, api_key: str) -> list[str]:
    """Names the server serves.

    Raises RefusalError when it answers with an error or with something else than such a list,
    httpx.TransportError when it does not answer, UnusableKeyError.
    """
    response = httpx.get(
        f"{url}/v1/models",
        headers=authorization(api_key),
        timeout=TIMEOUT,
        verify=certificates(),
    )
    if response.is_error:
        raise refusal(response)
    try:
        return [model.id for model in msgspec.json.decode(response.content, type=_Models).data]
    except msgspec.DecodeError as error:
        raise RefusalError(response.status_code, f"not a list of models: {error}") from error
