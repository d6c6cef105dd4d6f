"""Run the tests that failed once more, without the others: `python -m tests.again`.

CI does this (Makefile). A test that fails in the whole run and passes here is flaky: it depends on
load, chance or other tests. It is printed, because the test or the product must be fixed, but it
does not block the change. More than `MAX_FAILED` failures are not flakiness, and a file that cannot
be imported has no test to run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
MAX_FAILED: Final = 3


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MAX_FAILED or not all("::" in test for test in failed):
        return 1
    print(f"Running again, alone: {', '.join(failed)}", flush=True)
    code = subprocess.call([sys.executable, "-m", "pytest", "-q", *failed])
    if code == 0:
        print(f"FLAKY (failed in the whole run, passed alone): {', '.join(failed)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
