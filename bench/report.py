"""How every benchmark reports its results: a table for people, JSON for machines."""

from __future__ import annotations

import datetime
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def versions(*packages: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print rows with the same keys; floats are shown with three significant digits."""
    if not rows:
        return
    cells = [[_cell(row.get(key)) for key in rows[0]] for row in rows]
    widths = [
        max(len(key), *(len(line[i]) for line in cells)) for i, key in enumerate(rows[0].keys())
    ]
    print("  ".join(key.ljust(width) for key, width in zip(rows[0], widths, strict=True)))
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def write_result(
    name: str, rows: list[dict[str, Any]], *, device: str | None = None, **facts: Any
) -> Path:
    """Write bench/results/<name>.json with date, device and versions; return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    result = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device or cpu_name(),
        "versions": versions("torch", "transformers", "litestar", "granian", "msgspec"),
        **facts,
        "rows": rows,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
