"""How the Kubernetes API merges a change into an object: strategic merge patches, and server-side
apply. Lists of objects are merged by their key, as the API's types say; others are replaced."""

from __future__ import annotations

import copy
from typing import Any

# By a list's field: what identifies an element.
_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}


def _key(field: str, element: Any) -> Any:
    if field == "ports":  # of a container, or of a Service; a rule's are replaced
        for name in ("containerPort", "port"):
            if isinstance(element, dict) and name in element:
                return element[name], element.get("protocol", "TCP")
    names = _KEYS.get(field)
    if names is None or not isinstance(element, dict):
        return None
    return tuple(element.get(name) for name in names)


def is_keyed(field: str, elements: list[Any]) -> bool:
    return bool(elements) and all(_key(field, each) is not None for each in elements)


def strategic(base: Any, patch: Any, field: str = "") -> Any:
    """Return ``base`` with a strategic merge patch applied."""
    if isinstance(patch, dict):
        if patch.get("$patch") == "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        found = dict(base) if isinstance(base, dict) else {}
        if "$retainKeys" in patch:
            found = {key: value for key, value in found.items() if key in patch["$retainKeys"]}
        for key, value in patch.items():
            if key.startswith("$setElementOrder/") or key == "$retainKeys":
                continue
            if key.startswith("$deleteFromPrimitiveList/"):
                name = key.split("/", 1)[1]
                found[name] = [each for each in found.get(name, []) if each not in value]
            elif value is None:
                found.pop(key, None)
            else:
                found[key] = strategic(found.get(key), value, key)
        for key, order in patch.items():
            if key.startswith("$setElementOrder/"):
                name = key.split("/", 1)[1]
                found[name] = _ordered(name, found.get(name, []), order)
        return found
    if isinstance(patch, list) and is_keyed(field, patch):
        return _by_key(base if isinstance(base, list) else [], patch, field)
    return copy.deepcopy(patch)


def _by_key(base: list[Any], patch: list[Any], field: str) -> list[Any]:
    found = {_key(field, each): each for each in base}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(_key(field, each), None)
        else:
            found[_key(field, each)] = strategic(found.get(_key(field, each)), each)
    return list(found.values())


def _ordered(field: str, elements: list[Any], order: list[Any]) -> list[Any]:
    places = {repr(_key(field, each) or each): place for place, each in enumerate(order)}
    return sorted(elements, key=lambda each: places.get(repr(_key(field, each) or each), 1 << 30))


def applied(live: Any, before: Any, now: Any, others: list[Any], field: str = "") -> Any:
    """Return ``live`` after a manager that had applied ``before`` applies ``now``: what it no
    longer names is removed, unless one of ``others`` has applied it, too."""
    if isinstance(now, dict):
        found = dict(live) if isinstance(live, dict) else {}
        old = before if isinstance(before, dict) else {}
        theirs = [each for each in others if isinstance(each, dict)]
        for key in old.keys() - now.keys():
            if not any(key in each for each in theirs):
                found.pop(key, None)
        for key, value in now.items():
            nested = [each[key] for each in theirs if key in each]
            found[key] = applied(found.get(key), old.get(key), value, nested, key)
        return found
    if isinstance(now, list) and is_keyed(field, now):
        had = {_key(field, each): each for each in before or []}
        have = {_key(field, each): each for each in live or []}
        named = {_key(field, each) for each in now}
        found = {key: each for key, each in have.items() if key in named or key not in had}
        for each in now:
            key = _key(field, each)
            found[key] = applied(have.get(key), had.get(key), each, [])
        return list(found.values())
    return copy.deepcopy(now)


def conflicts(now: Any, other: Any, path: str = "") -> list[str]:
    """Return the fields that both name, with different values."""
    if isinstance(now, dict) and isinstance(other, dict):
        return [
            found
            for key in now.keys() & other.keys()
            for found in conflicts(now[key], other[key], f"{path}.{key}")
        ]
    return [] if now == other else [path]
