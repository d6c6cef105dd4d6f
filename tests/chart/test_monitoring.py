"""Monitors, rules, boards and autoscalers name what the server really exposes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from observability import catalogue
from observability.alerts.files import RULES, rules_text
from observability.aliases import VLLM_ALIASES
from observability.boards.table import board_files
from observability.objectives import Objectives
from tests.chart.conftest import component
from tests.chart.helms import Helm, Helm4, Manifest, Values, objects

pytestmark = pytest.mark.chart

METRICS = {metric.name for metric in catalogue.METRICS}


def of_kind(manifests: list[Manifest], kind: str) -> Manifest:
    [found] = [each for each in manifests if each["kind"] == kind]
    return found


@pytest.mark.parametrize("name", ["serviceMonitor", "podMonitor"])
def test_a_monitor_scrapes_every_server_pod_once(helm: Helm, name: str) -> None:
    values = {"dashboard": {"enabled": True}, "metrics": {name: {"enabled": True}}}
    rendered = objects(helm.render(values))
    kind = name[0].upper() + name[1:]
    spec = of_kind(rendered, kind)["spec"]
    labels = spec["selector"]["matchLabels"].items()
    pods = component(rendered, "Deployment", "server")["spec"]["template"]["metadata"]["labels"]
    if name == "serviceMonitor":
        services = [each for each in rendered if each["kind"] == "Service"]
        [scraped] = [each for each in services if labels <= each["metadata"]["labels"].items()]
        assert scraped["spec"]["clusterIP"] == "None", "every pod, not one of them"
        assert scraped["spec"]["selector"].items() <= pods.items()
        ports = {port["name"] for port in scraped["spec"]["ports"]}
        [endpoint] = spec["endpoints"]
    else:
        assert labels <= pods.items()
        dashboard = component(rendered, "Deployment", "dashboard")["spec"]["template"]["metadata"]
        assert not labels <= dashboard["labels"].items()
        ports = {"http"}
        [endpoint] = spec["podMetricsEndpoints"]
    assert {endpoint["port"]} <= ports


@pytest.mark.parametrize("fullname", ["", "chat"])
def test_the_alert_that_a_server_is_down_finds_its_job(helm: Helm, fullname: str) -> None:
    values = {"fullnameOverride": fullname, "metrics": {"podMonitor": {"enabled": True}}}
    [endpoint] = of_kind(objects(helm.render(values)), "PodMonitor")["spec"]["podMetricsEndpoints"]
    [job] = [
        rule["replacement"] for rule in endpoint["relabelings"] if rule["targetLabel"] == "job"
    ]
    rules = yaml.safe_load(RULES.read_text())["groups"][1]["rules"]
    [down] = [rule["expr"] for rule in rules if rule["alert"] == "QuireDown"]
    pattern = re.search(r'job=~"(.*?)"', down)
    assert pattern is not None
    assert re.fullmatch(pattern[1], job)


def test_the_rules_are_the_generated_ones_with_the_charts_objectives(helm: Helm) -> None:
    """For every bound that the schema allows, by both Helms at the extremes."""

    def rules(values: Values) -> Any:
        given = {"metrics": {"prometheusRule": {"enabled": True}}} | values
        return of_kind(objects(helm.render(given)), "PrometheusRule")["spec"]

    assert rules({}) == yaml.safe_load(RULES.read_text())
    first, *_, last = catalogue.TIME_TO_FIRST_TOKEN.buckets
    low, *_, high = catalogue.INTER_TOKEN_LATENCY.buckets
    for ttft, itl in ((first, low), (last, high), (1.0, 0.05)):
        wanted = yaml.safe_load(rules_text(Objectives(ttft=ttft, itl=itl)))
        found = rules({"slo": {"ttft": ttft, "itl": itl}})
        assert found == wanted
    runbook = {"enabled": True, "runbookUrl": "https://wiki.example.com/a.md"}
    linked = rules({"metrics": {"prometheusRule": runbook}})["groups"][1]["rules"]
    assert linked[0]["annotations"]["runbook_url"] == "https://wiki.example.com/a.md#quiredown"


def test_the_boards_are_the_generated_ones(helm: Helm) -> None:
    rendered = objects(helm.render({"metrics": {"boards": {"enabled": True}}}))
    boards = [each for each in rendered if each["kind"] == "ConfigMap"]
    found = {name: text for each in boards for name, text in each["data"].items()}
    assert found == {f"quire-{path.name}": text for path, text in board_files().items()}
    for each in boards:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert len(json.dumps(each)) < 256 * 1024, "what kubectl apply can note of an object"


def test_a_horizontal_pod_autoscaler_reads_metrics_that_exist(helm: Helm) -> None:
    values = {"autoscaling": {"hpa": {"enabled": True}, "kvUsage": 0.85, "maxReplicas": 9}}
    rendered = objects(helm.render(values))
    spec = of_kind(rendered, "HorizontalPodAutoscaler")["spec"]
    server = component(rendered, "Deployment", "server")
    assert spec["scaleTargetRef"]["name"] == server["metadata"]["name"]
    assert "replicas" not in server["spec"], "an upgrade must not undo what the autoscaler did"
    targets = {
        each["pods"]["metric"]["name"]: each["pods"]["target"]["averageValue"]
        for each in spec["metrics"]
    }
    assert targets == {
        catalogue.SEQUENCES_WAITING.name: "4000m",
        catalogue.KV_USAGE_RATIO.name: "850m",
    }
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 9)


KEDA: Values = {
    "autoscaling": {"keda": {"enabled": True, "prometheusAddress": "http://prometheus:9090"}},
    "metrics": {"serviceMonitor": {"enabled": True}},
}


def test_keda_asks_for_what_this_releases_pods_expose(helm4: Helm4, tmp_path: Path) -> None:
    """Prometheus itself answers the queries, from series of two pods and of another release."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (on Debian: apt-get install prometheus)")
    rendered = objects(helm4.render(KEDA))
    triggers = of_kind(rendered, "ScaledObject")["spec"]["triggers"]
    queries = [trigger["metadata"]["query"] for trigger in triggers]
    [endpoint] = of_kind(rendered, "ServiceMonitor")["spec"]["endpoints"]
    job = endpoint["relabelings"][0]["replacement"]

    def series(name: str, pod: str, value: float, labels: str = "", job: str = job) -> Manifest:
        text = f'{name}{{namespace="models",job="{job}",pod="{pod}"{labels}}}'
        return {"series": text, "values": f"{value}x5"}

    waiting, usage = catalogue.SEQUENCES_WAITING.name, catalogue.KV_USAGE_RATIO.name
    tests = {
        "rule_files": [],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    series(waiting, "a", 3, ',reason="capacity"'),
                    series(waiting, "a", 2, ',reason="kv"'),
                    series(waiting, "b", 4, ',reason="capacity"'),
                    series(waiting, "c", 90, ',reason="capacity"', job="quire-other"),
                    series(usage, "a", 0.5),
                    series(usage, "b", 1),
                    series(usage, "c", 0, job="quire-other"),
                ],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": "5m",
                        "exp_samples": [{"labels": "{}", "value": value}],
                    }
                    for query, value in zip(queries, (9, 0.75), strict=True)
                ],
            }
        ],
    }
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_endpoint_picker_reads_series_that_exist(helm: Helm) -> None:
    """Each has one series for each pod: the picker reads no more."""
    values = {
        "api": {"metricsAliases": "vllm"},
        "gateway": {"inferencePool": {"enabled": True, "endpointPicker": "picker"}},
    }
    rendered = objects(helm.render(values))
    server = component(rendered, "Deployment", "server")["spec"]["template"]
    pool = of_kind(rendered, "InferencePool")["spec"]
    assert pool["selector"]["matchLabels"].items() <= server["metadata"]["labels"].items()
    config = yaml.safe_load(of_kind(rendered, "ConfigMap")["data"]["config.yaml"])
    plugins = {each.get("name", each["type"]): each for each in config["plugins"]}
    [engine] = plugins["metrics-extractor"]["parameters"]["engineConfigs"]
    assert server["metadata"]["labels"]["llm-d.ai/engine-type"] == engine["name"]
    aliases = {alias.name for alias in VLLM_ALIASES}
    assert {name for key, name in engine.items() if key.endswith("Spec")} <= aliases
    used = [
        *(each["pluginRef"] for each in config["schedulingProfiles"][0]["plugins"]),
        *(each["pluginRef"] for each in config["dataLayer"]["sources"]),
    ]
    assert set(used) <= plugins.keys()


