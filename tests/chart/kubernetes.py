"""Is an object one that Kubernetes, or the owner of its kind, would accept?"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

from tests.chart.helms import Manifest

# An old one, one in the middle, the newest.
VERSIONS = ("1.28", "1.31", "1.37")
_CRDS = Path(__file__).with_name("crds")


class NotAcceptedError(Exception):
    """Kubernetes would refuse the object; the text says why."""


@cache
def _own_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    found = {}
    for path in _CRDS.glob("*.json"):
        schema = json.loads(path.read_text())
        about = schema["properties"]
        found[about["apiVersion"]["const"], about["kind"]["const"]] = schema
    return found


def check(each: Manifest, version: str) -> None:
    """Raise NotAcceptedError if this version's schemas have a complaint, or there is no schema of
    the object's kind."""
    if complaint := _complaint(json.dumps(each, sort_keys=True), version):
        raise NotAcceptedError(complaint)


def pod_templates(each: Manifest) -> list[Any]:
    """The templates of a LeaderWorkerSet's pods; none of another object."""
    group = each.get("spec", {}).get("leaderWorkerTemplate", {})
    return [group[name] for name in ("leaderTemplate", "workerTemplate") if name in group]


@cache  # many cases have the same objects
def _complaint(text: str, version: str) -> str:
    each = json.loads(text)
    schema = _own_schemas().get((each["apiVersion"], each["kind"]))
    try:
        if schema is not None:
            jsonschema.Draft202012Validator(schema).validate(each)
            for template in pod_templates(each):
                about = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "each"}}
                kubernetes_validate.validate(about | {"template": template}, version, strict=True)
        else:
            kubernetes_validate.validate(each, version, strict=True)
    except (
        jsonschema.ValidationError,
        kubernetes_validate.ValidationError,
        kubernetes_validate.SchemaNotFoundError,
    ) as error:
        return f"{each['kind']} {each['metadata'].get('name')} on {version}: {error}"
    return ""
