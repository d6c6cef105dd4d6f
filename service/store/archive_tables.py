"""The tables of ended requests, of usage and of what operators changed. Times are seconds since the
epoch."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
)

from service.store.tables import ResponseRow

_metadata = ResponseRow.metadata

# ``phase``: the longest. ``record``: see ``service.store.packed_request``. In PostgreSQL it is
# partitioned by day (``service.store.partitions``).
REQUEST_TABLE = Table(
    "quire_requests",
    _metadata,
    Column("request_id", Text, primary_key=True),
    Column("ended", Double, primary_key=True),
    Column("received", Double, nullable=False),
    Column("trace_id", Text, nullable=False),
    Column("key", Text, nullable=True),
    Column("model", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("phase", Text, nullable=True),
    Column("total", Double, nullable=False),
    Column("ttft", Double, nullable=True),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Index("ix_quire_requests_trace_id", "trace_id"),
    Index("ix_quire_requests_key", "key", "ended", "request_id"),
    # It has all columns that are filtered and sorted by, so that a query reads no other pages of
    # the file than its own.
    Index(
        "ix_quire_requests_ended",
        *("ended", "request_id", "received", "key", "model", "route", "outcome", "phase"),
        *("total", "ttft", "prompt_tokens", "cached_tokens", "output_tokens"),
    ),
    postgresql_partition_by="RANGE (ended)",
)

# ``hour``: since the epoch. ``boot``: who counted (``UsageTable.boot_id``); each row only grows.
USAGE_TABLE = Table(
    "quire_usage",
    _metadata,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("route", Text, primary_key=True),
    Column("boot", BigInteger, primary_key=True, autoincrement=False),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
)

AUDIT_TABLE = Table(
    "quire_audit",
    _metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("result", Text, nullable=False),
    Index("ix_quire_audit_time", "time"),
)
