"""Usage over the admin API."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from observability.admin_api import UsageRow
from service.http.admin.application import AdminApp
from service.records.ordering import QueryError
from tests.service.http.admin.asking import Reply, admin_app, ask

ROW = UsageRow(
    start=3600.0,
    group="bob",
    requests=2,
    errors=0,
    prompt_tokens=10,
    cached_tokens=4,
    output_tokens=7,
    reasoning_tokens=0,
    seconds=1.5,
)


class Archive:
    def __init__(self) -> None:
        self.asked: list[tuple[str, float, float, str]] = []

    async def usage(self, by: str, start: float, end: float, bucket: str) -> list[UsageRow]:
        self.asked.append((by, start, end, bucket))
        if end < start:
            raise QueryError("'from' must be before 'to'.", "from")
        return [ROW]


@pytest.fixture
def archive() -> Archive:
    return Archive()


@pytest.fixture
def app(own_template: Path, tmp_path: Path, archive: Archive) -> AdminApp:
    made = admin_app(own_template, tmp_path, store_url="none")
    object.__setattr__(made.desk, "archive", archive)
    return made


def get(app: AdminApp, query: str) -> Reply:
    return asyncio.run(ask(app, "GET", f"/admin/v1/usage{query}", leaves=False))


def test_by_default_the_last_day_by_key_in_hours(app: AdminApp, archive: Archive) -> None:
    assert get(app, "").json()["rows"][0]["group"] == "bob"
    [(by, start, end, bucket)] = archive.asked
    assert (by, bucket, round(end - start)) == ("key", "hour", 86_400)
    assert abs(end - time.time()) < 60


def test_what_is_asked_is_passed_on(app: AdminApp, archive: Archive) -> None:
    get(app, "?by=model&from=7200&to=9000&bucket=day")
    assert archive.asked == [("model", 7200.0, 9000.0, "day")]


@pytest.mark.parametrize("query", ["by=colour", "bucket=week", "from=9&to=8", "x=1"])
def test_wrong_queries(app: AdminApp, query: str) -> None:
    reply = get(app, f"?{query}")
    assert (reply.status, reply.json()["field"]) == (422, query.partition("=")[0])


def test_without_a_database_there_is_no_usage(app: AdminApp) -> None:
    object.__setattr__(app.desk, "archive", None)
    assert get(app, "").status == 503
