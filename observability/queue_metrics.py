"""The part of the catalogue that is about places in the engine's waiting queue."""

from __future__ import annotations

from observability.metric_kinds import Combined, Label, Metric, MetricKind, Scope
from observability.outcomes import QUEUE_REFUSALS, SERVICE_CLASSES

_MODEL = Label("model")
_CLASS = Label("class", SERVICE_CLASSES)

CLASS_WAITING = Metric(
    "quire_class_waiting",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "Sequences that wait for an engine to run them, by their service class.",
    (_MODEL, _CLASS),
)
CLASS_OLDEST_WAITING_SECONDS = Metric(
    "quire_class_oldest_waiting_seconds",
    MetricKind.GAUGE,
    Scope.ENGINE,
    "How long the oldest waiting sequence of a service class has waited for an engine to run it; 0 "
    "if none is waiting.",
    (_MODEL, _CLASS),
    combined=Combined.MAX,
)
REFUSED_SEQUENCES = Metric(
    "quire_refused_sequences_total",
    MetricKind.COUNTER,
    Scope.ENGINE,
    "Sequences that the engine's queue had no place for, or that lost theirs, by reason. Requests "
    "are counted by their outcome.",
    (_MODEL, Label("reason", tuple(QUEUE_REFUSALS))),
)

QUEUE_METRICS = (CLASS_WAITING, CLASS_OLDEST_WAITING_SECONDS, REFUSED_SEQUENCES)
