"""Speaks to the admin API of one server."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx
import msgspec

from dashboard.certificates import certificates
from dashboard.server import UnusableKeyError, authorization, unreachable
from observability.admin_api import (
    AdminScope,
    AuditRow,
    AuditRows,
    KeptRequest,
    LoadReport,
    LoadRun,
    Overview,
    RequestPage,
    Settings,
    UsageRow,
)
from observability.key_listing import KeyRows, NewKey

T = TypeVar("T")

SCOPE_HEADER = "quire-admin-scope"
_TIMEOUT = httpx.Timeout(10.0, connect=2.0)


class AdminRefusalError(Exception):
    """The admin API refused or failed; the message is a sentence for people. ``status`` is 0 if
    it did not answer at all, and 401 for a key that cannot be sent."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class _Problem(msgspec.Struct):
    detail: str = ""
    title: str = ""


class _Usage(msgspec.Struct):
    rows: tuple[UsageRow, ...]


class AdminClient:
    """Every method raises AdminRefusalError. ``key`` may be empty."""

    def __init__(self, url: str, key: str = "", timeout: httpx.Timeout = _TIMEOUT) -> None:
        self.url = url
        self.key = key
        self._timeout = timeout

    def overview(self) -> tuple[Overview, AdminScope]:
        """Return it with what the key may do."""
        response = self._send("GET", "/overview")
        scope = response.headers.get(SCOPE_HEADER, AdminScope.READ.value)
        return _decode(response, Overview), AdminScope(scope)

    def requests(self, **query: str) -> RequestPage:
        """``query``: parameters of the path; empty ones are left out."""
        given = {name: value for name, value in query.items() if value}
        return _decode(self._send("GET", "/requests", given), RequestPage)

    def request(self, request_id: str) -> KeptRequest:
        return _decode(self._send("GET", f"/requests/{_segment(request_id)}"), KeptRequest)

    def usage(self, by: str, since: float, bucket: str) -> tuple[UsageRow, ...]:
        query = {"by": by, "from": f"{since:.0f}", "bucket": bucket}
        return _decode(self._send("GET", "/usage", query), _Usage).rows

    def cancel(self, request_id: str) -> None:
        self.order(f"requests/{_segment(request_id)}/cancel")

    def order(self, path: str, **details: Any) -> None:
        """Have something done: drain, resume, loglevel."""
        self._send("POST", f"/{path}", body=details)

    def settings(self) -> Settings:
        return _decode(self._send("GET", "/settings"), Settings)

    def change_setting(self, name: str, value: float | str, revision: str) -> None:
        self._send("PATCH", "/settings", body={name: value}, if_match=f'"{revision}"')

    def audit(self) -> tuple[AuditRow, ...]:
        return _decode(self._send("GET", "/audit"), AuditRows).rows

    def keys(self) -> KeyRows:
        return _decode(self._send("GET", "/keys"), KeyRows)

    def create_key(self, **details: Any) -> NewKey:
        """``details``: the fields of the order, the alias among them."""
        return _decode(self._send("POST", "/keys", body=details), NewKey)

    def rotate_key(self, key_id: str, overlap: float) -> NewKey:
        path = f"/keys/{_segment(key_id)}/rotate"
        return _decode(self._send("POST", path, body={"overlap": overlap}), NewKey)

    def revoke_key(self, key_id: str) -> None:
        self.order(f"keys/{_segment(key_id)}/revoke")

    def bundle(self) -> bytes:
        return self._send("GET", "/bundle").content

    def load(self) -> LoadReport:
        return _decode(self._send("GET", "/load"), LoadReport)

    def start_load(self, profile: str, rate: float, seconds: float, concurrency: int) -> LoadRun:
        plan = {"profile": profile, "rate": rate, "seconds": seconds, "concurrency": concurrency}
        return _decode(self._send("POST", "/load", body=plan), LoadRun)

    def stop_load(self) -> LoadRun:
        return _decode(self._send("DELETE", "/load"), LoadRun)

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: dict[str, Any] | None = None,
        if_match: str = "",
    ) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        if if_match:
            headers["If-Match"] = if_match
        try:
            headers |= authorization(self.key)
            response = httpx.request(
                method,
                f"{self.url}/admin/v1{path}",
                params=query,
                content=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=self._timeout,
                verify=certificates(),
            )
        except httpx.TransportError as error:
            raise AdminRefusalError(0, unreachable(self.url, error)) from None
        except httpx.InvalidURL as error:
            raise AdminRefusalError(0, f"{self.url} is not a valid URL: {error}.") from None
        except UnusableKeyError as error:
            raise AdminRefusalError(401, str(error)) from None
        if response.is_error:
            raise AdminRefusalError(response.status_code, _reason(response))
        return response


def _segment(text: str) -> str:
    """``text`` as one segment of a path: ids have nothing but these characters."""
    return "".join(one for one in text if one.isalnum() or one in "-_.:")[:256] or "-"


def _decode(response: httpx.Response, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=type_)
    except msgspec.DecodeError as error:
        raise AdminRefusalError(
            response.status_code,
            f"{response.url} sent a response that this dashboard cannot read: {error}. Do the "
            "dashboard and the server have the same version?",
        ) from None


def _reason(response: httpx.Response) -> str:
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem()
    return problem.detail or problem.title or f"{response.status_code} {response.reason_phrase}"
