"""Random values from the schema: of each set, a few of all that can be set."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import yaml

from helm.defaults import closed
from tests.chart.helms import CHART, Values

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
MOST_SET = 14

Path_ = tuple[str, ...]


def leaves(schema: dict[str, Any], path: Path_ = ()) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Yield the path and schema of everything that is one value."""
    for name, part in schema["properties"].items():
        if closed(part):
            yield from leaves(part, (*path, name))
        elif name not in ("extraObjects", "global"):
            yield (*path, name), part


def said_in_cases() -> dict[Path_, list[Any]]:
    """Return what the files under ci/ set each leaf to: the only source of free-form values."""
    found: dict[Path_, list[Any]] = {}
    for file in sorted(CHART.glob("ci/*.yaml")):
        values = yaml.safe_load(file.read_text())
        for path, _ in leaves(SCHEMA):
            part: Any = values
            for name in path:
                part = part.get(name) if isinstance(part, dict) else None
            if part is not None:
                found.setdefault(path, []).append(part)
    return found


def from_schema(part: dict[str, Any], chance: random.Random) -> list[Any]:
    """Return values that a scalar's schema allows: its bounds, and something between."""
    if "enum" in part:
        return [value for value in part["enum"] if value is not None]
    kinds = part.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "boolean" in kinds:
        return [True, False]
    if "integer" in kinds and "minimum" in part:
        low = part["minimum"]
        high = min(part.get("maximum", low + 1000), low + 100_000)
        return [low, high, chance.randint(low, high)]
    if "number" in kinds and "maximum" in part:
        low = part.get("minimum", part.get("exclusiveMinimum", 0))
        return [part["maximum"], low + (part["maximum"] - low) / 4]
    return []


def random_values(seed: int) -> Values:
    """Return a set of values; the schema allows each, but two may contradict each other."""
    chance = random.Random(seed)
    said = said_in_cases()
    every = list(leaves(SCHEMA))
    values: Values = {}
    for path, part in chance.sample(every, chance.randint(1, MOST_SET)):
        choices = from_schema(part, chance) + said.get(path, [])
        if not choices:
            continue
        place = values
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = chance.choice(choices)
    return values
