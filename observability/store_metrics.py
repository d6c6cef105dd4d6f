"""The part of the catalogue that is about the database of the stored responses."""

from __future__ import annotations

from observability.metric_kinds import Combined, Label, Metric, MetricKind, Scope

STORE_UNAVAILABLE = Metric(
    "quire_store_unavailable",
    MetricKind.GAUGE,
    Scope.PROCESS,
    "1 while some API worker cannot use the store's database, else 0; by what for: to read stored "
    "responses (read), to store them (write), to read API keys (keys), to store ended requests, "
    "usage and audit (records), or to share limits with other replicas (limits). 0 for what the "
    "server does not use it for.",
    (Label("use", ("read", "write", "keys", "records", "limits")),),
    combined=Combined.MAX,
)
RESPONSES_NOT_STORED = Metric(
    "quire_responses_not_stored_total",
    MetricKind.COUNTER,
    Scope.PROCESS,
    "Responses that were to be stored, because the request said so or by default, and were not: "
    "the store was unavailable, or too slow.",
)

STORE_METRICS = (STORE_UNAVAILABLE, RESPONSES_NOT_STORED)
