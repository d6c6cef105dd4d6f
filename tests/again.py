"""Run the tests that failed once more, without the others: `python -m tests.again`.

CI does this (Makefile). A test that fails in the whole run and passes here is flaky: it depends on
load, chance or other tests. It is printed, because the test or the product must be fixed, but it
does not block the change. Failures of more than `MAX_FUNCTIONS` test functions are not flakiness (a
fixture that fails once fails all parameters of a function), and a file that cannot be imported has
no test to run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
MAX_FUNCTIONS: Final = 3


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    functions = {test.partition("[")[0] for test in failed}
    if not 0 < len(functions) <= MAX_FUNCTIONS or not all("::" in test for test in failed):
        return 1
    print(f"Running again, alone: {', '.join(failed)}", flush=True)
    with tempfile.NamedTemporaryFile() as report:
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report.name}", *failed]
        if code := subprocess.call(command):
            return code
        skipped = ElementTree.parse(report.name).findall(".//skipped")  # noqa: S314 - we wrote it
    if skipped:
        print("A skipped test has not passed.")
        return 1
    print(f"FLAKY (failed in the whole run, passed alone): {', '.join(failed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
