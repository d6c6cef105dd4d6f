"""The one table of stored responses. Times are seconds since the epoch."""

from __future__ import annotations

from advanced_alchemy.base import DefaultBase
from sqlalchemy import BigInteger, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

RUNNING = ("queued", "in_progress")


class ResponseRow(DefaultBase):
    """``body`` is the response object; ``input`` the request's own items, ``context`` those before
    them and ``events`` the stream, each zlib-compressed JSON or bytes. ``size`` counts all of
    these. A row that is still being worked on is alive until ``lease_until``."""

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
