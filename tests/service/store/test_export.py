"""Exports have every row once, in files that spreadsheets and Parquet readers open."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pyarrow.parquet
import pytest

from observability.admin_api import KeptRequest, RequestQuery, UsageRow
from observability.usage_table import UsageGroup
from service.store.export import (
    REQUEST_COLUMNS,
    USAGE_COLUMNS,
    ParquetMissingError,
    csv_pieces,
    parquet_pieces,
)
from tests.service.store.archived import BASE, archived, kept

USAGE = UsageRow(
    start=3600.0,
    group="alice",
    requests=2,
    errors=1,
    prompt_tokens=30,
    cached_tokens=20,
    output_tokens=10,
    reasoning_tokens=5,
    seconds=1.5,
)


async def batches(*found: Sequence[object]) -> AsyncIterator[Sequence[object]]:
    for one in found:
        yield one


async def joined(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def test_a_csv_file_has_all_rows_and_columns() -> None:
    requests = [kept(number) for number in range(130)]
    data = await joined(csv_pieces(REQUEST_COLUMNS, batches(requests[:70], requests[70:])))
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert [row["request_id"] for row in rows] == [one.request_id for one in requests]
    assert rows[1]["queue_seconds"] == str(requests[1].phases["queue"])
    assert rows[1]["prefix_stopped"] == "diverged"
    assert rows[2]["key"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
async def test_no_text_becomes_a_formula(text: str) -> None:
    data = await joined(csv_pieces(REQUEST_COLUMNS, batches([kept(1, user_agent=text)])))
    [row] = csv.DictReader(io.StringIO(data.decode(), newline=""))
    assert row["user_agent"] == f"'{text}"


async def test_a_parquet_file_has_the_same_values() -> None:
    requests = [kept(number) for number in range(30)]
    data = await joined(parquet_pieces(REQUEST_COLUMNS, batches(requests[:10], requests[10:])))
    table = pyarrow.parquet.read_table(io.BytesIO(data)).to_pydict()
    for column in REQUEST_COLUMNS:
        assert table[column.name] == [column.read(one) for one in requests], column.name


async def test_usage_as_csv_and_parquet() -> None:
    text = (await joined(csv_pieces(USAGE_COLUMNS, batches([USAGE])))).decode()
    [row] = csv.DictReader(io.StringIO(text))
    assert row["group"] == "alice"
    assert row["output_tokens"] == "10"
    data = await joined(parquet_pieces(USAGE_COLUMNS, batches([USAGE])))
    [found] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    assert UsageRow(**found) == USAGE


async def test_the_archive_exports_what_a_query_finds(tmp_path: Path) -> None:
    requests = [kept(number) for number in range(700)]
    group = UsageGroup("alice", "m", "chat_completions")
    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        one.keep(*requests)
        await one.written()
        one.use(BASE, group, output_tokens=7)
        query = RequestQuery(key="bob")
        data = await joined(await one.archive.export_requests(query, "csv"))
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        bobs = sorted((r for r in requests if r.key == "bob"), key=lambda r: r.ended or 0)
        assert [row["request_id"] for row in rows] == [r.request_id for r in bobs]
        data = await joined(await one.archive.export_requests(query, "parquet"))
        assert pyarrow.parquet.read_table(io.BytesIO(data)).num_rows == len(bobs)
        data = await joined(await one.archive.export_usage("key", BASE, BASE + 1, "day", "csv"))
        [row] = csv.DictReader(io.StringIO(data.decode()))
        assert (row["group"], row["output_tokens"]) == ("alice", "7")
        with pytest.raises(ValueError, match="must be csv or parquet"):
            await one.archive.export_requests(query, "xlsx")


async def test_without_pyarrow_parquet_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    async with archived(f"sqlite:///{tmp_path}/store.sqlite3") as one:
        with pytest.raises(ParquetMissingError, match=r"-m pip install pyarrow'") as caught:
            await one.archive.export_requests(RequestQuery(), "parquet")
    assert sys.executable in str(caught.value)  # the server's own Python


def test_every_column_has_its_own_name() -> None:
    for columns in (REQUEST_COLUMNS, USAGE_COLUMNS):
        assert len({column.name for column in columns}) == len(columns)
    assert isinstance(kept(1), KeptRequest)
