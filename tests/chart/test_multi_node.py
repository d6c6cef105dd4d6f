"""A group of pods, the leader and those that join it, in place of the Deployment's pods."""

from __future__ import annotations

import argparse
import copy
import itertools
from typing import Any

import pytest
import yaml

from engine.config import EngineConfig, hosts_problem
from engine.options import add_arguments
from engine.ranks.join import JoinOptions
from engine.ranks.network import parse_address
from tests.chart.conftest import CASES, component, server_container
from tests.chart.helms import Helm, Manifest, RefusedError, Values, objects
from tests.chart.kubernetes import VERSIONS, NotAcceptedError, check

pytestmark = pytest.mark.chart

GROUPS: Values = yaml.safe_load(CASES["multi-node"].read_text())


def changed(**values: Any) -> Values:
    """The case's values with others in place of some, one level down."""
    both = copy.deepcopy(GROUPS)
    for name, value in values.items():
        both[name] = both.get(name, {}) | value if isinstance(value, dict) else value
    return both


def rendered(helm: Helm, **values: Any) -> list[Manifest]:
    return objects(helm.render(changed(**values)))


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] == kind]


def test_a_leader_worker_set_takes_the_place_of_the_deployment(helm: Helm) -> None:
    found = rendered(helm)
    assert not of_kind(found, "Deployment")
    [group] = of_kind(found, "LeaderWorkerSet")
    spec = group["spec"]
    assert spec["replicas"] == 2
    assert spec["leaderWorkerTemplate"]["size"] == 2
    # Its controller makes a Service of this name for the pods' addresses.
    services = {each["metadata"]["name"] for each in of_kind(found, "Service")}
    assert group["metadata"]["name"] not in services


def test_the_workers_join_their_leader_with_as_many_gpus_and_the_same_secret(helm: Helm) -> None:
    found = rendered(helm, gpu={"count": 4}, multiNode={"size": 3, "port": 29600})
    leader = server_container(component(found, "Deployment", "server"))
    worker = server_container(component(found, "Deployment", "worker"))
    words = leader["args"]
    flags = dict(itertools.pairwise(words))
    config = EngineConfig(
        model="m",
        tensor_parallel_size=int(flags["--tensor-parallel-size"]),
        tensor_parallel_hosts=int(flags["--tensor-parallel-hosts"]),
        ranks_secret="from a file",
    )
    assert hosts_problem(config) is None
    assert config.ranks_per_host == 4
    command, address = worker["args"]
    assert command == "join"
    assert parse_address(address) == ("$(LWS_LEADER_ADDRESS)", int(flags["--ranks-port"]))
    for container in (leader, worker):
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert variables["QUIRE_RANKS_SECRET_FILE"] == "/etc/quire/secrets/ranks"
        assert variables["NCCL_SOCKET_IFNAME"] == "eth0"
    assert [m["mountPath"] for m in leader["volumeMounts"]] == [
        m["mountPath"] for m in worker["volumeMounts"]
    ]


def test_a_worker_logs_as_its_leader_does(helm: Helm) -> None:
    found = rendered(helm, api={"logLevel": "debug", "logFormat": "json"})
    _, _, *words = server_container(component(found, "Deployment", "worker"))["args"]
    parser = argparse.ArgumentParser()
    add_arguments(parser, JoinOptions)
    options = parser.parse_args(words)
    assert (options.log_level, options.log_format) == ("debug", "json")


def test_a_worker_has_no_other_secret_no_port_no_probe_and_none_of_the_servers_settings(
    helm: Helm,
) -> None:
    found = rendered(
        helm,
        auth={"existingSecret": "keys"},
        store={"existingSecret": "database"},
        extraEnvFrom=[{"secretRef": {"name": "keys-of-the-leader"}}],
        extraEnv=[{"name": "QUIRE_LOG_LEVEL", "value": "debug"}, {"name": "A", "value": "b"}],
    )
    pod = component(found, "Deployment", "worker")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert not {"envFrom", "ports", "startupProbe", "livenessProbe", "readinessProbe"} & set(
        container
    )
    variables = {each["name"] for each in container["env"]}
    assert variables == {"QUIRE_RANKS_SECRET_FILE", "A"}
    assert not {field.upper() for field in JoinOptions.__struct_fields__} & variables
    [secrets] = [each for each in pod["volumes"] if each["name"] == "secrets"]
    sources = [source["secret"]["name"] for source in secrets["projected"]["sources"]]
    assert sources == ["quire-ranks"]


