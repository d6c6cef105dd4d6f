"""The table of stored responses, and the conversion of responses to rows. Times are seconds since
the epoch."""

from __future__ import annotations

import zlib
from typing import Any

from sqlalchemy import BigInteger, Index, LargeBinary, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.store.record import StoredResponse


class Base(DeclarativeBase):
    """Its metadata has all tables of the store."""


class ResponseRow(Base):
    """``body`` is the response object; ``input`` the request's own items, ``context`` those before
    them and ``events`` the stream, each zlib-compressed JSON or bytes. ``size`` counts all of
    these. A row still in progress is alive until ``lease_until`` by the database's clock. One whose
    ``expires_at`` is 0 is the trace of a response that was deleted in progress."""

    __tablename__ = "quire_responses"
    __table_args__ = (
        Index("ix_quire_responses_expires_at", "expires_at"),
        Index("ix_quire_responses_created_at", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int] = mapped_column(BigInteger)
    lease_until: Mapped[int] = mapped_column(BigInteger)
    status: Mapped[str] = mapped_column(String(16))
    size: Mapped[int] = mapped_column(BigInteger)
    body: Mapped[bytes] = mapped_column(LargeBinary)
    input: Mapped[bytes] = mapped_column(LargeBinary)
    context: Mapped[bytes] = mapped_column(LargeBinary)
    events: Mapped[bytes | None] = mapped_column(LargeBinary, default=None)


def to_row(record: StoredResponse) -> dict[str, Any]:
    """Convert to a row's values. Compresses, so call it in a thread."""
    packed_input = zlib.compress(record.input)
    context = zlib.compress(record.context)
    body = zlib.compress(record.body)
    events = None if record.events is None else zlib.compress(record.events)
    return {
        "id": record.id,
        "owner": record.owner,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "lease_until": 0,
        "status": record.status,
        "size": len(packed_input) + len(context) + len(body) + len(events or b""),
        "body": body,
        "input": packed_input,
        "context": context,
        "events": events,
    }


def from_row(row: ResponseRow) -> StoredResponse:
    return StoredResponse(
        id=row.id,
        owner=row.owner,
        created_at=row.created_at,
        expires_at=row.expires_at,
        status=row.status,
        body=zlib.decompress(row.body),
        input=zlib.decompress(row.input),
        context=zlib.decompress(row.context),
        events=None if row.events is None else zlib.decompress(row.events),
    )
