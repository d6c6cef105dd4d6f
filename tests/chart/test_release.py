"""The chart's version rises with every change of values or templates, and each has its page."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from helm.release import UPGRADING, fingerprint, problem, released, version
from tests.chart.helms import CHART
from tests.chart.released import archives

pytestmark = pytest.mark.chart


def test_the_version_is_higher_than_every_released_one_with_other_content() -> None:
    found = problem(version(), fingerprint(), released(), UPGRADING.read_text())
    assert found is None, found


def test_the_released_charts_are_what_their_fingerprints_say(tmp_path: Path) -> None:
    for name, print_ in released().items():
        with tarfile.open(archives()[name]) as archive:
            archive.extractall(tmp_path / name, filter="data")
        assert fingerprint(tmp_path / name / "quire") == print_
        assert version(tmp_path / name / "quire") == name


@pytest.mark.parametrize(
    ("this", "print_", "wrong"),
    [
        ("0.2.0", "b", None),
        ("0.1.0", "a", None),
        ("0.10.0", "b", "no section"),
        ("0.1.0", "b", "raise the version"),
        ("0.0.9", "b", "lower"),
    ],
)
def test_what_needs_a_higher_version(this: str, print_: str, wrong: str | None) -> None:
    upgrading = "# Upgrading\n\n## 0.2.0\n\n## 0.1.0\n"
    found = problem(this, print_, {"0.1.0": "a"}, upgrading)
    assert found is None if wrong is None else wrong in (found or "")


@pytest.mark.parametrize(
    "part", ["values.yaml", "values.schema.json", "templates/service.yaml", "templates/NOTES.txt"]
)
def test_the_fingerprint_covers_values_and_templates(part: str, tmp_path: Path) -> None:
    chart = tmp_path / "quire"
    shutil.copytree(CHART, chart)
    assert fingerprint(chart) == fingerprint()
    (chart / part).write_text((chart / part).read_text() + "\n")
    assert fingerprint(chart) != fingerprint()
