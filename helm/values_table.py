"""The table of values in the chart's README; ``helm.generate`` writes it.

Keys and meanings come from values.schema.json, defaults from values.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helm.defaults import closed

CHART = Path(__file__).parent / "quire"
BEGIN = "<!-- values: written by python -m helm.generate -->"
END = "<!-- end of values -->"


def rows(
    schema: dict[str, Any], defaults: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yield (dotted key, default as JSON, description) of each value a user can set."""
    for name, part in schema["properties"].items():
        if name not in defaults:
            continue
        key = f"{path}{name}"
        # A free-form object, such as resources, is one value.
        if closed(part):
            yield from rows(part, defaults[name], f"{key}.")
        else:
            yield key, json.dumps(defaults[name]), part["description"]


def table(schema: dict[str, Any], defaults: dict[str, Any]) -> str:
    """Return the Markdown table."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, default, meaning in rows(schema, defaults):
        escaped = meaning.replace("|", "\\|")
        lines.append(f"| `{key}` | `{default}` | {escaped} |")
    return "\n".join(lines) + "\n"
