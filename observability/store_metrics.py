"""The part of the catalogue that is about the database of the stored responses."""

from __future__ import annotations

from observability.metric_kinds import Combined, Label, Metric, MetricKind, Scope

STORE_UNAVAILABLE = Metric(
    "quire_store_unavailable",
    MetricKind.GAUGE,
    Scope.PROCESS,
    "1 while some API worker cannot use the store's database, else 0; by use: reading stored "
    "responses (read), storing them (write), reading API keys (keys), storing ended requests, "
    "usage and audit (records), sharing limits with other replicas (limits). Always 0 for uses "
    "that are not configured.",
    (Label("use", ("read", "write", "keys", "records", "limits")),),
    combined=Combined.MAX,
)
RESPONSES_NOT_STORED = Metric(
    "quire_responses_not_stored_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Responses that should have been stored, because the request said so or by default, and were "
    "not: the store was unavailable, or too slow.",
)

STORE_METRICS = (STORE_UNAVAILABLE, RESPONSES_NOT_STORED)
