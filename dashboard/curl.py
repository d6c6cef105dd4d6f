"""The same request as a command line."""

from __future__ import annotations

import json
import shlex

from dashboard.client import ChatRequest


def as_curl(url: str, request: ChatRequest, with_key: bool) -> str:
    """A shell command; the key itself never appears in it, only ``$QUIRE_API_KEY``."""
    body = json.dumps(request.body(), ensure_ascii=False, indent=2)
    lines = [
        f"curl -N {shlex.quote(f'{url}/v1/chat/completions')}",
        "-H 'Content-Type: application/json'",
        *(['-H "Authorization: Bearer $QUIRE_API_KEY"'] if with_key else []),
        f"-d {shlex.quote(body)}",
    ]
    return " \\\n  ".join(lines)
