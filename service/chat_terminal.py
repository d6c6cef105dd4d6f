"""Talk to a running server. Ctrl-C stops an answer, /new starts afresh, Ctrl-D leaves."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from service.chat_client import ChatClient, ServerError, Timings

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 - importing it gives input() line editing and history

_DIM, _PLAIN = "\033[2m", "\033[0m"


def run(
    base_url: str,
    *,
    api_key: str | None = None,
    model: str | None = None,
    system: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> int:
    """Read messages from stdin and stream answers to stdout until the input ends.

    Returns the exit status: 0, or 1 when the server cannot be used.
    """
    try:
        client = ChatClient(base_url, api_key)
        name = model or client.models()[0]
    except (ValueError, ServerError, IndexError) as error:
        print(f"quire: {error or 'the server has no model'}", file=sys.stderr)
        return 1
    options = {"model": name, "temperature": temperature, "max_tokens": max_tokens}
    request = {key: value for key, value in options.items() if value is not None}
    opening = [{"role": "system", "content": system}] if system else []
    messages: list[dict[str, Any]] = list(opening)
    interactive = sys.stdin.isatty()
    if interactive:
        print(f"{name} at {client.url}. {__doc__}")
    while True:
        try:
            text = input("> " if interactive else "").strip()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            print()
            continue
        if text == "/new":
            messages = list(opening)
        elif text:
            messages = _exchange(client, request, messages, text)


def _exchange(
    client: ChatClient, request: dict[str, Any], messages: list[dict[str, Any]], text: str
) -> list[dict[str, Any]]:
    """Send ``text``, print the answer. Returns the conversation that this leaves: unchanged if
    nothing was answered."""
    asked = [*messages, {"role": "user", "content": text}]
    answer: list[str] = []
    colours = sys.stdout.isatty()
    stream = client.stream({**request, "messages": asked})
    try:
        with contextlib.closing(stream):
            for piece in stream:
                dim = piece.reasoning and colours
                print(f"{_DIM}{piece.text}{_PLAIN}" if dim else piece.text, end="", flush=True)
                if not piece.reasoning:
                    answer.append(piece.text)
        print(f"\n{_summary(client.timings)}")
    except KeyboardInterrupt:
        print("\n(stopped)")
    except ServerError as error:
        print(f"\nquire: {error}", file=sys.stderr)
    if not answer:
        return messages
    return [*asked, {"role": "assistant", "content": "".join(answer)}]


def _summary(timings: Timings) -> str:
    parts = [f"{timings.tokens} tokens"]
    if timings.first_token is not None:
        parts.append(f"first after {timings.first_token * 1e3:.0f} ms")
    speed = timings.tokens_per_second
    if speed is not None:
        parts.append(f"then {speed:.1f} tokens/s")
    return f"[{', '.join(parts)}]"
