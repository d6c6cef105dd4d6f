"""Releases on a cluster: installed, upgraded from older charts, rolled back, uninstalled. The
cluster is a fake API; both Helms are real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.chart.conftest import CASES
from tests.chart.fake_api import FakeKubernetes, Key, serving
from tests.chart.helms import (
    CHART,
    NAMESPACE,
    Helm3,
    Helm4,
    Manifest,
    RefusedError,
    Values,
    objects,
)
from tests.chart.released import archives
from tests.chart.releases import Helm3Releases, Helm4Releases, Releases

pytestmark = pytest.mark.chart

NAME = "demo-quire"


@dataclass(frozen=True)
class Cluster:
    kubernetes: FakeKubernetes
    helm: Releases

    def server(self) -> Manifest:
        return self.kubernetes.of_kind("Deployment")[NAME]


@pytest.fixture(params=["helm3", "helm4"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    kubernetes = FakeKubernetes()
    used = request.getfixturevalue(request.param)
    with serving(kubernetes, tmp_path) as kubeconfig:
        if isinstance(used, Helm3):
            yield Cluster(kubernetes, Helm3Releases(used.binary, kubeconfig))
        else:
            yield Cluster(kubernetes, Helm4Releases(kubeconfig))


def test_a_release_leaves_nothing_behind(cluster: Cluster, helm4: Helm4) -> None:
    """Claims are not the chart's: an operator made them, and they stay."""
    for case in ("network", "keda"):
        values = yaml.safe_load(CASES[case].read_text())
        cluster.helm.install(CHART, values)
        found = {
            (kind, name)
            for kind, name in cluster.kubernetes.left()
            if not name.startswith("sh.helm.release")
        }
        rendered = objects(helm4.render(values))
        assert found == {
            (each["kind"], each["metadata"]["name"]) for each in rendered if each["kind"] != "Pod"
        }
        cluster.helm.uninstall()
        assert cluster.kubernetes.left() == []


@pytest.mark.parametrize("old", archives())
@pytest.mark.parametrize("reuse", [False, True], ids=["plain", "reuse-values"])
def test_an_older_release_is_upgraded_and_rolled_back(
    cluster: Cluster, old: str, reuse: bool
) -> None:
    values: Values = {"replicaCount": 2, "engine": {"maxModelLen": 4096}}
    cluster.helm.install(archives()[old], values)
    before = cluster.server()["spec"]
    kinds = {kind for kind, _ in cluster.kubernetes.left()}
    cluster.helm.upgrade({} if reuse else values, reuse=reuse)
    after = cluster.server()["spec"]
    assert after["replicas"] == 2
    assert "4096" in after["template"]["spec"]["containers"][0]["args"]
    assert after["selector"] == before["selector"]
    assert set(cluster.kubernetes.of_kind("PodDisruptionBudget")) == {NAME}
    cluster.helm.rollback(1)
    assert cluster.server()["spec"] == before
    assert {kind for kind, _ in cluster.kubernetes.left()} == kinds
    cluster.helm.uninstall()
    assert cluster.kubernetes.left() == []


@pytest.mark.proves("scaling", "chart")
@pytest.mark.parametrize("chosen", ["0.1.0", "current"])
@pytest.mark.parametrize("by", ["replicaCount", "hpa"])
def test_a_count_that_an_autoscaler_set_stays(cluster: Cluster, chosen: str, by: str) -> None:
    """Even in the upgrade with which the chart leaves the count to it: Helm then removes the field,
    for which Kubernetes would put 1."""
    left: Values = {"autoscaling": {"hpa": {"enabled": True}}}
    if by == "replicaCount":
        left = {"replicaCount": None}
    if chosen == "current":
        cluster.helm.install(CHART, left)
        assert cluster.server()["spec"]["replicas"] == 1
    else:
        cluster.helm.install(archives()[chosen], {"replicaCount": 2})
    cluster.kubernetes.scale(NAME, 7)
    for owner in ("ml", "infra"):
        cluster.helm.upgrade(left | {"podAnnotations": {"example.com/owner": owner}})
        template = cluster.server()["spec"]["template"]
        assert template["metadata"]["annotations"] == {"example.com/owner": owner}
        assert cluster.server()["spec"]["replicas"] == 7
        cluster.kubernetes.scale(NAME, 7)
    cluster.kubernetes.scale(NAME, 5)
    cluster.helm.upgrade(left)
    assert cluster.server()["spec"]["replicas"] == 5


