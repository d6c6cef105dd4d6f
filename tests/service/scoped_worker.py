"""``python -m tests.service.scoped_worker``: the API worker, where some keys are limited. The key
of alias ``reader`` may only read, that of ``narrow`` may use the model ``tiny-b`` alone."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from service import worker
from service.serving.keys import KeyRing
from service.tenants.caller import Caller, KeyScope

_LIMITED: dict[str, dict[str, Any]] = {
    "reader": {"scopes": frozenset({KeyScope.READ})},
    "narrow": {"models": frozenset({"tiny-b"})},
}


_check = KeyRing.check


def limited(ring: KeyRing, authorization: bytes, api_key: bytes = b"") -> Caller:
    caller = _check(ring, authorization, api_key)
    return replace(caller, **_LIMITED.get(caller.alias or "", {}))


if __name__ == "__main__":
    KeyRing.check = limited  # type: ignore[method-assign]
    os._exit(worker.main(sys.argv[1:]))
