"""A release's alert rules watch that release and no other. Prometheus itself evaluates them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from observability import catalogue
from tests.chart.helms import NAMESPACE, Helm, Manifest, Values, objects

pytestmark = [
    pytest.mark.chart,
    pytest.mark.skipif(
        shutil.which("promtool") is None,
        reason="promtool is not installed (on Debian: apt-get install prometheus)",
    ),
]

SLOW, FAST = "slow-quire", "fast-quire"
MINUTES = 90


def groups(helm: Helm, release: str, ttft: float, monitor: str = "podMonitor") -> Manifest:
    values: Values = {
        "slo": {"ttft": ttft},
        "metrics": {monitor: {"enabled": True}, "prometheusRule": {"enabled": True}},
    }
    rendered = objects(helm.render(values, release=release))
    [rule] = [each for each in rendered if each["kind"] == "PrometheusRule"]
    spec: Manifest = rule["spec"]
    return spec


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def series(name: str, values: str, job: str, namespace: str = NAMESPACE, **more: str) -> Manifest:
    labels = {"namespace": namespace, "job": job, "instance": f"{namespace}/{job}", **more}
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{written}}}", "values": values}


def first_tokens(job: str, namespace: str = NAMESPACE, late: str = "5.0") -> list[Manifest]:
    """Ten requests a minute get their first token between 1 s and 2 s; with ``late`` "2.0", all
    later than that."""
    name = catalogue.TIME_TO_FIRST_TOKEN.name
    grows, stays = f"0+10x{MINUTES}", f"0x{MINUTES}"
    return [
        series(f"{name}_bucket", stays, job, namespace, le="1.0"),
        series(f"{name}_bucket", stays if late == "2.0" else grows, job, namespace, le="2.0"),
        series(f"{name}_count", grows, job, namespace),
    ]


def firing(alert: str, *jobs: str) -> Manifest:
    """Expects that the alert fires once for each of the jobs, and for no other."""
    return {
        "expr": f'sum by (namespace, job) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": f"{MINUTES}m",
        "exp_samples": [
            {"labels": f'{{namespace="{NAMESPACE}",job="{job}"}}', "value": 1} for job in jobs
        ],
    }


def evaluate(folder: Path, rules: list[Manifest], given: list[Manifest], *expected: Any) -> None:
    files = []
    for number, each in enumerate(rules):
        file = folder / f"rules-{number}.yaml"
        file.write_text(yaml.safe_dump(each))
        promtool("check", "rules", file)
        files.append(file.name)
    test = {"interval": "1m", "input_series": given, "promql_expr_test": list(expected)}
    (folder / "test.yaml").write_text(yaml.safe_dump({"rule_files": files, "tests": [test]}))
    promtool("test", "rules", folder / "test.yaml")


def test_each_of_two_releases_has_its_own_objective(helm: Helm, tmp_path: Path) -> None:
    """Both answer alike; only one promised to be that fast. A release of the same name in another
    namespace is late by both objectives."""
    share = "job:quire_ttft_missed:ratio_rate1h"
    recorded = {
        "expr": share,
        "eval_time": f"{MINUTES}m",
        "exp_samples": [
            {"labels": f'{share}{{namespace="{NAMESPACE}",job="{job}"}}', "value": missed}
            for job, missed in ((SLOW, 1), (FAST, 0))
        ],
    }
    evaluate(
        tmp_path,
        [groups(helm, "slow", 1.0), groups(helm, "fast", 2.0, "serviceMonitor")],
        [
            *first_tokens(SLOW),
            *first_tokens(FAST),
            *first_tokens(SLOW, "elsewhere", "2.0"),
            *first_tokens(FAST, "elsewhere", "2.0"),
        ],
        recorded,
        firing("QuireTtftBudgetFast", SLOW),
    )


def test_a_release_that_is_gone_is_missed_though_another_is_there(
    helm: Helm, tmp_path: Path
) -> None:
    info = catalogue.BUILD_INFO.name
    evaluate(
        tmp_path,
        [groups(helm, "slow", 1.0), groups(helm, "fast", 2.0)],
        [
            series(info, f"1x{MINUTES}", SLOW),
            series(info, f"1x{MINUTES}", FAST, "elsewhere"),
            series("up", f"1x{MINUTES}", SLOW),
            series("up", f"0x{MINUTES}", FAST),
            series("up", f"0x{MINUTES}", SLOW, "elsewhere"),
        ],
        firing("QuireAbsent", FAST),
        firing("QuireDown", FAST),
    )


def test_every_selector_is_the_releases(helm: Helm) -> None:
    """Also where a rule's other side limits what it finds: a selector alone is cheaper."""
    own = f'{{namespace="{NAMESPACE}",job="{SLOW}"'
    for group in groups(helm, "slow", 1.0)["groups"]:
        for rule in group["rules"]:
            if "DCGM" not in rule["expr"]:
                bare = re.sub(r'"[^"]*"|\b(by|on) \([^)]*\)', "", rule["expr"])
                names = re.findall(r"\b(?:job:)?quire_[\w:]+|\bup\b|\bprocess_\w+", bare)
                assert names, rule
                assert rule["expr"].count(own) == len(names), rule