def claim(name: str, mode: str) -> Manifest:
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": NAMESPACE}
    about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**about, "metadata": metadata, "spec": spec, "status": {"accessModes": [mode]}}


def make_claim(cluster: Cluster, name: str, mode: str) -> None:
    key = Key("v1", "persistentvolumeclaims", NAMESPACE, name)
    with suppress(KeyError):
        del cluster.kubernetes.objects[key]
    cluster.kubernetes.create(key, claim(name, mode))


def test_groups_of_pods_are_installed_scaled_and_replaced(cluster: Cluster) -> None:
    """By a Deployment, and back."""
    groups = yaml.safe_load(CASES["multi-node"].read_text())
    scaled = groups | {"autoscaling": {"hpa": {"enabled": True}}, "replicaCount": 1}
    name = f"{NAME}-group"
    cluster.helm.install(CHART, scaled)
    cluster.kubernetes.scale(name, 3)
    cluster.helm.upgrade(scaled | {"podAnnotations": {"example.com/owner": "ml"}})
    [group] = cluster.kubernetes.of_kind("LeaderWorkerSet").values()
    assert group["spec"]["replicas"] == 3
    cluster.helm.upgrade(groups | {"multiNode": {"enabled": False}})
    assert not cluster.kubernetes.of_kind("LeaderWorkerSet")
    assert cluster.server()["spec"]["replicas"] == 2
    cluster.helm.upgrade(groups)
    assert set(cluster.kubernetes.of_kind("LeaderWorkerSet")) == {name}
    assert not cluster.kubernetes.of_kind("Deployment")
    cluster.helm.uninstall()
    assert cluster.kubernetes.left() == []


@pytest.mark.parametrize("key", ["kernelCache.existingClaim", "model.existingClaim"])
def test_a_claim_that_one_node_mounts_is_refused_for_a_group(cluster: Cluster, key: str) -> None:
    groups = yaml.safe_load(CASES["multi-node"].read_text())
    groups["kernelCache"] = {"existingClaim": "kernels"}
    names = {"kernelCache.existingClaim": "kernels", "model.existingClaim": "models"}
    for name in names.values():
        make_claim(cluster, name, "ReadWriteMany")
    make_claim(cluster, names[key], "ReadWriteOnce")
    with pytest.raises(RefusedError, match=rf"{key}: .* claim {names[key]} is ReadWriteOnce"):
        cluster.helm.install(CHART, groups)
    make_claim(cluster, names[key], "ReadWriteMany")
    make_claim(cluster, "models", "ReadOnlyMany")
    cluster.helm.install(CHART, groups)


def test_a_count_of_ones_own_is_what_an_upgrade_sets(cluster: Cluster) -> None:
    cluster.helm.install(CHART, {"replicaCount": 2})
    cluster.helm.upgrade({"replicaCount": 3})
    assert cluster.server()["spec"]["replicas"] == 3


def test_the_fake_api_refuses_what_kubernetes_refuses(cluster: Cluster) -> None:
    """A changed selector, and a wrong quantity: the schema cannot see volumes' contents."""
    cluster.helm.install(CHART, {"fullnameOverride": "llm"})
    with pytest.raises(RefusedError, match=r"spec\.selector: field is immutable"):
        cluster.helm.upgrade({"fullnameOverride": "llm", "nameOverride": "other"})
    wrong = {"name": "a", "emptyDir": {"sizeLimit": "4GB"}}
    with pytest.raises(RefusedError, match="'4GB' is not a quantity"):
        cluster.helm.upgrade({"fullnameOverride": "llm", "extraVolumes": [wrong]})
