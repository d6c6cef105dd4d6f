"""The chart means the same under Helm 3.6 and Helm 4, and Kubernetes takes what it makes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.chart.helms import CHART, NAMESPACE, Helm, Helm3, Helm4, Manifest, Values, objects

pytestmark = pytest.mark.chart

# The oldest with a schema to check against, one in the middle, the newest.
KUBERNETES = ["1.25", "1.31", "1.37"]
OWN_SCHEMAS = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): json.loads(
        Path(__file__).with_name("servicemonitor.schema.json").read_text()
    )
}


def test_strict_lint_finds_nothing(helm: Helm, values: Values) -> None:
    assert helm.lint(values) == []


def test_both_helms_render_the_same_objects(helm3: Helm3, helm4: Helm4, values: Values) -> None:
    assert objects(helm3.render(values)) == objects(helm4.render(values))


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_every_object(manifests: list[Manifest], version: str) -> None:
    assert manifests
    for each in manifests:
        schema = OWN_SCHEMAS.get((each["apiVersion"], each["kind"]))
        if schema is not None:
            jsonschema.Draft202012Validator(schema).validate(each)
        else:
            # Raises where it knows no schema for the kind, too.
            kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_would_notice(manifests: list[Manifest]) -> None:
    """A misspelt field is an error: the check above can fail."""
    for each in manifests:
        if each["kind"] == "Deployment":
            each["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
            with pytest.raises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(each, KUBERNETES[-1], strict=True)
            return
    pytest.fail("no Deployment rendered")


def test_all_is_in_the_release_namespace_and_named_once(manifests: list[Manifest]) -> None:
    assert {each["metadata"]["namespace"] for each in manifests} == {NAMESPACE}
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


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
    api = next(each for each in rendered if each["kind"] == "Service")
    port = merged["service"]["port"]
    assert f"service/{api['metadata']['name']} {port}:{port}" in text
    assert f"http://{api['metadata']['name']}.{NAMESPACE}:{port}/v1" in text
    assert ("gRPC" in text) == bool(merged["server"].get("grpcPort"))
    assert ("dashboard" in text) == merged["dashboard"]["enabled"]
    assert ("No API key" in text) != bool(merged["auth"]["existingSecret"])
    assert ("Authorization" in text) == bool(merged["auth"]["existingSecret"])
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
    assert {each["metadata"]["name"] for each in found} == {name, f"{name}-dashboard"}
