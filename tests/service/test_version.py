"""The version that Quire reports is the one that it was built with."""

from __future__ import annotations

import tomllib
from pathlib import Path

from service.version import VERSION


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert VERSION in (project["version"], "0+unknown")
