"""``python -m helm.generate [--check]``: writes the chart's parts that depend on the server's
settings, and the table of values in its README."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml

from helm import defaults, settings, values_table
from helm.rules import marked_rules
from helm.values_table import CHART
from observability import catalogue
from observability.boards.table import board_files

SCHEMA = CHART / "values.schema.json"
VALUES = CHART / "values.yaml"
TEMPLATE = CHART / "templates" / "_server.tpl"
DEFAULTS = CHART / "templates" / "_defaults.tpl"
README = CHART / "README.md"
FILES = CHART / "files"
# An alert rule counts in the buckets of a histogram: an objective is one of their bounds.
OBJECTIVES = {
    "ttft": catalogue.TIME_TO_FIRST_TOKEN,
    "itl": catalogue.INTER_TOKEN_LATENCY,
}
# Which settings have an effect where.
CASES = {
    CHART / "ci" / f"settings-{block}-{device}-values.yaml": (block, device)
    for block, device in (("engine", "cpu"), ("engine", "gpu"), ("api", "cpu"))
}

_TEMPLATE_MARKS = (
    "{{- /* written by python -m helm.generate */ -}}\n",
    "{{- /* end of what is written */ -}}\n",
)


def _values_marks(block: str) -> tuple[str, str]:
    return f"# ({block}: written by python -m helm.generate)\n", f"# (end of {block})\n"


def files() -> dict[Path, str]:
    """Return the up-to-date content of each file with generated parts."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    values = VALUES.read_text(encoding="utf-8")
    properties = schema["properties"]
    for block in settings.TABLES:
        properties[block]["properties"] = settings.block_schema(block)
        values = _between(values, _values_marks(block), settings.values_block(block))
    for name, metric in OBJECTIVES.items():
        properties["slo"]["properties"][name]["enum"] = [*metric.buckets, None]
    properties["extraArgs"]["items"]["not"]["pattern"] = settings.refused_arguments()
    variables = properties["extraEnv"]["items"]
    variables["properties"]["name"]["not"]["enum"] = settings.refused_variables()
    variables["not"]["properties"]["name"]["enum"] = settings.secrets_by_reference()
    table = values_table.table(schema, yaml.safe_load(values))
    return {
        SCHEMA: json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        VALUES: values,
        TEMPLATE: _between(
            TEMPLATE.read_text(encoding="utf-8"), _TEMPLATE_MARKS, settings.template_block()
        ),
        DEFAULTS: defaults.template(schema, yaml.safe_load(values)),
        README: _between(
            README.read_text(encoding="utf-8"), (f"{values_table.BEGIN}\n", values_table.END), table
        ),
        **{path: settings.case(*case) for path, case in CASES.items()},
        FILES / "rules.yaml": marked_rules(),
        **{FILES / "boards" / path.name: text for path, text in board_files().items()},
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
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in (found := stale()):
        print(f"{path} is stale: run python -m helm.generate", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
