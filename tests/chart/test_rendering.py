"""The chart means the same under Helm 3.6 and Helm 4, and Kubernetes takes what it makes."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.chart import snapshots
from tests.chart.conftest import CASES, component
from tests.chart.helms import CHART, NAMESPACE, Helm, Helm3, Helm4, Manifest, Values, objects
from tests.chart.kubernetes import VERSIONS, NotAcceptedError, check

pytestmark = pytest.mark.chart


def test_strict_lint_finds_nothing(helm: Helm, values: Values) -> None:
    assert helm.lint(values) == []


def test_both_helms_render_the_same_objects(helm3: Helm3, helm4: Helm4, values: Values) -> None:
    assert objects(helm3.render(values)) == objects(helm4.render(values))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_object(manifests: list[Manifest], version: str) -> None:
    assert manifests
    for each in manifests:
        check(each, version)


def test_the_schemas_would_notice(manifests: list[Manifest]) -> None:
    """A misspelt field is an error: the check above can fail."""
    for each in copy.deepcopy(manifests):
        if "spec" in each:
            each["spec"]["replica"] = 1
            with pytest.raises(NotAcceptedError, match="replica"):
                check(each, VERSIONS[-1])


def test_all_is_in_the_release_namespace_and_named_once(
    manifests: list[Manifest], values: Values
) -> None:
    metrics = values.get("metrics", {}).values()
    elsewhere = {about["namespace"] for about in metrics if "namespace" in about}
    assert {each["metadata"]["namespace"] for each in manifests} <= {NAMESPACE} | elsewhere
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for kind, name in names if kind == "Service")
    assert all(len(name) <= 253 for _, name in names)


def test_every_object_and_pod_has_the_common_labels(helm: Helm) -> None:
    rendered = objects(
        helm.render(
            {
                "commonLabels": {"team": "ml", "app.kubernetes.io/name": "other"},
                "dashboard": {"enabled": True},
                "networkPolicy": {"enabled": True},
            }
        )
    )
    for each in rendered:
        assert each["metadata"]["labels"]["team"] == "ml"
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "quire"
        if each["kind"] == "Deployment":
            assert each["spec"]["template"]["metadata"]["labels"]["team"] == "ml"
            assert "team" not in each["spec"]["selector"]["matchLabels"], "which cannot be changed"


def test_the_objects_are_those_that_were_reviewed(
    case: str, rendered_cases: Callable[[str], dict[str, str]]
) -> None:
    """After a change: `python -m tests.chart.snapshots`, then read the difference."""
    assert snapshots.path(case).read_text() == snapshots.text(objects(rendered_cases(case)))


def test_there_is_no_snapshot_of_a_case_that_is_gone() -> None:
    assert {path.stem for path in snapshots.FOLDER.glob("*.yaml")} == CASES.keys()


def test_a_render_is_repeatable(helm: Helm, values: Values) -> None:
    assert helm.render(values) == helm.render(values)


@pytest.fixture(scope="module")
def chart_showing_its_notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the chart whose NOTES.txt also renders into an object: Helm 3 shows notes only
    after talking to a cluster."""
    copy = tmp_path_factory.mktemp("notes") / "quire"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "shown.yaml").write_text(
        'notes: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}\n'
    )
    return copy


def notes(helm: Helm, chart: Path, values: Values) -> str:
    shown: dict[str, str] = yaml.safe_load(helm.render(values, chart)["templates/shown.yaml"])
    return shown["notes"]


def test_the_notes_name_what_was_installed(
    helm: Helm, values: Values, merged: Values, chart_showing_its_notes: Path
) -> None:
    text = notes(helm, chart_showing_its_notes, values)
    rendered = objects(helm.render(values))
    api = component(rendered, "Service", "server")
    port = merged["service"]["port"]
    local = port if port >= 1024 else 8000
    assert f"service/{api['metadata']['name']} {local}:{port}" in text
    kinds = [merged["service"]["type"]]
    if merged["dashboard"]["enabled"]:
        kinds.append(merged["dashboard"]["service"]["type"])
    assert text.count("nodePort}") == kinds.count("NodePort")
    assert text.count("of the load balancer") == kinds.count("LoadBalancer")
    scaled = any(merged["autoscaling"][kind]["enabled"] for kind in ("hpa", "keda"))
    alone = merged.get("replicaCount") == 1 and not scaled
    assert ("Each replica stores" in text) != (alone or bool(merged["store"]["existingSecret"]))
    assert ("Each replica signs" in text) != (alone or bool(merged["signing"]["existingSecret"]))
    update = merged["updateStrategy"]
    surges = update["type"] == "RollingUpdate" and update["maxSurge"] not in (0, "0%")
    several = not alone or merged["multiNode"]["enabled"] or surges
    claims = [merged["kernelCache"]["existingClaim"], merged["model"]["existingClaim"]]
    shared = len([each for each in claims if each]) if several else 0
    assert text.count("Several pods mount claim") == shared
    assert f"http://{api['metadata']['name']}.{NAMESPACE}:{port}/v1" in text
    assert ("gRPC" in text) == bool(merged["server"].get("grpcPort"))
    assert ("dashboard" in text) == merged["dashboard"]["enabled"]
    needs_key = bool(merged["auth"]["existingSecret"] or merged["api"]["storedKeys"])
    assert ("No API key" in text) != needs_key
    assert ("Authorization" in text) == needs_key
    assert "<no value>" not in text
    assert "<nil>" not in text


@pytest.mark.parametrize(
    ("release_values", "name"),
    [
        ({}, "demo-quire"),
        ({"nameOverride": "demo"}, "demo"),
        ({"fullnameOverride": "chat"}, "chat"),
        # Cut to 53 characters, without a dash at the end, so that "-dashboard" still fits.
        ({"fullnameOverride": "a" * 52 + "b"}, "a" * 52 + "b"),
        ({"nameOverride": "b" * 47 + "-" + "c"}, "demo-" + "b" * 47),
    ],
)
def test_names_follow_the_overrides(helm: Helm, release_values: Values, name: str) -> None:
    found = objects(helm.render(release_values | {"dashboard": {"enabled": True}}))
    services = {each["metadata"]["name"] for each in found if each["kind"] == "Service"}
    assert services == {name, f"{name}-dashboard", f"{name}-replicas"}
    deployments = {each["metadata"]["name"] for each in found if each["kind"] == "Deployment"}
    assert deployments == {name, f"{name}-dashboard"}
