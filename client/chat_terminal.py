"""Talk to a running server. Ctrl-C stops an answer, /new starts over, Ctrl-D quits."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from client.chat_client import ChatClient, ServerError, Timings
from observability.terminal import for_terminal

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

    Returns the exit status: 0, or 1 if the server cannot be used or if, without a terminal, a
    request failed or the input was not text.
    """
    try:
        client = ChatClient(base_url, api_key)
        name = model or client.first_model()
    except (ValueError, ServerError) as error:
        print(f"quire: {for_terminal(str(error))}", file=sys.stderr)
        return 1
    options = {"model": name, "temperature": temperature, "max_tokens": max_tokens}
    request = {key: value for key, value in options.items() if value is not None}
    opening = [{"role": "system", "content": system}] if system else []
    messages: list[dict[str, Any]] = list(opening)
    interactive = sys.stdin.isatty()
    if interactive:
        print(f"{for_terminal(name)} at {client.url}. {__doc__}")
    failed = False
    while True:
        try:
            text = _read("> " if interactive else "")
        except EOFError:
            return int(failed and not interactive)
        except KeyboardInterrupt:
            print()
            continue
        except UnicodeError:
            print(f"quire: the input is not {sys.stdin.encoding.upper()} text", file=sys.stderr)
            if not interactive:
                return 1  # the decoder may have dropped later lines
            continue
        if text == "/new":
            messages = list(opening)
        elif text:
            messages, answered = _exchange(client, request, messages, text)
            failed = failed or not answered


def _read(prompt: str) -> str:
    """Return the next line. Raises EOFError, UnicodeError."""
    text = input(prompt).strip()
    text.encode()  # in some locales, what cannot be decoded is read as lone surrogates
    return text


def _exchange(
    client: ChatClient, request: dict[str, Any], messages: list[dict[str, Any]], text: str
) -> tuple[list[dict[str, Any]], bool]:
    """Send ``text`` and print the answer. Returns the conversation afterwards, unchanged if there
    was no answer, and whether the request succeeded."""
    asked = [*messages, {"role": "user", "content": text}]
    answer: list[str] = []
    answered = True
    colours = sys.stdout.isatty()
    stream = client.stream({**request, "messages": asked})
    try:
        with contextlib.closing(stream):
            for piece in stream:
                dim = piece.reasoning and colours
                text = for_terminal(piece.text)
                print(f"{_DIM}{text}{_PLAIN}" if dim else text, end="", flush=True)
                if not piece.reasoning:
                    answer.append(piece.text)
        print(f"\n{_summary(client.timings)}")
    except KeyboardInterrupt:
        print("\n(stopped)")
    except ServerError as error:
        answered = False
        print(f"\nquire: {for_terminal(str(error))}", file=sys.stderr)
    if not answer:
        return messages, answered
    return [*asked, {"role": "assistant", "content": "".join(answer)}], answered


def _summary(timings: Timings) -> str:
    parts = [f"{timings.tokens} tokens"]
    if timings.first_token is not None:
        parts.append(f"first after {timings.first_token * 1e3:.0f} ms")
    speed = timings.tokens_per_second
    if speed is not None:
        parts.append(f"then {speed:.1f} tokens/s")
    return f"[{', '.join(parts)}]"
