"""``python -m observability.generate [--check]``: writes docs/metrics.md, docs/alerts.md, Grafana's
boards and Prometheus' rules from the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from observability import catalogue, schema
from observability.alerts.files import alert_files
from observability.aliases import VLLM_ALIASES, Alias, InfoAlias
from observability.boards.table import FOLDER, board_files
from observability.metric_kinds import Label, Metric, MetricKind
from observability.outcomes import OUTCOMES, PREFIX_MISS_REASONS, QUEUE_REFUSALS, WAITING_REASONS
from observability.phases import PHASES
from observability.schema import SpanEvent

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

_INTRODUCTION = """\
# Metrics, spans and the request log line

Written by `python -m observability.generate` (`make docs`) from `observability/catalogue.py`,
`outcomes.py` and `schema.py`; a test fails when they differ.

`GET /metrics` serves these metrics in the Prometheus text format, and in OpenMetrics (with
exemplars: the trace id of a sampled request in the bucket it fell into) to scrapers that accept
it. Series with closed label sets exist at 0 from the start; those of `quire_requests_total` exist
once the model is loaded, for the combinations that can occur. Likely objectives are exact bucket
bounds, so that attainment is a ratio of two counters.

Counters, histograms and exemplars survive the API worker: when it is killed, the next one continues
them, and ends each request that was cut off as `error:worker`
([decision 8](decisions/0008-a-killed-worker-loses-no-count.md)). Counters that the engine keeps
(tokens, preemptions, grammars) are exact across restarts of both, and are not shown before their
value is known. If the server has several API workers, each of them shows the totals of all
([decision 10](decisions/0010-any-worker-answers-for-all.md)), and metrics of processes
(`process_*`) have the label `worker`.

Spans are exported over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` (or `_TRACES_ENDPOINT`) is set;
`OTEL_EXPORTER_OTLP_PROTOCOL` (`http/protobuf`, the default, or `grpc`), `OTEL_TRACES_SAMPLER` and
the other standard variables apply. Requests have trace ids even without an endpoint.
[Traces](traces.md) says which requests are traced, and what it costs.

The scope of a metric says whose numbers it has: the API worker's (process), the engine's, under the
model's first name (engine), or those of requests, under the name that each requested (model), or
under `other` where that is not a served name (request).
"""


_ALIASES = """
With `--metrics-aliases vllm`, `/metrics` also has vLLM's names for what Quire measures, so that
boards and autoscalers made for vLLM work. `model_name` is the model's first name, which also counts
requests for its other names; `engine` is 0. Histograms have Quire's bounds. Names of what Quire
does not measure are absent. `http_requests_total` and `http_request_duration_seconds` have the
first path of each API; the former leaves out requests whose client left. Times and sizes of a
request are those of all its choices together, except of the longest; a request whose choices have
one token each has no time per output token. `vllm:engine_sleep_state` is there while the engine is
ready, and says that it is awake.
"""


def page() -> str:
    """Return the whole document."""
    parts = [
        _INTRODUCTION + "\n",
        "## Metrics\n",
        _table(
            ("Metric", "Kind", "Scope", "Labels", "Meaning"), map(_metric_row, catalogue.METRICS)
        ),
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
        "\n### Phases\n",
        "\nWhere a request's time goes: label values of `quire_phase_seconds`, names of spans "
        "and, followed by `_ms`, fields of the log line. They follow one another, except that "
        "flush may overlap decode; the rest of the total is `other_ms` in the log. A phase that a "
        "request never reached is absent, and one that was cut short ends at the cut.\n",
        _table(("Phase", "Meaning"), ((f"`{each.name}`", each.help) for each in PHASES)),
        "\n### What sequences wait for\n",
        _table(
            ("Reason", "Meaning"),
            ((f"`{name}`", f"{sentence}") for name, sentence in WAITING_REASONS.items()),
        ),
        "\n### Why the queue has no place for a sequence\n",
        _table(
            ("Reason", "Meaning"),
            ((f"`{name}`", f"{sentence}") for name, sentence in QUEUE_REFUSALS.items()),
        ),
        "\n### Why a prompt was not in the prefix cache\n",
        _table(
            ("Reason", "Meaning"),
            ((f"`{name}`", f"{sentence}") for name, sentence in PREFIX_MISS_REASONS.items()),
        ),
        "\n## Names of other servers\n",
        _ALIASES,
        _table(("Name", "Kind", "Labels", "From"), map(_alias_row, VLLM_ALIASES)),
        "\n## Spans\n",
        *_spans(),
        "\n## The request log line\n",
        "One JSON line per request, on stderr, with `ts`, `level`, `event` "
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


def _alias_row(alias: Alias | InfoAlias) -> tuple[str, ...]:
    if isinstance(alias, InfoAlias):
        facts = [f"{name} ({ours})" for name, ours in alias.facts.items()]
        return f"`{alias.name}`", "gauge", "<br>".join(facts), f"`{alias.source.name}`"
    labels = "<br>".join(f'{name}="{value}"' for name, value in alias.labels.items())
    where = "; ".join(f"{name}: {', '.join(values)}" for name, values in alias.where.items())
    source = f"`{alias.source.name}`" + (f" ({where})" if where else "")
    if alias.shown is not None:
        source = f"{alias.shown:g} while {source} is not 0"
    return f"`{alias.name}`", alias.kind.value, labels, source


def _spans() -> Iterator[str]:
    for span in schema.SPANS:
        yield f"\n### `{span.name}`\n\n{span.help}\n\n"
        rows = ((f"`{attribute.name}`", attribute.help) for attribute in span.attributes)
        yield _table(("Attribute", "Meaning"), rows)
    yield (
        "\n### Events\n\nEvents of a choice are on its decode span, stalls on the flush span. All "
        "others, and those of a choice without a decode span, are on the request's span.\n"
    )
    yield _table(("Event", "Meaning", "Attributes"), map(_event_row, schema.EVENTS.values()))


def _event_row(event: SpanEvent) -> tuple[str, ...]:
    attributes = (f"`{each.name}`: {each.help}" for each in event.attributes)
    return f"`{event.name}`", event.help, "<br>".join(attributes)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def files() -> dict[Path, str]:
    """Return the up-to-date content of each generated file."""
    return {PAGE: page(), **board_files(), **alert_files()}


def stale() -> list[Path]:
    """Return the files that are out of date, those that no table has any more included."""
    wanted = files()
    left = [path for path in FOLDER.glob("*.json") if path not in wanted]
    return left + [path for path, text in wanted.items() if _read(path) != text]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main(argv: list[str]) -> int:
    """Write the files, or with ``--check`` only compare: exit status 1 if any is stale."""
    parser = argparse.ArgumentParser(prog="python -m observability.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    check = parser.parse_args(argv).check
    wanted = files()
    for path in stale():
        if check:
            print(f"{path} is stale: run python -m observability.generate", file=sys.stderr)
        elif path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 1 if check and stale() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
