"""Errors of the admin API, as RFC 9457 has them."""

from __future__ import annotations

import http
from typing import Any

import msgspec

MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """``code`` names the kind of problem; ``detail`` says what was wrong and what to do; ``field``
    is the parameter at fault."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers or {}

    def to_body(self) -> bytes:
        """Return the JSON object."""
        body: dict[str, Any] = {
            "type": f"urn:quire:problem:{self.code}",
            "title": _title(self.status),
            "status": self.status,
            "detail": self.detail,
        }
        if self.field is not None:
            body["field"] = self.field
        return msgspec.json.encode(body)


def _title(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def invalid(detail: str, field: str | None = None) -> ProblemError:
    return ProblemError(422, "invalid", detail, field=field)


def unavailable(detail: str) -> ProblemError:
    return ProblemError(503, "unavailable", detail)


def not_found(detail: str, headers: dict[str, str] | None = None) -> ProblemError:
    return ProblemError(404, "not_found", detail, headers=headers)
