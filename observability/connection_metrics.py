"""The part of the catalogue that is about clients' connections."""

from __future__ import annotations

from observability.metric_kinds import Metric, MetricKind, Scope

OPEN_CONNECTIONS = Metric(
    "quire_open_connections",
    MetricKind.GAUGE,
    Scope.PROCESS,
    "Clients' connections to the public HTTP port, counted once a second. Those of gRPC and of the "
    "admin API have other limits and are not among them.",
)
CONNECTION_LIMIT = Metric(
    "quire_connection_limit",
    MetricKind.GAUGE,
    Scope.PROCESS,
    "How many connections the public HTTP port accepts at once; more wait. It follows from the "
    "limit of open files.",
)

CONNECTION_METRICS = (OPEN_CONNECTIONS, CONNECTION_LIMIT)
