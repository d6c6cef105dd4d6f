"""docs/kubernetes.md and the pages below it, typed word by word by a new user: with nothing but
Helm and kubectl, in a folder that has the chart, on a cluster that has nothing."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.conftest import as_deployments, pod_specs
from tests.chart.fake_api import FakeKubernetes, serving
from tests.chart.helms import ROOT, Helm3, Helm4, Values

pytestmark = pytest.mark.chart

DOCS = ROOT / "docs"
INSTALL = DOCS / "kubernetes.md"
BELOW = sorted((DOCS / "kubernetes").glob("*.md"))
BLOCK = re.compile(r"^```(sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(page: Path, title: str) -> str:
    found = re.search(
        rf"^#+ {title}\n(.*?)(?=^#+ [A-Z]|\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, text) of each block."""
    return [(found[1], found[2]) for found in BLOCK.finditer(text)]


def installing() -> list[tuple[str, str]]:
    return blocks(section(INSTALL, "Install"))


def own_values() -> Values:
    [text] = [text for language, text in installing() if language == "yaml"]
    found: Values = yaml.safe_load(text)
    return found


def over(base: Values, top: Values) -> Values:
    """``base``, in which the values of ``top`` replace those of the same names."""
    both = [name for name, value in top.items() if isinstance(value, dict) and name in base]
    return base | top | {name: over(base[name], top[name]) for name in both}


@dataclass
class Newcomer:
    """A shell in an empty home, before an empty cluster."""

    cluster: FakeKubernetes
    folder: Path
    programs: Path
    kubeconfig: Path

    def types(self, text: str) -> str:
        """Return what the commands print. Fails with what they say if one of them does."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env={
                "HOME": str(self.folder),
                "PATH": f"{self.programs}:/usr/bin:/bin",
                "KUBECONFIG": str(self.kubeconfig),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def saves(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


@pytest.fixture
def newcomer(helm3: Helm3, tmp_path: Path) -> Iterator[Newcomer]:
    programs, folder = tmp_path / "bin", tmp_path / "checkout"
    programs.mkdir()
    folder.mkdir()
    (folder / "helm").symlink_to(ROOT / "helm")
    # Helm would fetch the API's schemas, which the fake API enforces by itself.
    helm = (
        f'case "$1" in install|upgrade) exec {helm3.binary} "$@" --disable-openapi-validation;; '
        f'*) exec {helm3.binary} "$@";; esac'
    )
    kubectl = f'PYTHONPATH={ROOT} exec {sys.executable} -m tests.chart.kubectl "$@"'
    for name, line in (("helm", helm), ("kubectl", kubectl)):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    cluster = FakeKubernetes({"default"})
    with serving(cluster, tmp_path) as kubeconfig:
        yield Newcomer(cluster, folder, programs, kubeconfig)


def wanted_secrets(value: Any) -> Iterator[tuple[str, str]]:
    """(Secret, key) of each that a pod reads and that must be there for it to start."""
    if isinstance(value, list):
        for each in value:
            yield from wanted_secrets(each)
    if not isinstance(value, dict):
        return
    if "secretKeyRef" in value and not value["secretKeyRef"].get("optional"):
        yield value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]
    if isinstance(value.get("secret"), dict) and not value["secret"].get("optional"):
        secret = value["secret"]
        for item in secret["items"]:
            yield secret.get("secretName") or secret["name"], item["key"]
    for each in value.values():
        yield from wanted_secrets(each)


def pods_can_start(cluster: FakeKubernetes, claims: set[str]) -> None:
    """Every Secret and claim that a pod mounts is there. ``claims``: what the page says is there
    before."""
    kinds = ("Deployment", "LeaderWorkerSet")
    found = [each for kind in kinds for each in cluster.of_kind(kind).values()]
    assert found
    secrets = cluster.of_kind("Secret")
    there = claims | set(cluster.of_kind("PersistentVolumeClaim"))
    for _, pod in pod_specs([each for made in found for each in as_deployments(made)]):
        for name, key in wanted_secrets(pod):
            assert key in secrets[name]["data"], f"the page makes no {key} in {name}"
        for volume in pod.get("volumes", []):
            if claim := volume.get("persistentVolumeClaim"):
                assert claim["claimName"] in there


def images(cluster: FakeKubernetes) -> set[str]:
    specs = pod_specs(list(cluster.of_kind("Deployment").values()))
    return {container["image"] for _, pod in specs for container in pod["containers"]}


def test_the_section_is_typed_from_its_first_line_to_its_last(newcomer: Newcomer) -> None:
    """The demonstration first, then a model of one's own."""
    cluster = newcomer.cluster
    first, removal, values, install, key, test = installing()
    said = newcomer.types(first[1])
    pods_can_start(cluster, set())
    assert {"quire", "quire-dashboard"} == set(cluster.of_kind("Deployment"))
    assert "port-forward" in said
    name = first[1].split("image.repository=")[1].split()[0]
    assert images(cluster) == {f"{name}:0.1.0-cpu"}
    newcomer.types(removal[1])
    assert not cluster.of_kind("Deployment")
    assert values[1].startswith("# values.yaml\n")
    newcomer.saves("values.yaml", values[1])
    newcomer.types(install[1])
    pods_can_start(cluster, {"models"})
    [(_, pod)] = pod_specs([cluster.of_kind("Deployment")["quire"]])
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] in (1, "1")
    assert re.fullmatch(r"[0-9a-f]{64}", newcomer.types(key[1]))
    assert test[1] == "helm test quire --namespace models\n"  # tests/chart/test_smoke.py


