"""Wrong values are refused with the key named; the values are all described."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from helm import generate
from tests.chart.helms import CHART, Helm, RefusedError, Values

pytestmark = pytest.mark.chart

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text())


def mounted(path: str, read_only: bool) -> Values:
    return {
        "extraVolumes": [{"name": "mine", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "mine", "mountPath": path, "readOnly": read_only}],
    }


# Ways to require API keys besides auth.existingSecret.
KEYS_OF_ONES_OWN: list[Values] = [
    {"api": {"storedKeys": True}},
    {"extraArgs": ["--stored-keys"]},
    {"extraArgs": ["--keys-file", "/home/quire/keys.toml"]},
    {"extraArgs": ["--keys-file=/home/quire/keys.toml"]},
    {"extraEnv": [{"name": "QUIRE_STORED_KEYS", "value": "True"}]},
    {"extraEnv": [{"name": "QUIRE_KEYS_FILE", "value": "/home/quire/keys.toml"}]},
    {"extraEnv": [{"name": "QUIRE_API_KEY_FILE", "value": "/home/quire/key"}]},
    {"extraEnv": [{"name": "QUIRE_PRIORITY_API_KEY", "valueFrom": {"secretKeyRef": {}}}]},
]

# The key a user must find in the message, and values that are wrong about it.
WRONG: list[tuple[str, Values]] = [
    # By the schema
    ("replicas", {"replicas": 3}),
    ("fullnameOverride", {"fullnameOverride": "0day"}),
    ("maxModelLength", {"engine": {"maxModelLength": 4096}}),
    ("replicaCount", {"replicaCount": "two"}),
    ("replicaCount", {"replicaCount": -1}),
    ("dtype", {"engine": {"dtype": "fp16"}}),
    ("blockSize", {"engine": {"blockSize": 24}}),
    ("gpuMemoryUtilization", {"engine": {"gpuMemoryUtilization": 90}}),
    ("count", {"gpu": {"count": 65}}),
    ("dataParallelSize", {"dataParallelSize": 0}),
    ("apiWorkers", {"apiWorkers": 33}),
    ("path", {"model": {"path": "--trust-remote-code"}}),
    ("path", {"model": {"path": "simulated:fast --api-key=sk-secret"}}),
    ("name", {"model": {"name": "qwen"}}),
    ("revision", {"model": {"name": "a/b", "revision": "-x"}}),
    ("size", {"model": {"name": "a/b", "claim": {"create": True, "size": "big"}}}),
    ("model.claim.size", {"model": {"name": "a/b", "claim": {"create": True}}}),
    ("accessModes", {"model": {"name": "a/b", "claim": {"accessModes": ["ReadWriteSome"]}}}),
    (
        "model.claim.accessModes",
        {"replicaCount": 2, "model": {"name": "a/b", "claim": {"create": True, "size": "1Gi"}}},
    ),
    (
        "model.claim.accessModes",  # an update would start a second pod
        {"model": {"name": "a/b", "claim": {"create": True, "size": "1Gi"}}},
    ),
    ("model.mountPath", {"model": {"name": "a/b", "mountPath": "/usr/share"}}),
    ("extraEnv", {"extraEnv": [{"name": "HF_TOKEN", "value": "hf_x"}]}),
    (
        "initContainers",
        {"model": {"name": "a/b"}, "initContainers": [{"name": "model", "image": "x"}]},
    ),
    (
        "extraVolumeMounts",
        {
            "model": {"name": "a/b"},
            "extraVolumes": [{"name": "mine", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "mine", "mountPath": "/models"}],
        },
    ),
    (
        "model.claim.create",
        {"model": {"name": "a/b", "existingClaim": "m", "claim": {"create": True, "size": "1Gi"}}},
    ),
    ("model.path", {"model": {"name": "a/b", "path": "/models/b"}}),
    ("model.name", {"model": {"path": "/models/b", "revision": "main"}}),
    ("downloadEnv", {"model": {"name": "a/b", "downloadEnv": [{"name": "HF_TOKEN"}]}}),
    ("extraArgs", {"extraArgs": ["--download-dir=/tmp"]}),
    ("servedNames", {"model": {"servedNames": ["--api-key"]}}),
    ("pullPolicy", {"image": {"pullPolicy": "Sometimes"}}),
    ("digest", {"image": {"digest": "0.1.0"}}),
    ("marginSeconds", {"drain": {"marginSeconds": 0}}),
    ("runAsUser", {"securityContext": {"runAsUser": 0}}),
    ("privileged", {"securityContext": {"privileged": True}}),
    ("apiKey", {"auth": {"apiKey": "sk-secret"}}),
    ("port", {"server": {"port": 80}}),
    ("interval", {"metrics": {"serviceMonitor": {"interval": "often"}}}),
    ("protocol", {"tracing": {"protocol": "http/json"}}),
    ("grpcPort", {"server": {"grpcPort": 443}}),
    ("server.grpcPort", {"server": {"grpcPort": 8000}}),
    ("service.grpcPort", {"server": {"grpcPort": 9000}, "service": {"grpcPort": 8000}}),
    ("extraArgs", {"extraArgs": ["--grpc-port=9000"]}),
    ("extraArgs", {"extraArgs": "--seed 7"}),
    ("extraArgs", {"extraArgs": ["--drain-timeout=600"]}),
    ("extraArgs", {"extraArgs": ["--api-key", "sk-secret"]}),
    ("extraArgs", {"extraArgs": ["--priority-api-key=sk-secret"]}),
    ("extraEnv", {"extraEnv": [{"name": "QUIRE_PRIORITY_API_KEY", "value": "sk-secret"}]}),
    ("extraEnv", {"extraEnv": [{"name": "QUIRE_SIGNING_KEY", "value": "0123456789abcdef"}]}),
    ("extraArgs", {"extraArgs": ["--store-url=postgresql://me:secret@host/db"]}),
    ("extraEnv", {"extraEnv": [{"name": "QUIRE_STORE_URL", "value": "postgresql://host/db"}]}),
    ("extraEnv", {"extraEnv": [{"name": "QUIRE_API_KEY", "value": "sk-secret"}]}),
    ("extraEnv", {"extraEnv": {"QUIRE_LOG_LEVEL": "debug"}}),
    # By the schema, for what Kubernetes would refuse later
    ("memory", {"resources": {"limits": {"memory": "4GB"}}}),
    ("memory", {"resources": {"requests": {"memory": -1}}}),
    ("cpu", {"dashboard": {"resources": {"requests": {"cpu": "two"}}}}),
    ("tolerations", {"tolerations": [{"key": "a", "operater": "Exists"}]}),
    ("tolerations", {"dashboard": {"tolerations": [{"effect": "NoScheduling"}]}}),
    ("affinity", {"affinity": {"nodeAfinity": {}}}),
    ("topologySpreadConstraints", {"topologySpreadConstraints": [{"maxSkew": 1}]}),
    ("podLabels", {"podLabels": {"team": "a b"}}),
    ("podLabels", {"podLabels": {"a b": "team"}}),
    ("nodeSelector", {"nodeSelector": {"disk": "-fast"}}),
    ("podAnnotations", {"podAnnotations": {"example.com/a/b": "c"}}),
    ("repository", {"image": {"repository": "my image"}}),
    ("repository", {"image": {"repository": "quire:latest"}}),
    ("registry", {"image": {"registry": "https://r.example"}}),
    ("imageRegistry", {"global": {"imageRegistry": "r.example/"}}),
    ("extraVolumes", {"extraVolumes": [{"name": "My_Volume", "emptyDir": {}}]}),
    ("extraVolumeMounts", {"extraVolumeMounts": [{"name": "a", "mountpath": "/a"}]}),
    ("extraVolumeMounts", {"extraVolumeMounts": [{"name": "a", "mountPath": "data"}]}),
    ("extraEnv", {"extraEnv": [{"name": "A B", "value": "c"}]}),
    ("extraEnv", {"extraEnv": [{"name": "QUIRE_PORT", "value": "9000"}]}),
    ("path", {"model": {"path": "/models/../etc"}}),
    ("mountPath", {"model": {"mountPath": "/models/./a"}}),
    ("home", {"scratch": {"home": "4GB"}}),
    ("ttft", {"slo": {"ttft": 1.7}}),
    ("maxBodyBytes", {"api": {"maxBodyBytes": 1}}),
    ("allowedOrigins", {"api": {"allowedOrigins": ["https://a.example,https://b.example"]}}),
    # By contradiction
    ("service.ipFamilyPolicy", {"service": {"ipFamilies": ["IPv4", "IPv6"]}}),
    (
        "service.ipFamilyPolicy",
        {"service": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}},
    ),
    (
        "dashboard.service.ipFamilyPolicy",
        {"dashboard": {"service": {"ipFamilies": ["IPv4", "IPv6"]}}},
    ),
    ("resources.limits.memory", {"resources": {"limits": {"memory": "3Gi"}}}),
    ("resources.limits.cpu", {"resources": {"limits": {"cpu": "1999m"}}}),
    (
        "dashboard.resources.limits.memory",
        {"dashboard": {"resources": {"limits": {"memory": 1000000}}}},
    ),
    ("sharedMemory.size", {"sharedMemory": {"size": "5Gi"}}),
    ("gpu.count", {"gpu": {"count": 8}}),
    ("engine.kvCacheMemory", {"gpu": {"count": 1}, "engine": {"kvCacheMemory": 1 << 30}}),
    (
        "engine.quantization",
        {
            "gpu": {"count": 2},
            "model": {"path": "/model"},
            "engine": {"quantization": "int8"},
        },
    ),
    ("engine.gpuMemoryUtilization", {"engine": {"gpuMemoryUtilization": 0.9}}),
    (
        "extraArgs: --tensor-parallel-size",
        {"gpu": {"count": 1}, "extraArgs": ["--tensor-parallel-size", "4"]},
    ),
    ("extraVolumes", {"extraVolumes": [{"name": name, "emptyDir": {}} for name in ("a", "a")]}),
    *(
        ("extraVolumes", {"extraVolumes": [{"name": name, "emptyDir": {}}]})
        for name in ("home", "tmp", "shm", "model", "store", "cache")
    ),
    ("extraVolumeMounts", {"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]}),
    *(
        (
            "extraVolumeMounts",
            {
                "model": {"existingClaim": "models", "path": "/models/a"},
                "extraVolumes": [{"name": "a", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "a", "mountPath": path}],
            },
        )
        for path in ("/tmp", "/home/quire", "/home/quire/", "/dev/shm", "/models")
    ),
    ("model.mountPath", {"model": {"mountPath": "/tmp"}}),
    (
        "store.existingClaim",
        {
            "store": {"existingClaim": "responses"},
            "updateStrategy": {"type": "Recreate"},
            "replicaCount": None,
        },
    ),
    (
        "store.existingClaim",
        {
            "store": {"existingClaim": "responses"},
            "updateStrategy": {"type": "Recreate"},
            "autoscaling": {"hpa": {"enabled": True}},
        },
    ),
    (
        "autoscaling.keda.enabled",
        {
            "autoscaling": {
                "hpa": {"enabled": True},
                "keda": {"enabled": True, "prometheusAddress": "http://p:9090"},
            }
        },
    ),
    ("autoscaling.keda.prometheusAddress", {"autoscaling": {"keda": {"enabled": True}}}),
    (
        "autoscaling.keda.enabled",
        {"autoscaling": {"keda": {"enabled": True, "prometheusAddress": "http://p:9090"}}},
    ),
    ("autoscaling.minReplicas", {"autoscaling": {"minReplicas": 5}}),
    (
        "metrics.podMonitor.enabled",
        {"metrics": {name: {"enabled": True} for name in ("serviceMonitor", "podMonitor")}},
    ),
    (
        "metrics.podMonitor.existingSecret",
        {"metrics": {"podMonitor": {"enabled": True}}, "auth": {"existingSecret": "keys"}},
    ),
    *(
        ("metrics.podMonitor.existingSecret", {"metrics": {"podMonitor": {"enabled": True}}} | keys)
        for keys in KEYS_OF_ONES_OWN
    ),
    *(
        (
            "gateway.inferencePool.enabled",
            {
                "gateway": {"inferencePool": {"enabled": True, "endpointPicker": "picker"}},
                "api": {"metricsAliases": "vllm", **keys.get("api", {})},
            }
            | {name: value for name, value in keys.items() if name != "api"},
        )
        for keys in KEYS_OF_ONES_OWN
    ),
    ("gateway.httpRoute.parentRefs", {"gateway": {"httpRoute": {"enabled": True}}}),
    (
        "gateway.inferencePool.endpointPicker",
        {"gateway": {"inferencePool": {"enabled": True}}, "api": {"metricsAliases": "vllm"}},
    ),
    (
        "gateway.inferencePool.enabled",
        {"gateway": {"inferencePool": {"enabled": True, "endpointPicker": "picker"}}},
    ),
    (
        "gateway.inferencePool.enabled",
        {
            "gateway": {"inferencePool": {"enabled": True, "endpointPicker": "picker"}},
            "api": {"metricsAliases": "vllm"},
            "auth": {"existingSecret": "keys"},
        },
    ),
    ("apiFrom", {"networkPolicy": {"apiFrom": [{}]}}),
    ("cidr", {"networkPolicy": {"database": {"to": [{"ipBlock": {"cidr": "10.0.0.1"}}]}}}),
    ("controller", {"ingress": {"controller": "traefik"}}),
    ("hosts", {"ingress": {"hosts": ["https://llm.example.com"]}}),
    ("sidecars", {"sidecars": [{"name": "shipper"}]}),
    ("sidecars", {"sidecars": [{"name": "quire", "image": "x"}]}),
    ("sidecars", {"sidecars": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]}),
    ("sidecars", {"model": {"name": "a/b"}, "sidecars": [{"name": "model", "image": "x"}]}),
    ("initContainers", {"initContainers": [{"name": "quire", "image": "x"}]}),
    (
        "sidecars: another of initContainers",
        {
            "initContainers": [{"name": "a", "image": "x"}],
            "sidecars": [{"name": "a", "image": "x"}],
        },
    ),
    ("api.auditLog", {"api": {"auditLog": "/var/log/a.log"}}),
    ("api.auditLog", {"api": {"auditLog": "/tmpx/a.log"}}),
    ("api.auditLog", {"api": {"auditLog": "/models/a.log"}}),
    ("api.auditLog", {"api": {"auditLog": "/var/log/a.log"}, **mounted("/var/log", True)}),
    ("api.auditLog", {"api": {"auditLog": "/tmp/x/a.log"}, **mounted("/tmp/x/", True)}),
    ("dnsConfig", {"dnsConfig": {"nameserver": ["192.0.2.53"]}}),
    ("model.path", {"model": {"existingClaim": "models"}}),
    ("model.path", {"model": {"existingClaim": "models", "path": "/modelsx/a"}}),
    ("gpu.count", {"model": {"path": "simulated:h100-8b"}, "gpu": {"count": 1}}),
    ("gpu.count", {"gpu": {"count": 3}, "dataParallelSize": 2}),
    ("gpu.count", {"gpu": {"count": 1}, "dataParallelSize": 2}),
    ("updateStrategy.maxUnavailable", {"updateStrategy": {"maxSurge": 0}}),
    ("updateStrategy.maxUnavailable", {"updateStrategy": {"maxSurge": "0%"}}),
    ("store.existingClaim", {"store": {"existingClaim": "responses"}}),
    (
        "store.existingClaim",
        {
            "store": {"existingClaim": "responses", "existingSecret": "database"},
            "updateStrategy": {"type": "Recreate"},
        },
    ),
    (
        "store.existingClaim",
        {
            "store": {"existingClaim": "responses"},
            "updateStrategy": {"type": "Recreate"},
            "replicaCount": 2,
        },
    ),
    ("metrics.serviceMonitor.scrapeTimeout", {"metrics": {"serviceMonitor": {"interval": "5s"}}}),
    ("probes.readiness.timeoutSeconds", {"probes": {"readiness": {"timeoutSeconds": 9}}}),
    ("gpu.count", {"resources": {"limits": {"nvidia.com/gpu": 1}}}),
    (
        "extraEnv",
        {
            "tracing": {"endpoint": "http://otel:4317"},
            "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://x"}],
        },
    ),
]


@pytest.mark.parametrize(("key", "wrong"), WRONG, ids=[json.dumps(wrong) for _, wrong in WRONG])
def test_wrong_values_are_refused_with_the_key_named(helm: Helm, key: str, wrong: Values) -> None:
    with pytest.raises(RefusedError, match=re.escape(key)):
        helm.render(wrong)


@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("/home/quire/a.log", {}),
        ("/tmp/a.log", {}),
        ("a.log", {}),
        ("/dev/stdout", {}),
        ("/var/log/a.log", mounted("/var/log/", False)),
        ("/var/log/a.log", {"securityContext": {"readOnlyRootFilesystem": False}}),
    ],
)
def test_the_audit_log_may_be_where_the_server_can_write(
    helm: Helm, file: str, more: Values
) -> None:
    assert helm.render({"api": {"auditLog": file}, **more})


def test_without_a_model_by_its_name_a_container_may_be_named_model(helm: Helm) -> None:
    assert helm.render({"initContainers": [{"name": "model", "image": "x"}]})


def test_a_release_name_that_no_service_may_have_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match="fullnameOverride"):
        helm.render({}, release="0day")
    assert helm.render({"fullnameOverride": "day"}, release="0day")


def objects_in(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema that a user can set, with its dotted name."""
    for name, part in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here, part
        yield from objects_in(part, here)


