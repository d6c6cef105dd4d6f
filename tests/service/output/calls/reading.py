"""Running a reader of calls by itself over a text cut in any way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from service.output.calls.source import EndOfTextError, Source, Stop, Stops

T = TypeVar("T")


@dataclass
class Call:
    """``whole``: None if its end was never reported."""

    name: str
    call_id: str | None
    arguments: str = ""
    whole: bool | None = None


class Recorder:
    """A ``HeaderSink`` that keeps everything it receives."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.headers: list[dict[str, bool]] = []

    def begin(self, name: str, call_id: str | None = None) -> None:
        self.calls.append(Call(name, call_id))

    def arguments(self, text: str) -> None:
        self.calls[-1].arguments += text

    def end(self, *, whole: bool = True) -> None:
        self.calls[-1].whole = whole

    def call(self) -> None:
        """Do nothing: the call itself is kept."""

    def channel(self, *, reasoning: bool, shown: bool = True, calls: bool = True) -> None:
        self.headers.append({"reasoning": reasoning, "shown": shown, "calls": calls})


def drive(
    reader: Generator[None, None, T], source: Source, pieces: Iterable[str], *, truncated: bool
) -> tuple[T, str]:
    """What the reader returns, and the text it left unread. Raises what it raises."""
    coming = list(pieces)
    while True:
        try:
            next(reader)
        except StopIteration as end:
            return end.value, source.rest + "".join(coming)
        if coming:
            source.feed(coming.pop(0))
        else:
            source.end(truncated=truncated)


def read(
    begin: Callable[[Source, Recorder], Generator[None, None, Any]],
    text: str,
    *,
    stop_tags: tuple[str, ...] = (),
    kind: Stop = Stop.PERHAPS,
    truncated: bool = False,
) -> tuple[Recorder, str | None]:
    """Return what was reported, and the unread text: None if the text ended before the reader did.
    Fails if it depends on how the text is cut. Raises NotACallError."""
    told: list[tuple[Recorder, str | None]] = []
    for pieces in ([text], list(text)):
        source = Source("", 0, Stops(stop_tags, lambda tag, offset: kind))
        sink = Recorder()
        rest: str | None
        try:
            _, rest = drive(begin(source, sink), source, pieces, truncated=truncated)
        except EndOfTextError:
            rest = None
        told.append((sink, rest))
    (whole, rest), (by_char, same) = told
    assert (whole.calls, whole.headers, rest) == (by_char.calls, by_char.headers, same)
    return whole, rest
