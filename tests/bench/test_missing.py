"""A benchmark that lacks a package says how to get it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.missing import hint

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("", name="pytest"), "needs pytest, which is not installed: run `make"),
        (ModuleNotFoundError("", name="gguf.quants"), "needs gguf, .* run `make develop` first"),
        (ModuleNotFoundError("", name="llama_cpp"), "run `make peers` first"),
        (FileNotFoundError(2, "", "/x/build/peers/bin/python"), "run `make peers` first"),
    ],
)
def test_a_missing_package_has_its_target(error: Exception, words: str) -> None:
    assert re.search(words, hint(error) or "")


@pytest.mark.parametrize(
    "error", [ValueError("x"), ImportError("x"), ModuleNotFoundError("", name="json.nothing")]
)
def test_other_errors_are_not_explained(error: Exception) -> None:
    assert hint(error) is None


def test_the_error_is_a_sentence() -> None:
    hidden = "import sys, runpy; sys.modules['pytest'] = None; sys.argv[0] = '-m'; "
    code = f"{hidden}runpy.run_module('bench.viewers', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "bench: this benchmark needs pytest, which is not installed: run `make develop` first\n"
    )
