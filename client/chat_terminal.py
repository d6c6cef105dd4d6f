"""Talk to a running server. Ctrl-C stops an answer, /new starts over, Ctrl-D quits."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from client.chat_client import ChatClient, ServerError, Timings

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 - importing it gives input() line editing and history

_DIM, _PLAIN = "\033[2m", "\033[0m"

_OBEYED = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\t"), ord("\n")}
_REORDERING = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_SHOWN = (
    {code: f"<{code:04X}>" for code in _REORDERING | _OBEYED}
    | {code: chr(0x2400 + code) for code in _OBEYED if code < 0x20}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(55296, 57344), "�")  # lone surrogates cannot be encoded
)


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
        print(f"quire: {printable(str(error))}", file=sys.stderr)
        return 1
    options = {"model": name, "temperature": temperature, "max_tokens": max_tokens}
    request = {key: value for key, value in options.items() if value is not None}
    opening = [{"role": "system", "content": system}] if system else []
    messages: list[dict[str, Any]] = list(opening)
    interactive = sys.stdin.isatty()
    if interactive:
        print(f"{printable(name)} at {client.url}. {__doc__}")
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
                text = printable(piece.text)
                print(f"{_DIM}{text}{_PLAIN}" if dim else text, end="", flush=True)
                if not piece.reasoning:
                    answer.append(piece.text)
        print(f"\n{_summary(client.timings)}")
    except KeyboardInterrupt:
        print("\n(stopped)")
    except ServerError as error:
        answered = False
        print(f"\nquire: {printable(str(error))}", file=sys.stderr)
    if not answer:
        return messages, answered
    return [*asked, {"role": "assistant", "content": "".join(answer)}], answered


def printable(text: str) -> str:
    """Make text from a model or server safe to print: control characters except tab and newline
    are replaced by their pictures, and characters that reorder text by their codes."""
    return text.translate(_SHOWN)


def _summary(timings: Timings) -> str:
    parts = [f"{timings.tokens} tokens"]
    if timings.first_token is not None:
        parts.append(f"first after {timings.first_token * 1e3:.0f} ms")
    speed = timings.tokens_per_second
    if speed is not None:
        parts.append(f"then {speed:.1f} tokens/s")
    return f"[{', '.join(parts)}]"
