"""Server-sent events out of bytes in any cuts."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventDecoder:
    """Yields the data of each event once its empty line has come. Lines end in LF, CR or CRLF
    (and in nothing else: text may hold U+2028, which ``str.splitlines`` would cut at)."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        buffer = self._rest + chunk
        lines = []
        start = 0
        for end in _LINE_END.finditer(buffer):
            # A CR at the very end may be half of a CRLF: wait for what follows.
            if end.group() == b"\r" and end.end() == len(buffer):
                break
            lines.append(buffer[start : end.start()])
            start = end.end()
        self._rest = buffer[start:]
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> str | None:
        if line:
            name, _, value = line.decode("utf-8", errors="replace").partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            return None
        if not self._data:
            return None
        event = "\n".join(self._data)
        self._data = []
        return event
