"""The SDK's OTLP exporter over HTTP: one request per attempt, and what became of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.util import Retry

# OTLP forbids repeating a batch after any other answer.
REPEATABLE_STATUSES = frozenset({429, 502, 503, 504})
# The status says all that is needed. The rest is read only so that the connection can be kept.
_MAX_ANSWER_BYTES = 65_536
_CREDENTIAL_PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)


class HttpExporter(SpanExporter):
    """``repeat_after``: of the last attempt, if it failed, the seconds before its batch may be sent
    again; 0 if the collector did not say, None if it must not be."""

    def __init__(
        self, request_of: Callable[[Sequence[Any]], bytes], timeout_seconds: float | None
    ) -> None:
        self._adapter: _Adapter | None = None
        session: requests.Session | None = None
        # Passed to the exporter, a session replaces the one that carries the provider's
        # credentials. With that one no status is known, and each failed batch is repeated.
        if not any(os.environ.get(variable) for variable in _CREDENTIAL_PROVIDERS):
            self._adapter = _Adapter()
            session = requests.Session()
            session.mount("http://", self._adapter)
            session.mount("https://", self._adapter)
        # The exporter translates a batch by this function of its module; ours are encoded already.
        module: Any = trace_exporter
        module.encode_spans = lambda spans: _EncodedRequest(request_of(spans))
        self._exporter: SpanExporter = trace_exporter.OTLPSpanExporter(
            timeout=timeout_seconds, session=session
        )

    @property
    def repeat_after(self) -> float | None:
        return 0.0 if self._adapter is None else self._adapter.repeat_after

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        if self._adapter is not None:
            self._adapter.repeat_after = None
        return self._exporter.export(spans)

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _EncodedRequest:
    """Stands for the message of which the exporter only wants the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializePartialToString(self) -> bytes:  # noqa: N802
        return self._data


class _NotTakenError(Exception):
    """An attempt failed. The exporter repeats a request after errors that it knows, not this."""


class _Adapter(HTTPAdapter):
    """Reads little of an answer, and notes when a request that failed may be repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.repeat_after: float | None = None

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        deadline = time.monotonic() + timeout if isinstance(timeout, float | int) else None
        try:
            response = super().send(
                request, True, timeout, verify, cert, dict(proxies) if proxies else None
            )
        except (requests.ConnectionError, requests.Timeout) as error:
            self.repeat_after = 0.0
            raise _NotTakenError(str(error)) from error
        _read_a_little(response.raw, deadline)
        if not response.ok or response.status_code >= 300:
            if response.status_code in REPEATABLE_STATUSES:
                self.repeat_after = _retry_after(response.headers.get("Retry-After"))
            raise _NotTakenError(f"{response.status_code} {response.reason}")
        return response


def _retry_after(header: str | None) -> float:
    """Seconds, also of a date; 0 if there is no header, or none that can be read."""
    if header is None:
        return 0.0
    try:
        return Retry().parse_retry_after(header)
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


def _read_a_little(answer: BaseHTTPResponse, deadline: float | None) -> None:
    """Read a short answer, and close the connection of one that is long, late or broken."""
    size = 0
    try:
        while chunk := answer.read1(_MAX_ANSWER_BYTES - size, decode_content=False):
            size += len(chunk)
            late = deadline is not None and time.monotonic() >= deadline
            if late or size >= _MAX_ANSWER_BYTES:
                break
        else:
            return
    except (HTTPError, OSError):
        pass
    answer.close()
