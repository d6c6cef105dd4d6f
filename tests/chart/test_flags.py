"""The chart speaks to the server that is really there: its flags, bounds, times and paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dashboard.__main__ import parse as parse_dashboard
from engine.options import options
from helm.settings import (
    CPU_ONLY,
    ELSEWHERE,
    GPU_ONLY,
    TABLES,
    chart_settings,
    key,
    other_value,
)
from service.settings import ServiceSettings
from service.supervision.supervisor import ENGINE_STOP_SECONDS, WORKER_STOP_SECONDS
from tests.chart.conftest import CASES, component, server_container
from tests.chart.helms import CHART, ROOT, Helm4, Manifest, RefusedError, Values, objects

pytestmark = pytest.mark.chart

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
# A name on the hub, which is not asked: arguments for names and for paths are accepted with it.
NO_MODEL = "no-such/model"


# Runs `quire` once for each list of arguments, in one process, which imports it once.
_QUIRE = """
import contextlib, io, json, os, sys, tempfile
from service import cli
found = []
errors = tempfile.TemporaryFile()
os.dup2(errors.fileno(), 2)  # some messages are written to the descriptor
for arguments in json.load(sys.stdin):
    errors.truncate(0)
    errors.seek(0)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            status = cli.main(arguments)
        except SystemExit as ended:
            status = ended.code
    sys.stderr.flush()
    errors.seek(0)
    found.append([status, errors.read().decode()])
json.dump(found, sys.stdout)
"""


def quire(*commands: list[str]) -> list[tuple[int, str]]:
    """Return the exit status of each, and what it prints on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _QUIRE],
        input=json.dumps(commands),
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [(status, errors) for status, errors in json.loads(done.stdout)]


def kebab(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def without_model(arguments: list[str]) -> list[str]:
    """Return the arguments with a model that does not exist, and without the file of a Secret."""
    command, *words = arguments
    if words and not words[0].startswith("-"):
        del words[0]
    if "--keys-file" in words:
        at = words.index("--keys-file")
        del words[at : at + 2]
    return [command, NO_MODEL, *words]


def test_the_server_takes_the_arguments_of_every_case(
    rendered_cases: Callable[[str], dict[str, str]],
) -> None:
    """It reads all of them before it misses the model: 2 would be a wrong flag or value."""
    servers = {
        case: component(objects(rendered_cases(case)), "Deployment", "server") for case in CASES
    }
    commands = [without_model(server_container(each)["args"]) for each in servers.values()]
    for case, (status, errors) in zip(servers, quire(*commands), strict=True):
        assert status == 1, f"{case}: {errors}"


def test_wrong_arguments_would_be_noticed() -> None:
    """Abbreviated ones, too: extraArgs refuses --drain-timeout by name, and --drain-time must not
    slip past it."""
    for words in (["--no-such-flag", "1"], ["--drain-time", "1"]):
        [(status, _)] = quire(["serve", NO_MODEL, *words])
        assert status == 2


BY_FLAG = {option.flag: option for table in TABLES.values() for option in options(table)}


def described(block: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["properties"][block]["properties"]
    return found


@pytest.mark.parametrize(
    ("block", "name"), [(block, name) for block in TABLES for name in described(block)]
)
def test_each_value_is_a_flag_with_the_same_bounds(block: str, name: str) -> None:
    option = BY_FLAG[f"--{kebab(name)}"]
    theirs = msgspec.json.schema(option.annotation)
    theirs = next((t for t in theirs.get("anyOf", []) if t.get("type") != "null"), theirs)
    ours = described(block)[name]
    for bound in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxItems"):
        assert ours.get(bound) == theirs.get(bound), bound
    allowed = [value for value in ours["enum"] if value is not None] if "enum" in ours else None
    assert (sorted(allowed) if allowed else None) == theirs.get("enum")
    if "enum" not in theirs:
        assert ours["type"] == [theirs["type"], "null"]
    assert f"`{option.flag}`" in ours["description"]


def others(block: str, device: str) -> Values:
    """Return values that set all of a block's settings that have an effect on the device."""
    without = GPU_ONLY if device == "cpu" else CPU_ONLY
    given = {key(o): other_value(o) for o in chart_settings(block) if o.name not in without}
    on_gpu: Values = {"gpu": {"count": 1}, "model": {"path": "/model"}}
    return {block: given} | (on_gpu if device == "gpu" else {})


@pytest.mark.parametrize(
    ("block", "device"), [("engine", "cpu"), ("engine", "gpu"), ("api", "cpu")]
)
def test_every_value_reaches_the_server(helm4: Helm4, block: str, device: str) -> None:
    """Set to something that is not the default, each becomes the field of that name."""
    values = others(block, device)
    rendered = objects(helm4.render(values))
    arguments = server_container(component(rendered, "Deployment", "server"))["args"]
    for option in chart_settings(block):
        value = values[block].get(key(option))
        if isinstance(value, bool):
            assert (option.flag if value else f"--no-{option.flag[2:]}") in arguments
        elif value is not None:
            word = arguments[arguments.index(option.flag) + 1]
            parsed = option.parse(word.split(",") if option.is_list else word)
            if option.name == "allowed_hosts":
                parsed = parsed[: len(value)]  # then those of the Services
            is_same = (list(parsed) if option.is_list else parsed) == value
            assert is_same, f"{option.flag} {word}: such as 34359738369, not 3e+10"


def test_every_setting_is_a_value_or_decided_by_another() -> None:
    for block, table in TABLES.items():
        names = {option.name for option in options(table)}
        assert ELSEWHERE[block].keys() < names
        assert len(described(block)) == len(names - ELSEWHERE[block].keys())
        for value in ELSEWHERE[block].values():
            found = SCHEMA
            for name in value.split("."):
                found = found["properties"][name]


def test_a_setting_without_effect_on_this_device_is_refused(helm4: Helm4) -> None:
    for count, names in ((1, CPU_ONLY), (0, GPU_ONLY)):
        for option in chart_settings("engine"):
            if option.name in names:
                values = {"engine": {key(option): other_value(option)}, "gpu": {"count": count}}
                with pytest.raises(RefusedError, match=rf"engine\.{key(option)}"):
                    helm4.render(values)


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        ("engine.maxModelLen", "--max-model-len"),
        ("engine.enablePrefixCaching", "--enable-prefix-caching"),
        ("api.storeRequests", "--store-requests"),
        ("api.allowedHosts", "--allowed-hosts"),
        ("api.logLevel", "--log-level"),
        ("slo.ttft", "--slo-ttft"),
        ("model.servedNames", "--served-model-name"),
        ("gpu.count", "--tensor-parallel-size"),
    ],
)
def test_a_setting_given_twice_is_refused(helm4: Helm4, value: str, flag: str) -> None:
    """An argument that came later, or was no variable, would win without a word."""
    named: Values = {
        # Weights are quantized for one GPU only, and the number of GPUs is one of the cases.
        "engine": others("engine", "gpu")["engine"] | {"quantization": None},
        "api": others("api", "cpu")["api"],
        "slo": {"ttft": 1},
        "model": {"path": "/model", "servedNames": ["chat"]},
        "gpu": {"count": 2},
    }
    variable = f"QUIRE_{flag[2:].upper().replace('-', '_')}"
    for word in (f"{flag}=1", f"--no-{flag[2:]}"):
        with pytest.raises(RefusedError, match=rf"extraArgs: {flag} .*{value}"):
            helm4.render(named | {"extraArgs": [word]})
    with pytest.raises(RefusedError, match=rf"extraEnv: {variable} .*{value}"):
        helm4.render(named | {"extraEnv": [{"name": variable, "value": "1"}]})