def test_services_and_monitors_select_leaders_and_the_budget_both(helm: Helm) -> None:
    found = rendered(helm, metrics={"podMonitor": {"enabled": True}})
    selected = [each["spec"]["selector"] for each in of_kind(found, "Service")]
    selected += [each["spec"]["selector"]["matchLabels"] for each in of_kind(found, "PodMonitor")]
    assert {each["app.kubernetes.io/component"] for each in selected} == {"server"}
    [budget] = of_kind(found, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchExpressions"] == [
        {
            "key": "app.kubernetes.io/component",
            "operator": "In",
            "values": ["server", "worker"],
        }
    ]
    assert "app.kubernetes.io/component" not in budget["spec"]["selector"]["matchLabels"]


def test_only_the_pods_of_groups_reach_each_other_beside_the_api(helm: Helm) -> None:
    policies = {
        each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: each["spec"]
        for each in of_kind(rendered(helm), "NetworkPolicy")
    }
    for name in ("server", "worker"):
        inside = [rule for rule in policies[name]["ingress"] if "ports" not in rule]
        [peers] = [rule["from"] for rule in inside]
        labels = [peer["podSelector"]["matchLabels"] for peer in peers]
        assert {each["app.kubernetes.io/component"] for each in labels} == {"server", "worker"}
        assert all(each["app.kubernetes.io/instance"] == "demo" for each in labels)
        # Everyone else: the API's port of the leader, and nothing of a worker.
        ports = [rule["ports"] for rule in policies[name]["ingress"] if "ports" in rule]
        assert ports == ([[{"protocol": "TCP", "port": "http"}]] if name == "server" else [])


@pytest.mark.parametrize("scaler", ["hpa", "keda"])
def test_an_autoscaler_scales_groups(helm: Helm, scaler: str) -> None:
    found = rendered(
        helm,
        autoscaling={scaler: {"enabled": True, "prometheusAddress": "http://p:9090"}}
        if scaler == "keda"
        else {scaler: {"enabled": True}},
        metrics={"podMonitor": {"enabled": True}},
    )
    kind = {"hpa": "HorizontalPodAutoscaler", "keda": "ScaledObject"}[scaler]
    [autoscaler] = of_kind(found, kind)
    assert autoscaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "demo-quire-group",
    }
    for version in VERSIONS:
        check(autoscaler, version)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"multiNode": {"existingSecret": ""}}, "multiNode.existingSecret: name a Secret"),
        ({"multiNode": {"size": 16}}, "multiNode.size: a model is shared by 64 GPUs at most"),
        ({"multiNode": {"size": 1}}, "size"),
        ({"multiNode": {"port": 8000}}, "multiNode.port: HTTP, gRPC or the admin API"),
        ({"gpu": {"count": 0}}, "gpu.count: multiNode needs GPUs"),
        ({"model": {"path": "", "existingClaim": ""}}, "gpu.count: the embedded demonstration"),
        ({"dataParallelSize": 2}, "dataParallelSize: with multiNode a group is one engine"),
        ({"updateStrategy": {"type": "Recreate"}}, "updateStrategy.type: a LeaderWorkerSet"),
        ({"updateStrategy": {"maxUnavailable": "25%"}}, "updateStrategy.maxUnavailable: 25% of 2"),
        (
            {
                "model": {
                    "path": "",
                    "name": "a/b",
                    "existingClaim": "",
                    "claim": {"create": True, "size": "1Gi"},
                },
                "replicaCount": 1,
            },
            "model.claim.accessModes: the pods of a group are on several nodes",
        ),
        ({"extraArgs": ["--ranks-port=1"]}, "extraArgs"),
        ({"extraEnv": [{"name": "QUIRE_RANKS_SECRET", "value": "x"}]}, "extraEnv"),
    ],
)
def test_senseless_values_are_refused_by_key(helm: Helm, values: dict[str, Any], key: str) -> None:
    with pytest.raises(RefusedError) as refused:
        rendered(helm, **values)
    assert key in str(refused.value)


def test_a_mistake_in_a_groups_pod_would_be_noticed(helm4: Helm) -> None:
    [group] = of_kind(rendered(helm4), "LeaderWorkerSet")
    for version in VERSIONS:
        check(group, version)
    for template in ("leaderTemplate", "workerTemplate"):
        wrong = copy.deepcopy(group)
        wrong["spec"]["leaderWorkerTemplate"][template]["spec"]["container"] = []
        with pytest.raises(NotAcceptedError, match="container"):
            check(wrong, VERSIONS[-1])