def test_a_model_by_its_name_is_installed(newcomer: Newcomer) -> None:
    [(_, values), (_, secret)] = blocks(section(INSTALL, "A model by its name"))
    newcomer.types("kubectl create namespace models")
    newcomer.saves("values.yaml", yaml.safe_dump(own_values() | yaml.safe_load(values)))
    newcomer.types(f"{secret}\n{installing()[3][1]}")
    pods_can_start(newcomer.cluster, set())


def test_a_model_over_several_nodes_is_installed(newcomer: Newcomer) -> None:
    text = section(DOCS / "kubernetes" / "operations.md", "One model over several nodes")
    [(_, secret), (_, values)] = blocks(text)
    newcomer.types("kubectl create namespace models")
    newcomer.saves("values.yaml", yaml.safe_dump(over(own_values(), yaml.safe_load(values))))
    newcomer.types(f"{secret}\n{installing()[3][1]}")
    pods_can_start(newcomer.cluster, {"models"})
    assert set(newcomer.cluster.of_kind("LeaderWorkerSet")) == {"quire-group"}


def test_metrics_with_keys_are_scraped(newcomer: Newcomer) -> None:
    [_, (_, secrets), (_, values)] = blocks((DOCS / "kubernetes" / "monitoring.md").read_text())
    newcomer.types("kubectl create namespace models")
    newcomer.saves("values.yaml", yaml.safe_dump(over(own_values(), yaml.safe_load(values))))
    newcomer.types(f"{secrets}\n{installing()[3][1]}")
    pods_can_start(newcomer.cluster, {"models"})
    [monitor] = newcomer.cluster.of_kind("ServiceMonitor").values()
    [endpoint] = monitor["spec"]["endpoints"]
    asked = endpoint["authorization"]["credentials"]
    held = newcomer.cluster.of_kind("Secret")[asked["name"]]["data"][asked["key"]]
    admin = newcomer.cluster.of_kind("Secret")["quire-admin"]["data"]["admin-key"]
    keys = base64.b64decode(admin).decode().split(",")
    assert f"read:prometheus={base64.b64decode(held).decode()}" in keys


def test_a_key_is_rotated(newcomer: Newcomer) -> None:
    text = section(DOCS / "kubernetes" / "operations.md", "Rotating keys")
    [(_, command)] = blocks(text)
    newcomer.types("kubectl create namespace models")
    newcomer.saves("values.yaml", yaml.safe_dump(own_values()))
    newcomer.types(installing()[3][1])
    newcomer.types(f"OLD=old-key NEW=new-key\n{command}")
    data = newcomer.cluster.of_kind("Secret")["quire-keys"]["data"]["api-key"]
    assert base64.b64decode(data) == b"alice=old-key,alice=new-key"


@pytest.mark.parametrize("page", [INSTALL, *BELOW], ids=lambda page: page.stem)
def test_every_example_of_values_is_accepted_with_those_of_the_install_page(
    helm4: Helm4, page: Path
) -> None:
    for language, text in blocks(page.read_text()):
        values = yaml.safe_load(text) if language == "yaml" else {"rules": {}}
        if "rules" in values:  # of prometheus-adapter
            continue
        base = own_values()
        if "name" in values.get("model", {}):
            base["model"] = {}
        if page.stem in ("monitoring", "operations") and "admin" not in values:
            del base["auth"]  # the page says so, before or after
        assert helm4.render(over(base, values))


def test_a_step_that_is_left_out_is_noticed(newcomer: Newcomer) -> None:
    """The tests above would fail if the page forgot the namespace or the Secret."""
    newcomer.saves("values.yaml", yaml.safe_dump(own_values()))
    secret, install = installing()[3][1].strip().splitlines()
    with pytest.raises(AssertionError, match='namespaces "models" not found'):
        newcomer.types(secret)
    newcomer.types(f"kubectl create namespace models\n{install}")
    with pytest.raises(KeyError, match="quire-keys"):
        pods_can_start(newcomer.cluster, {"models"})
