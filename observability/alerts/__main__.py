"""``python -m observability.alerts [--ttft 1.5 …]``: prints the rules for other objectives."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from observability.alerts.files import RUNBOOK_URL, rules_text
from observability.objectives import Objectives


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m observability.alerts", description=__doc__)
    for field in fields(Objectives):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=float,
            default=field.default,
            help=f"default: {field.default}",
        )
    parser.add_argument("--runbook-url", default=RUNBOOK_URL, help="address of docs/alerts.md")
    options = vars(parser.parse_args(argv))
    runbook_url = options.pop("runbook_url")
    try:
        objectives = Objectives(**options)
    except ValueError as error:
        parser.error(str(error))
    sys.stdout.write(rules_text(objectives, runbook_url))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
