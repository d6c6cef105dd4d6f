"""Writes the table of values in the chart's README: ``python -m helm.values_table``.

Keys and meanings come from values.schema.json, defaults from values.yaml. A test compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "quire"
BEGIN = "<!-- values: written by python -m helm.values_table -->"
END = "<!-- end of values -->"


def rows(
    schema: dict[str, Any], defaults: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, str, str]]:
    """(dotted key, default as JSON, description) of each value a user can set."""
    for name, part in schema["properties"].items():
        if name not in defaults:
            continue
        key = f"{path}{name}"
        # Free-form objects, such as resources, are one value.
        if "properties" in part and "requests" not in part["properties"]:
            yield from rows(part, defaults[name], f"{key}.")
        else:
            yield key, json.dumps(defaults[name]), part["description"]


def table(schema: dict[str, Any], defaults: dict[str, Any]) -> str:
    """The Markdown table."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, default, meaning in rows(schema, defaults):
        escaped = meaning.replace("|", "\\|")
        lines.append(f"| `{key}` | `{default}` | {escaped} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    readme = CHART / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{table(schema, defaults)}{END}{after}")


if __name__ == "__main__":
    main()
