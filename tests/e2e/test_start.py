"""What a start costs the second time: nothing is compiled again, and the parts add up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.start import PARTS, CountingCompilers, start

pytestmark = [pytest.mark.debian, pytest.mark.integration]


@pytest.mark.proves("start", "process")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_second_start_with_the_cache_compiles_nothing(tmp_path: Path) -> None:
    compilers, cache = CountingCompilers(tmp_path), tmp_path / "cache"
    arguments = ["--device", "cpu", "--threads", "1", "--admin-port", "0"]
    first = start(arguments, cache, compilers)
    kept = {path: path.stat().st_mtime_ns for path in cache.rglob("*.so")}
    second = start(arguments, cache, compilers)
    print({name: round(seconds, 2) for name, seconds in second.items()})
    assert first["compiled"] > 0
    assert kept
    assert second["compiled"] == 0
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.so")} == kept
    assert sum(second[part] for part in PARTS) == pytest.approx(second["all"])
    assert all(second[part] >= 0 for part in PARTS)
