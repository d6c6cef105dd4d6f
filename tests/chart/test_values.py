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

# The key a user must find in the message, and values that are wrong about it.
WRONG: list[tuple[str, Values]] = [
    # By the schema
    ("replicas", {"replicas": 3}),
    ("fullnameOverride", {"fullnameOverride": "0day"}),
    ("maxModelLength", {"engine": {"maxModelLength": 4096}}),
    ("replicaCount", {"replicaCount": "two"}),
    ("replicaCount", {"replicaCount": -1}),
    ("replicaCount", {"replicaCount": None}),
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
    # By contradiction
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
        if "properties" in part:
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
    optional = {"global", "resources.claims", "dashboard.resources.claims"}
    assert set_by_default == described - optional


def test_what_is_generated_is_current() -> None:
    """`make docs` writes the settings of the engine, and the table of values in the README."""
    assert generate.stale() == []