def test_an_ingress_cuts_no_stream(helm: Helm) -> None:
    def annotations(controller: str, **more: Any) -> dict[str, str]:
        given = {"ingress": {"enabled": True, "controller": controller} | more}
        metadata = of_kind(objects(helm.render(given)), "Ingress")["metadata"]
        found: dict[str, str] = metadata.get("annotations", {})
        return found

    prefix = "nginx.ingress.kubernetes.io"
    nginx = annotations("nginx", timeoutSeconds=900)
    assert nginx[f"{prefix}/proxy-buffering"] == "off"
    assert nginx[f"{prefix}/proxy-read-timeout"] == "900"
    assert nginx[f"{prefix}/proxy-body-size"] == "8388608", "what the server itself takes"
    assert "http_503" in nginx[f"{prefix}/proxy-next-upstream"].split()
    assert f"{prefix}/proxy-request-buffering" not in nginx, "off, nginx repeats hardly any POST"
    for seconds in (1, 2, 900):
        given = annotations("nginx", timeoutSeconds=seconds)
        repeating = int(given[f"{prefix}/proxy-next-upstream-timeout"])
        assert repeating <= seconds, "what a pod may be computing is not repeated"
    own = annotations("nginx", annotations={f"{prefix}/proxy-read-timeout": "7"})
    assert own[f"{prefix}/proxy-read-timeout"] == "7"
    assert annotations("haproxy")["haproxy.org/timeout-server"] == "3600s"
    assert annotations("none") == {}


def test_a_route_leads_to_the_service_or_the_pool(helm: Helm) -> None:
    route: Values = {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]}}
    [rule] = of_kind(objects(helm.render({"gateway": route})), "HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "demo-quire", "port": 8000}]
    assert set(rule["timeouts"].values()) == {"0s"}, "a stream ends by itself"
    pool = {"inferencePool": {"enabled": True, "endpointPicker": "picker"}}
    given: Values = {"gateway": route | pool, "api": {"metricsAliases": "vllm"}}
    [rule] = of_kind(objects(helm.render(given)), "HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"][0]["kind"] == "InferencePool"
