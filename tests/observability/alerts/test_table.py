"""Each alert fires when it should and stays silent when it should, by promtool's judgement."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from observability.alerts.files import RULES, RUNBOOK_URL
from observability.alerts.model import Alert
from observability.alerts.table import alerts
from observability.boards.table import BOARDS
from observability.objectives import Objectives
from tests.observability.alerts.cases import CASES, Series, missed

ALERTS = {alert.name: alert for alert in alerts(Objectives())}

LAST = {"Fast": "21m", "Medium": "105m", "Slow": "105m"}
"""When the samples end that ``missed`` returns, by the pace of the alert."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs Debian's package prometheus"
)


def test_every_alert_has_a_case_and_a_whole_runbook() -> None:
    assert set(ALERTS) == set(CASES)
    boards = {board.name for board in BOARDS}
    for alert in ALERTS.values():
        assert alert.board in boards
        assert alert.meaning
        assert alert.look
        assert alert.act
        assert "{{" in alert.summary or "absent(" in alert.expr


def test_names_are_unique() -> None:
    assert len(ALERTS) == len(alerts(Objectives()))


def test_objectives_reach_the_conditions() -> None:
    other = {alert.name: alert for alert in alerts(Objectives(ttft=5.0, ttft_budget=0.02))}
    assert other["QuireQueueOld"].expr.endswith("> 5")
    assert "> 0.288 and" in other["QuireTtftBudgetFast"].expr


def expected(alert: Alert, name: str, share: str = "20%") -> list[dict[str, object]]:
    """``share``: in the summary, instead of the case's."""
    case = CASES[name]
    annotations = {
        "summary": case.summary.replace("20%", share),
        "description": alert.meaning,
        "runbook_url": f"{RUNBOOK_URL}#{alert.anchor}",
        "dashboard": f"quire-{alert.board}",
    }
    labels = {"severity": alert.severity.value, **case.labels}
    return [{"exp_labels": labels, "exp_annotations": annotations}]


def case_test(
    name: str, series: Series, alerts: list[dict[str, object]], at: str = ""
) -> dict[str, object]:
    """``at``: another time than the case's."""
    case = CASES[name]
    return {
        "interval": case.every,
        "input_series": [{"series": key, "values": text} for key, text in series.items()],
        "alert_rule_test": [{"eval_time": at or case.at, "alertname": name, "exp_alerts": alerts}],
    }


def rules_of(name: str) -> dict[str, object]:
    """Return this alert of the shipped file, with the recording rules if it reads any: promtool
    would evaluate all alerts at each step."""
    shipped = yaml.safe_load(RULES.read_text())
    rules = [rule for group in shipped["groups"] for rule in group["rules"]]
    recording = [rule for rule in rules if "record" in rule]
    [alert] = [rule for rule in rules if rule.get("alert") == name]
    needed = recording if any(rule["record"] in alert["expr"] for rule in recording) else []
    return {"groups": [{"name": "tested", "rules": [*needed, alert]}]}


@needs_promtool
@pytest.mark.debian
@pytest.mark.parametrize("name", CASES)
def test_it_fires_with_its_values_and_stays_silent_otherwise(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    check(
        tmp_path,
        name,
        case_test(name, case.firing, expected(ALERTS[name], name)),
        case_test(name, case.silent, []),
    )


@needs_promtool
@pytest.mark.debian
def test_an_answer_that_was_not_stored_is_enough_and_so_is_a_refusal(tmp_path: Path) -> None:
    name = "QuireStoreUnavailable"
    fires = expected(ALERTS[name], name)
    not_stored = {'quire_responses_not_stored_total{job="quire",instance="a"}': "0+3x60"}
    refused = {
        'quire_requests_total{job="quire",instance="a",outcome="refused:store"}': "0+15x60",
        'quire_requests_total{job="quire",instance="a",outcome="stop"}': "0+15x60",
    }
    check(tmp_path, name, *(case_test(name, series, fires) for series in (not_stored, refused)))


@needs_promtool
@pytest.mark.debian
@pytest.mark.parametrize("pace", ["Fast", "Medium", "Slow"])
@pytest.mark.parametrize("indicator", ["Ttft", "Itl", "Availability"])
def test_a_budget_alert_needs_more_than_ten_misses(
    indicator: str, pace: str, tmp_path: Path
) -> None:
    """Nine and eleven: the number is a product of floats, which may be off at ten."""
    name = f"Quire{indicator}Budget{pace}"
    at = LAST[pace]
    fires = expected(ALERTS[name], name, "18.33%")
    check(
        tmp_path,
        name,
        case_test(name, missed(indicator, 9, 60), [], at),
        case_test(name, missed(indicator, 11, 60), fires, at),
    )


@needs_promtool
@pytest.mark.debian
@pytest.mark.parametrize("pace", ["Fast", "Medium", "Slow"])
def test_a_fault_that_fails_all_open_requests_of_a_drill_fires_no_budget_alert(
    pace: str, tmp_path: Path
) -> None:
    """The load of docs/drill.md: 5 requests a second for a minute, at most 8 at once."""
    name = f"QuireAvailabilityBudget{pace}"
    check(tmp_path, name, case_test(name, missed("Availability", 8, 300), [], LAST[pace]))


def check(folder: Path, name: str, *tests: dict[str, object]) -> None:
    """Have promtool run these tests of an alert."""
    rules = folder / "rules.json"
    rules.write_text(json.dumps(rules_of(name)))
    suite = {
        "rule_files": [str(rules)],
        "evaluation_interval": CASES[name].every,
        "tests": tests,
    }
    path = folder / "tests.json"
    path.write_text(json.dumps(suite))
    done = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
