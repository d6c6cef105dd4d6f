"""The alerts as Prometheus' rules, and their runbook as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from observability.alerts.burn_rate import recordings
from observability.alerts.model import Alert, Recording
from observability.alerts.table import alerts
from observability.boards.table import BOARDS
from observability.objectives import Objectives

_ROOT = Path(__file__).resolve().parent.parent
RULES = _ROOT / "prometheus" / "rules.yaml"
RUNBOOK = _ROOT.parent / "docs" / "alerts.md"
RUNBOOK_URL = "docs/alerts.md"

_INTRODUCTION = """\
# Alerts and what to do

Written by `python -m observability.generate` (`make docs`) from `observability/alerts/`; a test
fails when they differ. The rules are in
[observability/prometheus/rules.yaml](../observability/prometheus/rules.yaml);
[prometheus.md](prometheus.md) says how to load them and how to set other objectives.

*page*: wake the person on call. *ticket*: look at it within a working day. *info*: good to know.
"""


def rules_text(objectives: Objectives, runbook_url: str = RUNBOOK_URL) -> str:
    """Return Prometheus' rule file. ``runbook_url``: of the page that has the runbook."""
    lines = [
        "# Written by python -m observability.generate. Other objectives and the address of your",
        "# runbook: python -m observability.alerts --help",
        "groups:",
        *_group("quire-objectives", (_recording(each) for each in recordings(objectives))),
        *_group("quire", (_rule(each, runbook_url) for each in alerts(objectives))),
    ]
    return "\n".join(lines) + "\n"


def _group(name: str, rules: Iterator[list[str]]) -> Iterator[str]:
    yield f"  - name: {name}"
    yield "    rules:"
    for first, *rest in rules:
        yield f"      - {first}"
        yield from (f"        {line}" for line in rest)


def _recording(recording: Recording) -> list[str]:
    return [f"record: {recording.record}", f"expr: {_quoted(recording.expr)}"]


def _rule(alert: Alert, runbook_url: str) -> list[str]:
    return [
        f"alert: {alert.name}",
        f"expr: {_quoted(alert.expr)}",
        f"for: {alert.hold}",
        "labels:",
        f"  severity: {alert.severity.value}",
        "annotations:",
        f"  summary: {_quoted(alert.summary)}",
        f"  description: {_quoted(alert.meaning)}",
        f"  runbook_url: {_quoted(f'{runbook_url}#{alert.anchor}')}",
        f"  dashboard: quire-{alert.board}",
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # which YAML reads as a string too


def runbook_text(objectives: Objectives) -> str:
    titles = {board.name: board.title.removeprefix("Quire: ") for board in BOARDS}
    parts = [_INTRODUCTION]
    for alert in alerts(objectives):
        title = titles[alert.board]
        parts.append(
            f"\n## {alert.name}\n\n"
            f"*{alert.severity.value}*{_held(alert)}. Board: {title[0].upper()}{title[1:]}.\n\n"
            f"{alert.meaning}\n\n"
            f"Look at:\n\n{_listed(alert.look)}\n"
            f"Do:\n\n{_listed(alert.act)}\n"
            f"```\n{alert.expr}\n```\n"
        )
    return "".join(parts)


def _held(alert: Alert) -> str:
    return "" if alert.hold == "0m" else f" after {alert.hold}"


def _listed(items: Sequence[str]) -> str:
    return "".join(f"- {item}\n" for item in items)


def alert_files() -> dict[Path, str]:
    """Return the content of the files with the objectives that are the defaults."""
    objectives = Objectives()
    return {RULES: rules_text(objectives), RUNBOOK: runbook_text(objectives)}
