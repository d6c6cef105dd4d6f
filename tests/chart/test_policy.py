"""What cluster policies ask of pods: the restricted Pod Security standard, and a linter's rules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chart.conftest import component, pod_specs
from tests.chart.helms import Manifest, Values, objects

pytestmark = pytest.mark.chart

# nfs: an operator's own extra. The rest are those that the standard allows.
VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
    *("projected", "secret", "nfs"),
}


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def insecure(pod: Manifest) -> Iterator[str]:
    """Yield how a pod misses the restricted standard, field by field as Kubernetes lists it."""
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    for volume in pod.get("volumes", []):
        if volume.keys() - {"name"} - VOLUMES:
            yield f"volume {volume['name']}"
    for container in containers(pod):
        for field in _insecure(container, pod.get("securityContext", {})):
            yield f"{container['name']}: {field}"


def _insecure(container: Manifest, of_pod: Manifest) -> Iterator[str]:
    own = container.get("securityContext", {})
    both = of_pod | own
    capabilities = own.get("capabilities", {})
    added = set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}
    is_right = {
        "privileged": not own.get("privileged"),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities": "ALL" in capabilities.get("drop", []) and not added,
        "runAsNonRoot": both.get("runAsNonRoot") is True,
        "runAsUser": both.get("runAsUser") != 0,
        "seccompProfile": both.get("seccompProfile", {}).get("type")
        in ("RuntimeDefault", "Localhost"),
        "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
    }
    yield from (field for field, right in is_right.items() if not right)


def careless(pod: Manifest, kind: str) -> Iterator[str]:
    """Yield what a linter such as kube-score would find in a pod of this kind of object."""
    if pod.get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken"
    if pod.get("enableServiceLinks") is not False:
        yield "enableServiceLinks: a Service named quire would set QUIRE_PORT=tcp://…"
    for container in containers(pod):
        name, image = container["name"], container["image"]
        resources = container.get("resources", {})
        for part, quantity in (
            *(("requests", each) for each in ("cpu", "memory", "ephemeral-storage")),
            *(("limits", each) for each in ("memory", "ephemeral-storage")),
        ):
            if quantity not in resources.get(part, {}):
                yield f"{name}: {part} of {quantity}"
        if "@sha256:" not in image and (
            ":" not in image.split("/")[-1] or image.endswith("latest")
        ):
            yield f"{name}: image without a version"
        if kind == "Deployment" and container not in pod.get("initContainers", []):
            for probe in ("readinessProbe", "livenessProbe"):
                if probe not in container:
                    yield f"{name}: {probe}"
            ready = container.get("readinessProbe")
            if ready is not None and ready == container.get("livenessProbe"):
                yield f"{name}: both probes are the same"


@pytest.mark.proves("security", "chart")
def test_every_pod_meets_the_restricted_pod_security_standard(manifests: list[Manifest]) -> None:
    pods = pod_specs(manifests)
    assert pods
    for name, pod in pods:
        assert not list(insecure(pod)), name


def test_every_pod_is_what_a_linter_wants(manifests: list[Manifest]) -> None:
    for each in manifests:
        if each["kind"] in ("Deployment", "Pod"):
            [(name, pod)] = pod_specs([each])
            assert not list(careless(pod, each["kind"])), name


def test_no_service_account_mounts_a_token(manifests: list[Manifest]) -> None:
    for each in manifests:
        if each["kind"] == "ServiceAccount":
            assert each["automountServiceAccountToken"] is False


def test_several_replicas_spread_and_are_not_evicted_at_once(
    manifests: list[Manifest], merged: Values
) -> None:
    spec = component(manifests, "Deployment", "server")["spec"]["template"]["spec"]
    assert spec["topologySpreadConstraints"]
    has_budget = any(each["kind"] == "PodDisruptionBudget" for each in manifests)
    assert has_budget == merged["podDisruptionBudget"]["enabled"]


def without(*path: str | int) -> Callable[[Manifest], None]:
    def remove(pod: Manifest) -> None:
        part: Any = pod
        for key in path[:-1]:
            part = part[key]
        del part[path[-1]]

    return remove


def with_(value: Any, *path: str | int) -> Callable[[Manifest], None]:
    def put(pod: Manifest) -> None:
        part: Any = pod
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value

    return put


CONTEXT = ("containers", 0, "securityContext")


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (with_(True, "hostNetwork"), "hostNetwork"),
        (with_({"name": "home", "hostPath": {"path": "/"}}, "volumes", 0), "volume home"),
        (with_(True, *CONTEXT, "privileged"), "quire: privileged"),
        (without(*CONTEXT, "allowPrivilegeEscalation"), "quire: allowPrivilegeEscalation"),
        (without(*CONTEXT, "capabilities"), "quire: capabilities"),
        (without("securityContext", "runAsNonRoot"), "quire: runAsNonRoot"),
        (with_(0, *CONTEXT, "runAsUser"), "quire: runAsUser"),
        (without("securityContext", "seccompProfile"), "quire: seccompProfile"),
        (without("automountServiceAccountToken"), "automountServiceAccountToken"),
        (without("containers", 0, "resources", "limits", "memory"), "quire: limits of memory"),
        (without("containers", 0, "livenessProbe"), "quire: livenessProbe"),
        (with_("quire", "containers", 0, "image"), "quire: image without a version"),
    ],
)
def test_each_rule_can_fail(
    rendered_cases: Callable[[str], dict[str, str]], spoil: Callable[[Manifest], None], found: str
) -> None:
    deployment = component(objects(rendered_cases("default")), "Deployment", "server")
    pod = copy.deepcopy(deployment["spec"]["template"]["spec"])
    assert not [*insecure(pod), *careless(pod, "Deployment")]
    spoil(pod)
    assert found in [*insecure(pod), *careless(pod, "Deployment")]
