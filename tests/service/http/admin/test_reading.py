"""Requests, overview and series over the admin API, without an engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from observability.admin_api import KeptRequest, Overview, RequestPage, RequestQuery, Series
from service.errors import StoreUnavailableError
from service.http.admin.application import AdminApp
from service.telemetry.record import RequestRecord
from tests.service.http.admin.asking import Reply, admin_app, ask

V1 = "/admin/v1"


class Archive:
    """A store with one request, which may be away."""

    def __init__(self) -> None:
        self.is_away = False
        self.keeps_requests = True
        self.asked: list[RequestQuery] = []

    async def query(self, query: RequestQuery) -> RequestPage:
        self.asked.append(query)
        if self.is_away:
            raise StoreUnavailableError("The database is away.")
        return RequestPage((self.request,), "second", "store")

    @property
    def request(self) -> KeptRequest:
        return KeptRequest(request_id="req_old", received=1.0, ended=2.0, route="messages")

    async def find(self, identity: str) -> KeptRequest | None:
        return self.request if identity == "req_old" else None


@pytest.fixture
def archive() -> Archive:
    return Archive()


@pytest.fixture
def app(own_template: Path, tmp_path: Path, archive: Archive) -> AdminApp:
    made = admin_app(own_template, tmp_path, store_url="none")
    app_desk = made.desk
    object.__setattr__(app_desk, "archive", archive)
    records = app_desk.services.records
    for number in range(3):
        now = time.monotonic()
        record = RequestRecord(
            f"req_{number}", "chat_completions", "POST", "/", now, time.time_ns()
        )
        records.began(record)
        record.outcome, record.ended_time = "stop", now + number
        if number:
            records.ended(record, {})
    return made


def ended_record(request_id: str) -> RequestRecord:
    now = time.monotonic()
    record = RequestRecord(request_id, "chat_completions", "POST", "/", now, time.time_ns())
    record.outcome, record.ended_time = "stop", now + 3
    return record


def get(app: AdminApp, path: str) -> Reply:
    return asyncio.run(ask(app, "GET", V1 + path, leaves=False))


def page(app: AdminApp, query: str) -> RequestPage:
    reply = get(app, f"/requests?{query}")
    assert reply.status == 200, reply.body
    return msgspec.json.decode(reply.body, type=RequestPage)


def test_the_last_minutes_come_from_memory(app: AdminApp, archive: Archive) -> None:
    oldest = app.desk.services.records.oldest_ended
    found = page(app, f"since={oldest}&sort=-total")
    assert [one.request_id for one in found.requests] == ["req_2", "req_1"]
    assert (found.source, archive.asked) == ("memory", [])


def test_live_ones_come_from_memory(app: AdminApp) -> None:
    found = page(app, "state=live")
    assert [(one.request_id, one.live) for one in found.requests] == [("req_0", True)]


def test_older_ones_come_from_the_store_page_by_page(app: AdminApp, archive: Archive) -> None:
    found = page(app, "since=30d")
    assert [one.request_id for one in found.requests] == ["req_old"]
    assert found.source == "store"
    page(app, f"since=30d&cursor={found.cursor}")
    assert [query.cursor for query in archive.asked] == [None, "second"]


def test_the_store_continues_pages_of_which_memory_has_forgotten_some(
    app: AdminApp, archive: Archive
) -> None:
    records = app.desk.services.records
    oldest = records.oldest_ended
    first = page(app, f"since={oldest}&sort=-ended&limit=1")
    assert first.source == "memory"
    records._most = 1
    records.ended(ended_record("req_3"), {})
    for _ in range(2):
        second = page(app, f"since={oldest}&sort=-ended&limit=1&cursor={first.cursor}")
        assert (second.source, second.cursor) == ("store", "s.second")
    assert [query.cursor for query in archive.asked] == [first.cursor] * 2
    archive.keeps_requests = False
    second = page(app, f"since={oldest}&sort=-ended&limit=1&cursor={first.cursor}")
    assert second.source == "memory"


def test_without_stored_requests_memory_is_what_there_is(app: AdminApp, archive: Archive) -> None:
    archive.keeps_requests = False
    assert page(app, "since=30d").source == "memory"
    assert not archive.asked


def test_while_the_store_is_away_memory_is_what_there_is(app: AdminApp, archive: Archive) -> None:
    archive.is_away = True
    assert page(app, "since=30d").source == "memory"
    assert len(archive.asked) == 1  # each attempt may take ten seconds
    reply = get(app, "/requests?since=30d&cursor=s.second")
    assert (reply.status, reply.headers["content-type"]) == (503, "application/problem+json")


def test_one_request_from_memory_or_store(app: AdminApp) -> None:
    for name in ("req_0", "req_1", "req_old"):
        reply = get(app, f"/requests/{name}")
        assert msgspec.json.decode(reply.body, type=KeptRequest).request_id == name
    assert get(app, "/requests/req_none").status == 404


def test_a_server_without_a_store_says_that_it_forgets_requests(
    own_template: Path, tmp_path: Path
) -> None:
    reply = get(admin_app(own_template, tmp_path, store_url="none"), "/requests/req_none")
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    assert reply.json()["detail"] == (
        "Request 'req_none' was not found: this server never received it, or its record has "
        "expired. The server stores no requests and remembers only the latest that have ended."
    )


def test_a_cursor_that_is_not_one(app: AdminApp) -> None:
    reply = get(app, "/requests?since=1s&state=live&cursor=x")
    assert (reply.status, reply.json()["field"]) == (422, "cursor")
    assert reply.json()["detail"].startswith("The cursor is not valid;")


@pytest.mark.parametrize("times", ["from=1h&to=2h", "from=100&to=100"])
def test_a_series_begins_before_it_ends(app: AdminApp, times: str) -> None:
    reply = get(app, f"/series?{times}")
    assert (reply.status, reply.json()["field"]) == (422, "from")
    assert reply.json()["detail"] == "'from' must be before 'to'."


def test_overview_and_series(app: AdminApp) -> None:
    overview = msgspec.json.decode(get(app, "/overview").body, type=Overview)
    assert overview.models == (app.desk.services.limits.names[0],)
    series = msgspec.json.decode(
        get(app, "/series?names=running,ttft_p95&from=10s").body, type=Series
    )
    assert list(series.values) == ["running", "ttft_p95"]
    assert get(app, "/series?names=temperature").status == 422
    assert get(app, "/series?step=0").status == 422


def test_metrics(app: AdminApp) -> None:
    reply = asyncio.run(ask(app, "GET", "/metrics"))
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