def test_the_schema_is_a_schema_and_the_defaults_fit_it() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(DEFAULTS)


def test_the_schema_is_closed_and_described_everywhere() -> None:
    assert SCHEMA["additionalProperties"] is False
    for name, part in objects_in(SCHEMA):
        if "properties" in part and name != "global":  # other charts' keys are there, too
            assert part["additionalProperties"] is False, name
        assert part.get("description"), name


def test_defaults_and_schema_name_the_same_keys() -> None:
    def names(tree: Values, path: str = "") -> set[str]:
        found: set[str] = set()
        for key, value in tree.items():
            here = f"{path}.{key}" if path else key
            found.add(here)
            if isinstance(value, dict):
                found |= names(value, here)
        return found

    described = {name for name, _ in objects_in(SCHEMA)}
    open_ended = tuple(
        f"{name}."
        for name, part in objects_in(SCHEMA)
        if part.get("type") == "object" and "properties" not in part
    )
    set_by_default = {name for name in names(DEFAULTS) if not name.startswith(open_ended)}
    optional = {"resources.claims", "dashboard.resources.claims"}
    ours = {name for name in described - optional if not name.startswith("global")}
    assert set_by_default == ours


def test_what_is_generated_is_current() -> None:
    """`make docs` writes the settings of the engine, and the table of values in the README."""
    assert generate.stale() == []
