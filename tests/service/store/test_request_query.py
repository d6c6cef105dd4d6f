"""Queries become statements that use the indexes, or are refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.dialects import sqlite

from observability.admin_api import SORTABLE, RequestQuery
from service.records.ordering import Ordering
from service.store.archive_tables import REQUEST_TABLE
from service.store.request_query import (
    ArchiveQueryError,
    cursor_after,
    find_statements,
    page_statement,
)


def plan(statement: object, folder: Path) -> str:
    engine = create_engine(f"sqlite:///{folder}/plan.sqlite3")
    REQUEST_TABLE.metadata.create_all(engine)
    compiled = statement.compile(  # type: ignore[attr-defined]
        dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
    )
    with engine.connect() as connection:
        rows = connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}")).all()
    return "\n".join(str(row[-1]) for row in rows)


@pytest.mark.parametrize(
    "query",
    [
        RequestQuery(since=1.0, until=2.0, sort="-total"),
        RequestQuery(sort="-total"),
        RequestQuery(sort="ttft", key="a", outcome="failed", min_seconds=3.0),
        RequestQuery(sort="-ended", key="other"),
        RequestQuery(sort="-ended", model="m", route="chat_completions", phase="queue"),
    ],
)
def test_a_page_reads_only_an_index_and_its_own_rows(query: RequestQuery, tmp_path: Path) -> None:
    found = plan(page_statement(query), tmp_path)
    assert "USING COVERING INDEX" in found, found
    assert "SCAN quire_requests\n" not in found + "\n", found


def test_a_sorted_page_copies_only_the_columns_it_needs() -> None:
    query = RequestQuery(sort="-ttft", key="a", min_seconds=3.0)
    copied = str(page_statement(query)).partition("LIMIT")[0].rpartition("SELECT")[2]
    names = copied.partition("FROM")[0].replace("quire_requests.", "").split(",")
    wanted = {"request_id", "ended", "key", "ttft", "total"}
    assert {name.split(" AS ")[0].strip() for name in names} == wanted


def test_requests_and_traces_are_found_by_their_indexes(tmp_path: Path) -> None:
    for statement in find_statements("x"):
        assert "SEARCH quire_requests USING INDEX" in plan(statement, tmp_path)


@pytest.mark.parametrize("sort", [*SORTABLE, *(f"-{name}" for name in SORTABLE)])
def test_a_cursor_is_taken_with_the_order_that_it_is_of(sort: str) -> None:
    query = RequestQuery(sort=sort)
    cursor = cursor_after(query, 1.5, "req_1")
    page_statement(RequestQuery(sort=sort, cursor=cursor))
    other = "-" + sort if sort[0] != "-" else sort[1:]
    with pytest.raises(ArchiveQueryError, match="cursor") as caught:
        page_statement(RequestQuery(sort=other, cursor=cursor))
    assert caught.value.field == "cursor"


def test_a_page_by_end_is_read_in_the_order_of_the_index(tmp_path: Path) -> None:
    """Only rows that ended in the same moment are sorted."""
    query = RequestQuery(sort="-ended")
    later = RequestQuery(sort="-ended", cursor=cursor_after(query, 1.5, "req_1"))
    for one in (query, later):
        assert plan(page_statement(one), tmp_path).count("FOR ORDER BY") <= 1  # of the page
    assert "(ended<?)" in plan(page_statement(later), tmp_path)


@pytest.mark.parametrize("sort", ["received", "prompt_tokens", "ttft"])
def test_a_cursor_of_memory_is_one_of_the_store(sort: str) -> None:
    ordering = Ordering.of(RequestQuery(sort=sort))
    assert ordering.cursor(ordering.key(7, "req_1")) == cursor_after(
        RequestQuery(sort=sort), 7, "req_1"
    )


def test_a_refusal_says_what_is_allowed() -> None:
    with pytest.raises(ArchiveQueryError, match="received, ended, total"):
        page_statement(RequestQuery(sort="user_agent"))
    with pytest.raises(ArchiveQueryError, match="answered, left, refused, failed"):
        page_statement(RequestQuery(outcome="fine"))
