"""``helm upgrade --reuse-values``: the new templates get an older chart's values, without the new
defaults. Helm puts the values of the old release in the place of the new chart's values.yaml."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.defaults import absent, closed, nullable
from tests.chart.conftest import component, server_container
from tests.chart.helms import CHART, Helm, Values, objects
from tests.chart.released import archives, defaults
from tests.chart.test_values import objects_in

pytestmark = pytest.mark.chart

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text())


def over(base: Values, top: Values) -> Values:
    """As Helm lays values over a chart's: a null removes a key."""
    both = {key: over(base[key], top[key]) for key in base if isinstance(top.get(key), dict)}
    found = base | top | both
    return {key: value for key, value in found.items() if value is not None or key not in top}


@pytest.fixture
def chart_with_values(tmp_path: Path) -> Path:
    chart = tmp_path / "quire"
    shutil.copytree(CHART, chart)
    return chart


@pytest.mark.parametrize("old", archives())
@pytest.mark.parametrize(
    "user",
    [
        {},
        {"dashboard": {"enabled": True}},
        {"securityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
        {"replicaCount": 3, "gpu": {"count": 1}, "engine": {"maxModelLen": 4096}},
    ],
    ids=json.dumps,
)
def test_every_older_charts_values_render(
    helm: Helm, chart_with_values: Path, old: str, user: Values
) -> None:
    reused = over(defaults(archives()[old]), user)
    (chart_with_values / "values.yaml").write_text(yaml.safe_dump(reused))
    rendered = objects(helm.render({}, chart_with_values))
    server = component(rendered, "Deployment", "server")
    assert server["spec"]["replicas"] == reused["replicaCount"]
    context = server["spec"]["template"]["spec"]["securityContext"]
    assert ("runAsUser" in context) == (reused["securityContext"].get("runAsUser") is not None)
    if "engine" in user:
        assert "--max-model-len" in server_container(server)["args"]
    budget = next(each for each in rendered if each["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1, "a value that the older charts did not have"


def test_no_values_at_all_are_the_defaults(helm: Helm, chart_with_values: Path) -> None:
    """Except for values that may be null, and those of free form."""
    (chart_with_values / "values.yaml").write_text("{}\n")
    least = {
        "replicaCount": DEFAULTS["replicaCount"],
        "securityContext": DEFAULTS["securityContext"],
        "resources": DEFAULTS["resources"],
        "dashboard": {"resources": DEFAULTS["dashboard"]["resources"]},
    }
    assert objects(helm.render(least, chart_with_values)) == objects(helm.render({}))


def test_a_false_of_ones_own_stays(helm: Helm) -> None:
    """merge would take it for absent."""
    rendered = objects(helm.render({"podDisruptionBudget": {"enabled": False}}))
    assert "PodDisruptionBudget" not in {each["kind"] for each in rendered}


def test_every_template_completes_its_values_first() -> None:
    for path in [*CHART.glob("templates/*.yaml"), CHART / "templates" / "NOTES.txt"]:
        assert path.read_text().startswith('{{- include "quire.completed" . -}}\n'), path.name


def test_no_key_of_an_older_chart_is_gone() -> None:
    """Reused values that have it would be refused."""
    described = {name for name, _ in objects_in(SCHEMA)}
    for archive in archives().values():

        def names(tree: Values, schema: dict[str, Any], path: str = "") -> set[str]:
            found: set[str] = set()
            for key, value in tree.items():
                found.add(f"{path}{key}")
                part = schema.get("properties", {}).get(key, {})
                if isinstance(value, dict) and closed(part):
                    found |= names(value, part, f"{path}{key}.")
            return found

        assert names(defaults(archive), SCHEMA) <= described


def test_nothing_is_required() -> None:
    for name, part in [("", SCHEMA), *objects_in(SCHEMA)]:
        assert "required" not in part, name


def test_a_new_value_that_may_be_null_is_null_by_default() -> None:
    """Absent, it means null, because a user's null removes it. Older ones are never absent."""
    older = defaults(archives()["0.1.0-first"])

    def check(schema: dict[str, Any], values: Values, before: Values, path: str = "") -> None:
        for name, part in schema["properties"].items():
            if name in values and name not in before:
                if closed(part):
                    check(part, values[name], {}, f"{path}{name}.")
                elif nullable(part):
                    assert values[name] is None, f"{path}{name}"
            elif name in values and closed(part):
                check(part, values[name], before.get(name) or {}, f"{path}{name}.")

    check(SCHEMA, DEFAULTS, older)
    assert "replicaCount" not in absent(SCHEMA, DEFAULTS)
