"""A process that uses a tenant's limits by orders, one a line."""

from __future__ import annotations

import json
import sys

from service.errors import LimitError
from service.tenants.key_limits import KeyLimits
from service.tenants.limit_ledger import LimitLedger, LimitUse


def main() -> None:
    ledger = LimitLedger(int(sys.argv[1]))
    uses: list[LimitUse] = []
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        limits = KeyLimits(**order["limits"])
        admitted = 0
        for _ in range(order["times"]):
            try:
                use = ledger.enter("team", limits)
            except LimitError:
                continue
            if order["tokens"]:
                try:
                    ledger.take(use, order["tokens"])
                except LimitError:
                    ledger.settle(use, 0, counts=False)
                    continue
            admitted += 1
            if order["used"] is None:
                uses.append(use)
            else:
                ledger.settle(use, order["used"])
        print(json.dumps({"admitted": admitted, "inexact": ledger.memory.inexact}), flush=True)


if __name__ == "__main__":
    main()
