"""The chart speaks to the server that is really there: its flags, bounds, times and paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dashboard.__main__ import parse as parse_dashboard
from engine.config import EngineConfig
from engine.options import options
from helm.settings import ELSEWHERE, engine_settings, key, other_value
from service.settings import ServiceSettings
from service.supervision.supervisor import ENGINE_STOP_SECONDS, WORKER_STOP_SECONDS
from tests.chart.conftest import component, server_container
from tests.chart.helms import CHART, ROOT, Helm4, Manifest, RefusedError, Values, objects

pytestmark = pytest.mark.chart

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
# A name on the hub, which is not asked: arguments for names and for paths are accepted with it.
NO_MODEL = "no-such/model"


def quire(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def test_the_server_takes_the_arguments_of_every_case(server: Manifest) -> None:
    """It reads all of them before it misses the model: 2 would be a wrong flag or value."""
    [command, *rest] = server_container(server)["args"]
    has_model = bool(rest) and not rest[0].startswith("-")
    done = quire(command, NO_MODEL, *rest[has_model:])
    assert done.returncode == 1, done.stderr
    assert NO_MODEL in done.stderr


def test_a_wrong_argument_would_be_noticed() -> None:
    assert quire("serve", NO_MODEL, "--no-such-flag", "1").returncode == 2


@pytest.mark.parametrize("name", SCHEMA["properties"]["engine"]["properties"])
def test_each_engine_value_is_a_flag_with_the_same_bounds(name: str) -> None:
    by_flag = {option.flag: option for option in options(EngineConfig)}
    option = by_flag[f"--{kebab(name)}"]
    theirs = msgspec.json.schema(option.annotation)
    theirs = next((t for t in theirs.get("anyOf", []) if t.get("type") != "null"), theirs)
    ours = SCHEMA["properties"]["engine"]["properties"][name]
    for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        assert ours.get(bound) == theirs.get(bound), bound
    allowed = [value for value in ours["enum"] if value is not None] if "enum" in ours else None
    assert (sorted(allowed) if allowed else None) == theirs.get("enum")
    if "enum" not in theirs:
        assert ours["type"] == [theirs["type"], "null"]
    assert f"`{option.flag}`" in ours["description"]


def test_every_engine_value_reaches_the_server(helm4: Helm4) -> None:
    """Set to something that is not the default, each becomes the field of that name."""
    said = {key(option): other_value(option) for option in engine_settings()}
    assert said.keys() == SCHEMA["properties"]["engine"]["properties"].keys()
    rendered = objects(helm4.render({"engine": said}))
    arguments = server_container(component(rendered, "Deployment", "server"))["args"]
    by_flag = {option.flag: option for option in options(EngineConfig)}
    for name, value in said.items():
        flag = f"--{kebab(name)}"
        if isinstance(value, bool):
            assert (flag if value else f"--no-{flag[2:]}") in arguments
        else:
            word = arguments[arguments.index(flag) + 1]
            assert word == str(value), "34359738369, not 3.4359738369e+10"
            assert by_flag[flag].parse(word) == value


def test_every_setting_of_the_engine_is_a_value_or_decided_by_another() -> None:
    names = {option.name for option in options(EngineConfig)}
    assert ELSEWHERE.keys() < names
    assert len(SCHEMA["properties"]["engine"]["properties"]) == len(names - ELSEWHERE.keys())
    for value in ELSEWHERE.values():
        found = SCHEMA
        for name in value.split("."):
            found = found["properties"][name]


def test_no_secret_is_an_argument_or_a_plain_variable(helm4: Helm4) -> None:
    for option in options(ServiceSettings):
        if option.secret:
            with pytest.raises(RefusedError, match="extraArgs"):
                helm4.render({"extraArgs": [f"{option.flag}=x"]})
            with pytest.raises(RefusedError, match="extraEnv"):
                helm4.render({"extraEnv": [{"name": option.variable, "value": "x"}]})


def test_null_leaves_the_choice_to_the_server(helm4: Helm4) -> None:
    nothing: Values = dict.fromkeys(SCHEMA["properties"]["engine"]["properties"])
    rendered = objects(helm4.render({"engine": nothing}))
    arguments = server_container(component(rendered, "Deployment", "server"))["args"]
    flags = {option.flag for option in options(EngineConfig)} - {"--device"}
    assert not flags & set(arguments)


def test_the_dashboard_takes_its_arguments(helm4: Helm4) -> None:
    rendered = objects(helm4.render({"dashboard": {"enabled": True, "port": 9001}}))
    [command, *rest] = server_container(component(rendered, "Deployment", "dashboard"))["args"]
    assert command == "dashboard"
    parsed = parse_dashboard(rest)
    assert (parsed.host, parsed.port) == ("0.0.0.0", 9001)  # noqa: S104  a pod
    assert parsed.url == ["http://demo-quire:8000"]


def test_the_margin_holds_what_the_supervisor_allows_itself() -> None:
    """After the drain it waits for the worker, then for the engine, before it kills them."""
    margin = SCHEMA["properties"]["drain"]["properties"]["marginSeconds"]
    assert margin["minimum"] >= WORKER_STOP_SECONDS + ENGINE_STOP_SECONDS


def test_flags_that_the_chart_relies_on_cannot_be_abbreviated() -> None:
    """extraArgs refuses --drain-timeout by name; --drain-time must not slip past it."""
    assert quire("serve", NO_MODEL, "--drain-time", "1").returncode == 2


def test_probed_paths_are_routes_of_the_server(manifests: list[Manifest]) -> None:
    container = server_container(component(manifests, "Deployment", "server"))
    sources = "".join(path.read_text() for path in (ROOT / "service").rglob("*.py"))
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f'"{container[kind]["httpGet"]["path"]}"' in sources


def test_chart_and_product_bear_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["version"]


def test_ci_cases_cover_every_value() -> None:
    """Each leaf of values.yaml that is off or empty by default is set by some case."""
    said = [yaml.safe_load(path.read_text()) for path in CHART.glob("ci/*.yaml")]

    def leaves(tree: Values, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        found: set[tuple[str, ...]] = set()
        for name, value in tree.items():
            here = (*path, name)
            found |= leaves(value, here) if isinstance(value, dict) and value else {here}
        return found

    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    covered = set().union(*(leaves(each) for each in said))
    missing = {
        leaf for leaf in leaves(defaults) if not any(leaf == each[: len(leaf)] for each in covered)
    }
    assert not missing


def test_the_folder_of_cases_is_not_shipped() -> None:
    assert "ci/" in Path(CHART / ".helmignore").read_text().splitlines()
