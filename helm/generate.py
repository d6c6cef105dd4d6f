"""``python -m helm.generate [--check]``: writes the chart's parts that depend on the server's
settings, and the table of values in its README."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml

from helm import settings, values_table
from helm.values_table import CHART

SCHEMA = CHART / "values.schema.json"
VALUES = CHART / "values.yaml"
TEMPLATE = CHART / "templates" / "_server.tpl"
CASE = CHART / "ci" / "settings-values.yaml"
README = CHART / "README.md"

_VALUES_MARKS = ("# (written by python -m helm.generate)\n", "# (end)\n")
_TEMPLATE_MARKS = (
    "{{- /* written by python -m helm.generate */ -}}\n",
    "{{- /* end of what is written */ -}}\n",
)


def files() -> dict[Path, str]:
    """Return the up-to-date content of each file with generated parts."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    properties = schema["properties"]
    properties["engine"]["properties"] = settings.engine_schema()
    properties["extraArgs"]["items"]["not"]["pattern"] = settings.refused_arguments()
    by_reference = properties["extraEnv"]["items"]["not"]["properties"]["name"]
    by_reference["enum"] = settings.secrets_by_reference()
    values = _between(VALUES.read_text(encoding="utf-8"), _VALUES_MARKS, settings.values_block())
    table = values_table.table(schema, yaml.safe_load(values))
    return {
        SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        VALUES: values,
        TEMPLATE: _between(
            TEMPLATE.read_text(encoding="utf-8"), _TEMPLATE_MARKS, settings.flags_block()
        ),
        CASE: settings.case(),
        README: _between(
            README.read_text(encoding="utf-8"), (f"{values_table.BEGIN}\n", values_table.END), table
        ),
    }


def _between(text: str, marks: tuple[str, str], part: str) -> str:
    begin, end = marks
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}{part}{end}{after}"


def stale() -> list[Path]:
    """Return the files that are out of date."""
    return [
        path
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(argv: list[str]) -> int:
    """Write the files, or with ``--check`` only compare: exit status 1 if one is stale."""
    parser = argparse.ArgumentParser(prog="python -m helm.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    if not parser.parse_args(argv).check:
        for path, text in files().items():
            path.write_text(text, encoding="utf-8")
    for path in (found := stale()):
        print(f"{path} is stale: run python -m helm.generate", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
