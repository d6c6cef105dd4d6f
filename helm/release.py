"""``python -m helm.release``: notes that the chart's version is released.

released.json has the fingerprint of each released version: after it, a change of values or
templates needs a higher version and its section in docs/upgrading.md (tests/chart/test_release.py).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import yaml

from helm.values_table import CHART

RELEASED = Path(__file__).with_name("released.json")
UPGRADING = CHART.parents[1] / "docs" / "upgrading.md"
# What a release of the chart consists of, besides its version.
_PARTS = ("values.yaml", "values.schema.json", "templates/*", "files/**/*")


def version(chart: Path = CHART) -> str:
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    return str(about["version"])


def fingerprint(chart: Path = CHART) -> str:
    """Return a digest of the chart's values and templates."""
    paths = sorted({path for part in _PARTS for path in chart.glob(part) if path.is_file()})
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(chart).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def released() -> dict[str, str]:
    """Return the fingerprint of each released version, the oldest first."""
    found: dict[str, str] = json.loads(RELEASED.read_text(encoding="utf-8"))
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Return a version's numbers, by which versions are in order."""
    return tuple(int(part) for part in text.split("."))


def problem(this: str, print_: str, before: dict[str, str], upgrading: str) -> str | None:
    """Return what forbids version ``this`` with the fingerprint ``print_``, if anything does.

    ``before``: the released versions. ``upgrading``: the text of docs/upgrading.md.
    """
    if before.get(this, print_) != print_:
        return f"{this} is released, and values or templates have changed: raise the version"
    if before and numbers(this) < max(map(numbers, before)):
        return f"{this} is lower than a released version"
    if f"\n## {this}\n" not in upgrading:
        return f"docs/upgrading.md has no section '## {this}'"
    return None


def main() -> int:
    """Add the chart's version to released.json. Return 1 if it may not be released."""
    this, print_ = version(), fingerprint()
    before = released()
    wrong = problem(this, print_, before, UPGRADING.read_text(encoding="utf-8"))
    if wrong:
        print(wrong, file=sys.stderr)
        return 1
    RELEASED.write_text(json.dumps({**before, this: print_}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
