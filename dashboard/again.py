"""A recorded request as a command that sends one like it. Records have no prompts."""

from __future__ import annotations

import json
import shlex
from typing import Any

from observability.admin_api import KeptRequest

PROMPT = "YOUR PROMPT"
_CHAT = [{"role": "user", "content": PROMPT}]
# By route: the path, the field that has the prompt, and the one that limits the answer.
_APIS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat_completions": ("/v1/chat/completions", {"messages": _CHAT}, "max_completion_tokens"),
    "completions": ("/v1/completions", {"prompt": PROMPT}, "max_tokens"),
    "messages": ("/v1/messages", {"messages": _CHAT}, "max_tokens"),
    "responses": ("/v1/responses", {"input": PROMPT}, "max_output_tokens"),
    "embeddings": ("/v1/embeddings", {"input": PROMPT}, ""),
}
_WITH_CHOICES = ("chat_completions", "completions")


def curl_like(url: str, request: KeptRequest) -> str | None:
    """Return a shell command with the request's settings, None for a route that is not known
    here. The API key is ``$QUIRE_API_KEY`` where the request had one."""
    known = _APIS.get(request.route)
    if known is None:
        return None
    path, prompt, limit = known
    body = {"model": request.model, **prompt}
    if limit and request.max_tokens is not None:
        body[limit] = request.max_tokens
    for name in ("temperature", "top_p"):
        if (value := getattr(request, name)) is not None:
            body[name] = value
    if request.choices > 1 and request.route in _WITH_CHOICES:
        body["n"] = request.choices
    if request.stream:
        body["stream"] = True
    lines = [
        f"curl -N {shlex.quote(url + path)}",
        "-H 'Content-Type: application/json'",
        *(['-H "Authorization: Bearer $QUIRE_API_KEY"'] if request.key else []),
        f"-d {shlex.quote(json.dumps(body, ensure_ascii=False, indent=2))}",
    ]
    return " \\\n  ".join(lines)
