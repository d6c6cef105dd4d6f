"""``python -m tests.chart.snapshots``: writes what the chart makes of each values file under ci/.

The snapshots are committed, so that a change of the chart shows what it changes in a cluster. Files
that are generated elsewhere (rules, boards, the script of `helm test`) are named by their digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.chart.helms import CHART, Helm4, Manifest, objects

FOLDER = Path(__file__).with_name("snapshots")
_LONG = 2000


def path(case: str) -> Path:
    return FOLDER / f"{case}.yaml"


def text(found: list[Manifest]) -> str:
    short: list[Manifest] = _shortened(found)
    for each in short:
        each["metadata"].get("labels", {}).pop("helm.sh/chart", None)
        if each["kind"] == "PrometheusRule":
            each["spec"] = _digest(json.dumps(each["spec"], sort_keys=True))
    documents: str = yaml.safe_dump_all(short, sort_keys=True, width=120)
    return documents


def _shortened(value: Any) -> Any:
    """Return a copy in which long texts are named by their digest."""
    if isinstance(value, dict):
        return {key: _shortened(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shortened(part) for part in value]
    return _digest(value) if isinstance(value, str) and len(value) > _LONG else value


def _digest(long: str) -> str:
    return f"sha256 {hashlib.sha256(long.encode()).hexdigest()}"


def write(render: Callable[[Any], dict[str, str]]) -> None:
    FOLDER.mkdir(exist_ok=True)
    cases = {file.name.removesuffix("-values.yaml"): file for file in CHART.glob("ci/*.yaml")}
    for old in FOLDER.glob("*.yaml"):
        if old.stem not in cases:
            old.unlink()
    for case, file in cases.items():
        path(case).write_text(text(objects(render(yaml.safe_load(file.read_text())))))


if __name__ == "__main__":
    helm = Helm4()
    write(helm.render)
    helm.close()
