from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.helms import (
    CHART,
    ROOT,
    Helm,
    Helm3,
    Helm4,
    HelmMissingError,
    Manifest,
    Values,
    fetch_helm3,
    objects,
)

CASES = {path.name.removesuffix("-values.yaml"): path for path in CHART.glob("ci/*-values.yaml")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``case`` runs once for each values file under ``ci/``."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", sorted(CASES))


@pytest.fixture(scope="session")
def helm3(tmp_path_factory: pytest.TempPathFactory) -> Helm3:
    try:
        binary = fetch_helm3(ROOT / "build" / "helm3")
    except HelmMissingError as reason:
        pytest.skip(f"no Helm 3: {reason}")
    return Helm3(binary, tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def helm4() -> Iterator[Helm4]:
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("no Helm 4: helm-python-sdk is not installed")
    helm = Helm4()
    yield helm
    helm.close()


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Each Helm in turn."""
    chosen: Helm = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture
def values(case: str) -> Values:
    """What the values file of ``case`` says."""
    said: Values = yaml.safe_load(CASES[case].read_text())
    return said


@pytest.fixture
def merged(values: Values) -> Values:
    """The values that hold in ``case``: the defaults with its file over them."""

    def over(base: Values, top: Values) -> Values:
        both = [key for key in base if isinstance(base[key], dict) and key in top]
        return base | top | {key: over(base[key], top[key]) for key in both}

    return over(yaml.safe_load((CHART / "values.yaml").read_text()), values)


@pytest.fixture(scope="session")
def rendered_cases(helm4: Helm4) -> Callable[[str], dict[str, str]]:
    """What Helm 4 makes of each case, rendered once in a session."""
    return functools.cache(lambda case: helm4.render(yaml.safe_load(CASES[case].read_text())))


@pytest.fixture
def manifests(case: str, rendered_cases: Callable[[str], dict[str, str]]) -> list[Manifest]:
    """Return the objects of ``case``; a separate test checks that both Helms render the same."""
    return objects(rendered_cases(case))


@pytest.fixture
def server(manifests: list[Manifest]) -> Manifest:
    """The server's Deployment in ``case``."""
    return component(manifests, "Deployment", "server")


def component(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """Of a LeaderWorkerSet, the leader's and the worker's pods count as Deployments."""
    [found] = [
        each
        for manifest in manifests
        for each in as_deployments(manifest)
        if each["kind"] == kind
        and each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == name
    ]
    return found


def as_deployments(manifest: Manifest) -> list[Manifest]:
    """The object itself, or two of a LeaderWorkerSet: its leaders, which serve, and its
    workers."""
    if manifest["kind"] != "LeaderWorkerSet":
        return [manifest]
    group = manifest["spec"]["leaderWorkerTemplate"]
    return [
        {
            "kind": "Deployment",
            "metadata": manifest["metadata"]
            | {
                "name": f"{manifest['metadata']['name'].removesuffix('-group')}{suffix}",
                "labels": group[template]["metadata"]["labels"],
            },
            "spec": {
                "template": group[template],
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": manifest["spec"]["rolloutStrategy"][
                        "rollingUpdateConfiguration"
                    ],
                },
                "progressDeadlineSeconds": math.inf,  # it has none
            },
        }
        for template, suffix in (("leaderTemplate", ""), ("workerTemplate", "-worker"))
    ]


def server_container(deployment: Manifest) -> Manifest:
    """The container of the server or dashboard; sidecars come after it."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert isinstance(container, dict)
    return container


def pod_specs(manifests: list[Manifest]) -> list[tuple[str, Manifest]]:
    """The name and spec of every pod that the objects make, `helm test`'s included."""
    return [
        (each["metadata"]["name"], each["spec"])
        if each["kind"] == "Pod"
        else (each["metadata"]["name"], each["spec"]["template"]["spec"])
        for manifest in manifests
        for each in as_deployments(manifest)
        if each["kind"] in ("Deployment", "Pod")
    ]


def dockerfile() -> Path:
    return ROOT / "Dockerfile"
