"""Requests and usage as CSV and Parquet files, made a piece at a time."""

from __future__ import annotations

import asyncio
import csv
import importlib
import importlib.util
import io
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from observability.admin_api import KeptRequest, PrefixReport, UsageRow
from observability.phases import PHASES
from service.turns import Pace, my_turn

ExportValue = str | int | float | bool | None
Batches = AsyncIterator[Sequence[Any]]

_LINES_AT_ONCE = 50
# What makes spreadsheets take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NO_PREFIX = PrefixReport(0, 0)


class ParquetMissingError(ValueError):
    """pyarrow is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "Parquet files need pyarrow, which is not installed; run "
            f"'{shlex.quote(sys.executable)} -m pip install pyarrow' where the server runs, or use "
            "CSV."
        )


@dataclass(frozen=True, slots=True)
class ExportColumn:
    name: str
    kind: type[str] | type[int] | type[float] | type[bool]
    read: Callable[[Any], ExportValue]


def _field(name: str, kind: type[str] | type[int] | type[float] | type[bool]) -> ExportColumn:
    return ExportColumn(name, kind, lambda row: getattr(row, name))


def _phase(name: str) -> ExportColumn:
    return ExportColumn(f"{name}_seconds", float, lambda kept: kept.phases.get(name))


def _prefix(name: str, kind: type[str] | type[int] | type[float]) -> ExportColumn:
    return ExportColumn(
        f"prefix_{name}", kind, lambda kept: getattr(kept.prefix or _NO_PREFIX, name)
    )


REQUEST_COLUMNS = (
    *(_field(name, str) for name in ("request_id", "trace_id", "response_id")),
    *(_field(name, float) for name in ("received", "ended")),
    *(_field(name, str) for name in ("key", "model", "route", "outcome")),
    _field("status", int),
    *(_field(name, str) for name in ("error", "error_code", "error_field", "limited_by")),
    *(_field(name, str) for name in ("client_request_id", "client_address", "user_agent")),
    _field("stream", bool),
    *(_field(name, int) for name in ("choices", "max_tokens", "waiting", "retry_after")),
    *(_field(name, float) for name in ("temperature", "top_p")),
    *(_field(name, int) for name in ("prompt_tokens", "cached_tokens", "output_tokens")),
    *(_field(name, int) for name in ("reasoning_tokens", "preemptions", "handovers")),
    *(_field(name, float) for name in ("total", "ttft", "itl_mean", "itl_max")),
    *(_phase(phase.name) for phase in PHASES),
    _field("other", float),
    *(_prefix(name, int) for name in ("matched", "of")),
    *(_prefix(name, str) for name in ("stopped", "request_id", "role")),
    *(_prefix(name, int) for name in ("at_message", "messages")),
)
assert all(
    column.name in KeptRequest.__struct_fields__
    for column in REQUEST_COLUMNS
    if not column.name.endswith("_seconds") and not column.name.startswith("prefix_")
)
USAGE_COLUMNS = (
    _field("start", float),
    _field("group", str),
    *(_field(name, int) for name in UsageRow.__struct_fields__[2:-1]),
    _field("seconds", float),
)


async def csv_pieces(columns: Sequence[ExportColumn], batches: Batches) -> AsyncIterator[bytes]:
    """Yield a CSV file whose texts no spreadsheet takes for formulas."""
    yield _csv([[column.name for column in columns]])
    async for batch in batches:
        await my_turn()
        pace = Pace()
        for start in range(0, len(batch), _LINES_AT_ONCE):
            await pace.rest()
            rows = batch[start : start + _LINES_AT_ONCE]
            yield _csv([_safe(column.read(row)) for column in columns] for row in rows)


def _csv(rows: Iterator[list[ExportValue]] | list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _safe(value: ExportValue) -> ExportValue:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def require_parquet() -> None:
    """Raises ParquetMissingError."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ParquetMissingError


async def parquet_pieces(columns: Sequence[ExportColumn], batches: Batches) -> AsyncIterator[bytes]:
    """Yield a Parquet file; made in a thread. Call ``require_parquet`` before."""
    table = await asyncio.to_thread(_ParquetTable, columns)
    async for batch in batches:
        piece = await asyncio.to_thread(table.add, batch)
        if piece:
            yield piece
    yield await asyncio.to_thread(table.end)


class _ParquetTable:
    """A Parquet file in memory, of which what has been made can be taken out."""

    def __init__(self, columns: Sequence[ExportColumn]) -> None:
        self._arrow = arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
        kinds = {
            str: arrow.string(),
            int: arrow.int64(),
            float: arrow.float64(),
            bool: arrow.bool_(),
        }
        self._columns = columns
        self._schema = arrow.schema([(column.name, kinds[column.kind]) for column in columns])
        self._sink = _Sink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="zstd")

    def add(self, rows: Sequence[Any]) -> bytes:
        arrays = [
            self._arrow.array([column.read(row) for row in rows], self._schema.types[number])
            for number, column in enumerate(self._columns)
        ]
        self._writer.write_batch(self._arrow.record_batch(arrays, schema=self._schema))
        return self._sink.taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._sink.taken()


class _Sink(io.RawIOBase):
    """A file that forgets what was taken out, but not its position."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, piece: Any) -> int:
        size = len(memoryview(piece).cast("B"))
        self._written += piece
        self._position += size
        return size

    def taken(self) -> bytes:
        taken, self._written = bytes(self._written), bytearray()
        return taken
