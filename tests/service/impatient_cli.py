"""``python -m tests.service.impatient_cli serve``: the server, which hardly waits before it
starts a dead child again."""

from __future__ import annotations

import sys

from service import cli
from service.supervision import restarts

if __name__ == "__main__":
    restarts.FIRST_DELAY_SECONDS = 0.01
    restarts.LONGEST_DELAY_SECONDS = 0.2
    sys.exit(cli.main())
