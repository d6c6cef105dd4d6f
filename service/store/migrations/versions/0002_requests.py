"""Ended requests, usage and audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "quire_requests",
        sa.Column("request_id", sa.Text(), primary_key=True),
        sa.Column("ended", sa.Double(), primary_key=True),
        sa.Column("received", sa.Double(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("ttft", sa.Double(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        postgresql_partition_by="RANGE (ended)",
    )
    op.create_index("ix_quire_requests_trace_id", "quire_requests", ["trace_id"])
    op.create_index("ix_quire_requests_key", "quire_requests", ["key", "ended", "request_id"])
    filtered = ["ended", "request_id", "received", "key", "model", "route", "outcome", "phase"]
    numbers = ["total", "ttft", "prompt_tokens", "cached_tokens", "output_tokens"]
    op.create_index("ix_quire_requests_ended", "quire_requests", filtered + numbers)
    op.create_table(
        "quire_usage",
        sa.Column("hour", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("model", sa.Text(), primary_key=True),
        sa.Column("route", sa.Text(), primary_key=True),
        sa.Column("boot", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
    )
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "quire_audit",
        sa.Column("id", number, sa.Identity(), primary_key=True),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
    )
    op.create_index("ix_quire_audit_time", "quire_audit", ["time"])


def downgrade() -> None:
    for table in ("quire_requests", "quire_usage", "quire_audit"):
        op.drop_table(table)
