"""In CI a few failed tests are run again, and pass if they pass alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MAX_FUNCTIONS

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("failed", "code", "reported"),
    [
        (["test_it.py::test_passes"], 0, True),
        (["test_it.py::test_passes", "test_it.py::test_fails"], 1, False),
        ([f"test_it.py::test_many[{n}]" for n in range(4)], 0, True),  # their fixture failed
        ([f"test_it.py::test_number_{n}" for n in range(MAX_FUNCTIONS + 1)], 1, False),
        (["test_it.py::test_skips"], 1, False),
        (["test_it.py"], 1, False),  # could not be imported
        ([], 1, False),  # pytest itself failed
    ],
)
def test_a_few_that_pass_alone_are_reported_and_pass(
    failed: list[str], code: int, reported: bool, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "def test_skips(): pytest.skip()\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_many(n): pass\n"
        + "".join(f"def test_number_{n}(): pass\n" for n in range(MAX_FUNCTIONS + 1))
    )
    cache = tmp_path / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    run = subprocess.run(
        [sys.executable, "-m", "tests.again"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert ("FLAKY" in run.stdout) is reported