def test_threads_follow_the_cpus_requested(helm4: Helm4) -> None:
    """A CPU limit is a quota, which the engine reads by itself (engine/device/device.py)."""

    def threads(values: Values) -> str | None:
        container = server_container(
            component(objects(helm4.render(values)), "Deployment", "server")
        )
        arguments = container["args"]
        return arguments[arguments.index("--threads") + 1] if "--threads" in arguments else None

    def cpus(request: Any, limit: Any = None) -> Values:
        limits = {} if limit is None else {"limits": {"cpu": limit}}
        return {"resources": {"requests": {"cpu": request}, **limits}}

    assert threads({}) == "2"
    assert threads(cpus("16")) == "16"
    assert threads(cpus(16)) == "16"
    assert threads(cpus("3500m")) == "3"
    assert threads(cpus("200m")) == "1"
    most = SCHEMA["properties"]["engine"]["properties"]["threads"]["maximum"]
    assert threads(cpus("700")) == str(most)
    assert threads(cpus("16") | {"dataParallelSize": 4}) == "4"
    assert threads(cpus("2", "16")) is None
    assert threads(cpus(None)) is None
    assert threads(cpus("16") | {"engine": {"threads": 5}}) == "5"
    assert threads(cpus("16") | {"extraArgs": ["--threads", "7"]}) == "7"
    for variable in ("OMP_NUM_THREADS", "QUIRE_THREADS"):
        own = {"extraEnv": [{"name": variable, "value": "3"}]}
        assert threads(cpus("16") | own) is None


def test_no_secret_is_an_argument_or_a_plain_variable(helm4: Helm4) -> None:
    for option in options(ServiceSettings):
        if option.secret:
            with pytest.raises(RefusedError, match="extraArgs"):
                helm4.render({"extraArgs": [f"{option.flag}=x"]})
            with pytest.raises(RefusedError, match="extraEnv"):
                helm4.render({"extraEnv": [{"name": option.variable, "value": "x"}]})


def test_null_leaves_the_choice_to_the_server(helm4: Helm4) -> None:
    nothing: Values = {block: dict.fromkeys(described(block)) for block in TABLES}
    rendered = objects(helm4.render(nothing | {"resources": {"requests": {"cpu": None}}}))
    arguments = server_container(component(rendered, "Deployment", "server"))["args"]
    given = {word for word in arguments if word.startswith("--")}
    assert given == {"--host", "--port", "--admin-port", "--drain-timeout", "--device"}


def test_the_dashboard_takes_its_arguments(helm4: Helm4) -> None:
    rendered = objects(helm4.render({"dashboard": {"enabled": True, "port": 9001}}))
    [command, *rest] = server_container(component(rendered, "Deployment", "dashboard"))["args"]
    assert command == "dashboard"
    parsed = parse_dashboard(rest)
    assert (parsed.host, parsed.port) == ("::", 9001)


def test_the_margin_holds_what_the_supervisor_allows_itself() -> None:
    """After the drain it waits for the worker, then for the engine, before it kills them."""
    margin = SCHEMA["properties"]["drain"]["properties"]["marginSeconds"]
    assert margin["minimum"] >= WORKER_STOP_SECONDS + ENGINE_STOP_SECONDS


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
