"""docs/kubernetes.md, typed word by word by a new user: with nothing but Helm and kubectl, in a
folder that has the chart, on a cluster that has nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chart.conftest import pod_specs
from tests.chart.fake_api import FakeKubernetes, serving
from tests.chart.helms import NAMESPACE, ROOT, Helm3, Manifest

pytestmark = pytest.mark.chart

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
BLOCK = re.compile(r"^```(sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def blocks(title: str) -> list[tuple[str, str]]:
    """(language, text) of a section's blocks."""
    return [(found[1], found[2]) for found in BLOCK.finditer(section(title))]


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
    # Helm would fetch the API's schemas, which the fake API enforces by itself. For a namespace it
    # does so in any case, so kubectl makes that.
    helm = (
        'for word in "$@"; do shift; if [ "$word" = --create-namespace ]; '
        f'then kubectl create namespace {NAMESPACE}; else set -- "$@" "$word"; fi; done; '
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
    deployments: list[Manifest] = list(cluster.of_kind("Deployment").values())
    assert deployments
    secrets = cluster.of_kind("Secret")
    there = claims | set(cluster.of_kind("PersistentVolumeClaim"))
    for _, pod in pod_specs(deployments):
        for name, key in wanted_secrets(pod):
            assert key in secrets[name]["data"], f"the page makes no {key} in {name}"
        for volume in pod.get("volumes", []):
            if claim := volume.get("persistentVolumeClaim"):
                assert claim["claimName"] in there


def test_the_demonstration_model_is_installed(newcomer: Newcomer) -> None:
    command = blocks("Install")[0][1]
    said = newcomer.types(command)
    pods_can_start(newcomer.cluster, set())
    assert {"quire", "quire-dashboard"} == set(newcomer.cluster.of_kind("Deployment"))
    assert "port-forward" in said
    image = command.split("image.repository=")[1].split()[0] + ":0.1.0-cpu"
    for _, pod in pod_specs(list(newcomer.cluster.of_kind("Deployment").values())):
        assert {each["image"] for each in pod["containers"]} == {image}


def test_a_model_of_ones_own_on_a_gpu_is_installed(newcomer: Newcomer) -> None:
    [values] = [text for language, text in blocks("Install") if language == "yaml"]
    assert values.startswith("# values.yaml\n")
    newcomer.saves("values.yaml", values)
    [commands] = [text for _, text in blocks("Install") if "--values values.yaml" in text]
    newcomer.types(commands)
    pods_can_start(newcomer.cluster, {"models"})
    [(_, pod)] = pod_specs([newcomer.cluster.of_kind("Deployment")["quire"]])
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] in (1, "1")


def test_a_model_by_its_name_is_installed(newcomer: Newcomer) -> None:
    [(_, values), (_, secret)] = blocks("A model by its name")
    newcomer.saves("values.yaml", values)
    [commands] = [text for _, text in blocks("Install") if "--values values.yaml" in text]
    namespace, _, install = commands.strip().splitlines()
    newcomer.types(f"{namespace}\n{secret}\n{install}\n")
    pods_can_start(newcomer.cluster, set())


def test_a_step_that_is_left_out_is_noticed(newcomer: Newcomer) -> None:
    """The tests above would fail if the page forgot the namespace or the Secret."""
    [values] = [text for language, text in blocks("Install") if language == "yaml"]
    newcomer.saves("values.yaml", values)
    [commands] = [text for _, text in blocks("Install") if "--values values.yaml" in text]
    namespace, secret, install = commands.strip().splitlines()
    with pytest.raises(AssertionError, match='namespaces "models" not found'):
        newcomer.types(secret)
    newcomer.types(f"{namespace}\n{install}")
    with pytest.raises(KeyError, match="quire-keys"):
        pods_can_start(newcomer.cluster, {"models"})
