"""``python -m observability.generate [--check]``: writes docs/metrics.md from the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from observability import catalogue, schema
from observability.catalogue import Label, Metric, MetricKind
from observability.outcomes import OUTCOMES, PREFIX_MISS_REASONS, WAITING_REASONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

_INTRODUCTION = """\
# What Quire shows of itself

Written by `python -m observability.generate` (`make docs`) from `observability/catalogue.py`,
`outcomes.py` and `schema.py`; a test fails when they differ.

`GET /metrics` serves these metrics in the Prometheus text format, and in OpenMetrics (with
exemplars: the trace id of a sampled request in the bucket it fell into) to scrapers that accept
it. Series with closed label sets exist at 0 from the start. Every bound that is a likely objective
is an exact bucket bound, so that attainment is a ratio of two counters.

Spans are exported over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` (or `_TRACES_ENDPOINT`) is set;
`OTEL_EXPORTER_OTLP_PROTOCOL` (`http/protobuf`, the default, or `grpc`), `OTEL_TRACES_SAMPLER` and
the other standard variables apply. Without an endpoint requests have trace ids all the same.
"""


def page() -> str:
    """Return the whole document."""
    parts = [
        _INTRODUCTION + "\n",
        "## Metrics\n",
        _table(("Metric", "MetricKind", "Labels", "Meaning"), map(_metric_row, catalogue.METRICS)),
        "\n### Histogram bounds\n",
        _table(
            ("Metric", "Upper bounds"),
            (
                (f"`{metric.name}`", " ".join(f"{bound:g}" for bound in metric.buckets))
                for metric in catalogue.METRICS
                if metric.kind is MetricKind.HISTOGRAM
            ),
        ),
        "\n### Outcomes\n",
        "\nEach request ends in exactly one of these; the same word is used in metric, span and "
        "log line.\n",
        _table(
            ("Outcome", "Group", "Meaning"),
            ((f"`{each.name}`", each.group.value, each.sentence) for each in OUTCOMES),
        ),
        "\n### What sequences wait for\n",
        _table(
            ("Reason", "Meaning"),
            ((f"`{name}`", f"{sentence}") for name, sentence in WAITING_REASONS.items()),
        ),
        "\n### Why a prompt was not in the prefix cache\n",
        _table(
            ("Reason", "Meaning"),
            ((f"`{name}`", f"{sentence}") for name, sentence in PREFIX_MISS_REASONS.items()),
        ),
        "\n## Spans\n",
        *_spans(),
        "\n## The request log line\n",
        "One JSON line a request, on stderr, with `ts`, `level`, `event` "
        f"(`{schema.REQUEST_LOG_EVENT}`) and these fields; never a prompt, an answer or a "
        "key.\n\n",
        _table(
            ("Field", "Meaning"),
            ((f"`{field.name}`", field.help) for field in schema.REQUEST_LOG_FIELDS),
        ),
    ]
    return "".join(parts)


def _metric_row(metric: Metric) -> tuple[str, ...]:
    labels = "<br>".join(_label(label) for label in metric.labels)
    return f"`{metric.name}`", metric.kind.value, metric.scope.value, labels, metric.help


def _label(label: Label) -> str:
    if label.values is None:
        return f"`{label.name}`"
    if label is catalogue.OUTCOME:
        return f"`{label.name}` (see below)"
    return f"`{label.name}`: {', '.join(label.values)}"


def _spans() -> Iterator[str]:
    for span in schema.SPANS:
        yield f"\n### `{span.name}`\n\n{span.help}\n\n"
        rows = ((f"`{attribute.name}`", attribute.help) for attribute in span.attributes)
        yield _table(("Attribute", "Meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main(argv: list[str]) -> int:
    """Write the page, or with ``--check`` only compare: exit status 1 if it is stale."""
    parser = argparse.ArgumentParser(prog="python -m observability.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    if parser.parse_args(argv).check:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current == page():
            return 0
        print(f"{PAGE} is stale: run python -m observability.generate", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
