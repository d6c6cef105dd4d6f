"""Builds the output items of a response from the choice's events, and the corresponding stream
events. A single builder makes sure that the stream and the final object cannot differ.

An item opens when it has something to show: text that is only white space opens none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from service.conversation import JsonObject
from service.generation.choice import Choice
from service.output.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.wire.responses.custom import CustomInput
from service.wire.responses.tools import Toolbox

_json = msgspec.json.encode
_NO_LOGPROBS = msgspec.Raw(b"[]")


class EventWriter:
    """SSE events, numbered without gaps from 0; ``take`` returns those written since the last
    call."""

    def __init__(self) -> None:
        self.number = 0
        self._pieces: list[bytes | memoryview] = []

    def write(self, kind: str, *fields: bytes | memoryview) -> None:
        """``fields``: together the event's own members as JSON, without the braces. They may be
        megabytes, and are not copied until they are taken."""
        name = kind.encode()
        self._pieces += (
            b'event: %b\ndata: {"type":"%b",' % (name, name),
            *fields,
            b',"sequence_number":%d}\n\n' % self.number,
        )
        self.number += 1

    def write_delta(self, prefix: bytes, delta: str, suffix: bytes) -> None:
        """The hot path: everything but the text is pre-rendered."""
        self._pieces.append(
            b'%b%b%b"sequence_number":%d}\n\n' % (prefix, _json(delta), suffix, self.number)
        )
        self.number += 1

    def take_back(self) -> None:
        """Reuse the number of the last event, which was taken but not sent."""
        self.number -= 1

    def take(self) -> bytes:
        pieces = self._pieces
        if not pieces:
            return b""
        self._pieces = []
        first = pieces[0]
        return first if len(pieces) == 1 and isinstance(first, bytes) else b"".join(pieces)


class _OpenItem(Protocol):
    def item(self, status: str) -> JsonObject:
        """Return the item in its current state."""

    def close(self, status: str) -> None:
        """Write the events that precede ``output_item.done``."""


class _Place:
    """The item and index that an item's events refer to."""

    def __init__(self, writer: EventWriter, item_id: str, index: int) -> None:
        self.writer = writer
        self.id = item_id
        self.fields = b'"item_id":%b,"output_index":%d' % (_json(item_id), index)

    def delta_prefix(self, kind: str, extra: bytes = b"") -> bytes:
        name = kind.encode()
        return b'event: %b\ndata: {"type":"%b",%b%b,"delta":' % (name, name, self.fields, extra)

    def write(self, kind: str, fields: JsonObject) -> None:
        body = memoryview(_json(fields))[1:-1]
        self.writer.write(kind, self.fields, *((b",", body) if body else ()))


class _TextForm(NamedTuple):
    """How events call an item's text, the part that holds it, and the part's index."""

    text: str
    part: str
    index_name: str
    part_type: str


_MESSAGE: Final = _TextForm("output_text", "content_part", "content_index", "output_text")
_REASONING: Final = _TextForm("reasoning_text", "content_part", "content_index", "reasoning_text")
_SUMMARY: Final = _TextForm(
    "reasoning_summary_text", "reasoning_summary_part", "summary_index", "summary_text"
)


class _TextItem:
    """A message or a reasoning item: one part of text."""

    def __init__(
        self, place: _Place, form: _TextForm, *, seal: Callable[[str], str] | None
    ) -> None:
        self._place = place
        self._form = form
        self._reasoning = form is not _MESSAGE
        self._seal = seal
        self._pieces: list[str] = []
        self._logprobs: list[bytes] = []  # JSON, by token
        self._kind = f"response.{form.text}"
        index = b',"%b":0' % form.index_name.encode()
        self._prefix = place.delta_prefix(f"{self._kind}.delta", index)
        self._suffix = b"," if self._reasoning else b',"logprobs":[],'
        self._sealed: str | None = None

    def open_part(self) -> None:
        self._place.write(
            f"response.{self._form.part}.added",
            {self._form.index_name: 0, "part": self._part("", _NO_LOGPROBS)},
        )

    def push(self, text: str, logprobs: list[bytes] | None) -> None:
        self._pieces.append(text)
        suffix = self._suffix
        if logprobs:
            self._logprobs += logprobs
            suffix = b',"logprobs":[%b],' % b",".join(logprobs)
        self._place.writer.write_delta(self._prefix, text, suffix)

    def close(self, status: str) -> None:
        text, logprobs = "".join(self._pieces), self._joined_logprobs()
        form = self._form
        done: JsonObject = {form.index_name: 0, "text": text}
        if not self._reasoning:
            done["logprobs"] = logprobs
        elif self._seal is not None:
            self._sealed = self._seal(text)
        self._place.write(f"{self._kind}.done", done)
        ended: JsonObject = {form.index_name: 0, "part": self._part(text, logprobs)}
        if form is _SUMMARY and status == "incomplete":
            ended["status"] = status
        self._place.write(f"response.{form.part}.done", ended)

    def item(self, status: str) -> JsonObject:
        text = "".join(self._pieces)
        parts = [self._part(text, self._joined_logprobs())] if text else []
        if not self._reasoning:
            return {
                "id": self._place.id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": parts,
            }
        return {
            "id": self._place.id,
            "type": "reasoning",
            "status": status,
            "summary": parts if self._form is _SUMMARY else [],
            "content": [] if self._form is _SUMMARY else parts,
            "encrypted_content": self._sealed,
        }

    def _joined_logprobs(self) -> msgspec.Raw:
        return msgspec.Raw(b"[%b]" % b",".join(self._logprobs))

    def _part(self, text: str, logprobs: msgspec.Raw) -> JsonObject:
        part: JsonObject = {"type": self._form.part_type, "text": text}
        if not self._reasoning:
            part |= {"annotations": [], "logprobs": logprobs}
        return part


class _CallItem:
    """A function's or a custom tool's call."""

    def __init__(self, place: _Place, call: ToolCallBegin, toolbox: Toolbox) -> None:
        self._place = place
        self._call_id = call.id
        tool = toolbox.tools.get(call.name)
        self._name = call.name if tool is None else tool.name
        self._namespace = None if tool is None else tool.namespace
        self._custom = CustomInput() if tool is not None and tool.custom else None
        self._pieces: list[str] = []
        kind = "custom_tool_call_input" if self._custom else "function_call_arguments"
        self._kind = f"response.{kind}"
        self._prefix = place.delta_prefix(f"{self._kind}.delta")

    def push(self, arguments: str) -> None:
        self._show(arguments if self._custom is None else self._custom.feed(arguments))

    def _show(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._place.writer.write_delta(self._prefix, text, b",")

    def close(self, status: str) -> None:
        if self._custom is not None:
            self._show(self._custom.end())
            self._place.write(f"{self._kind}.done", {"input": "".join(self._pieces)})
            return
        done = {"name": self._name, "arguments": "".join(self._pieces)}
        self._place.write(f"{self._kind}.done", done)

    def item(self, status: str) -> JsonObject:
        body = "arguments" if self._custom is None else "input"
        item: JsonObject = {
            "id": self._place.id,
            "type": "function_call" if self._custom is None else "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            body: "".join(self._pieces),
        }
        if self._namespace is not None:
            item["namespace"] = self._namespace
        return item


class ItemBuilder:
    """``key`` makes the items' ids unique. ``summary``: reasoning is sent as its own summary, and
    not again as content, since some clients show both. ``seal`` encrypts reasoning; ``logprobs``
    returns those of the tokens between two positions, as JSON; either may be None.

    ``done`` holds the finished items as JSON, ``cut`` whether a call among them is incomplete.
    """

    def __init__(
        self,
        key: str,
        toolbox: Toolbox,
        *,
        reasoning: bool = True,
        summary: bool = False,
        seal: Callable[[str], str] | None = None,
        logprobs: Callable[[Choice, int, int], list[bytes]] | None = None,
    ) -> None:
        self.writer = EventWriter()
        self.done: list[bytes] = []
        self.cut = False
        self._key = key
        self._toolbox = toolbox
        self._shows_reasoning = reasoning
        self._reasoning_form = _SUMMARY if summary else _REASONING
        self._seal = seal
        self._logprobs = logprobs
        self._open: _OpenItem | None = None
        self._kind: type[Event] | None = None  # of the open item's events
        self._held: list[TextDelta | ReasoningDelta] = []  # white space that may begin an item

    def feed(self, choice: Choice, event: Event) -> None:
        match event:
            case TextDelta():
                self._text(choice, event)
            case ReasoningDelta():
                if self._shows_reasoning:
                    self._text(choice, event)
            case ToolCallBegin():
                self._held = []
                self._supersede()
                custom = (
                    event.name in self._toolbox.tools and self._toolbox.tools[event.name].custom
                )
                place = self._place("ctc" if custom else "fc")
                self._begin(_CallItem(place, event, self._toolbox), ToolCallBegin)
            case ToolArgumentsDelta(text=text):
                if isinstance(self._open, _CallItem):
                    self._open.push(text)
            case ToolCallEnd():
                self._close("completed")
            case Finished():
                self._finish(event)

    def abandon(self) -> None:
        """End the open item as incomplete, because nothing more comes."""
        self._held = []
        self._close("incomplete")

    def current(self) -> list[bytes]:
        """Return all items in their current state."""
        if self._open is None:
            return self.done
        return [*self.done, _json(self._open.item("in_progress"))]

    def _text(self, choice: Choice, event: TextDelta | ReasoningDelta) -> None:
        opened = self._open
        if self._kind is type(event) and isinstance(opened, _TextItem):
            self._held = []
            opened.push(event.text, self._logprobs_of(choice, event))
            return
        if self._held and type(self._held[0]) is not type(event):
            self._held = []
        self._held.append(event)
        if not event.text.strip():
            return
        held, self._held = self._held, []
        self._supersede()
        if self.done:  # white space between two items belongs to neither
            last = held[-1]
            held = [msgspec.structs.replace(last, text=last.text.lstrip())]
        reasoning = isinstance(event, ReasoningDelta)
        item = _TextItem(
            self._place("rs" if reasoning else "msg"),
            self._reasoning_form if reasoning else _MESSAGE,
            seal=self._seal if reasoning else None,
        )
        self._begin(item, type(event))
        item.open_part()
        for piece in held:
            item.push(piece.text, self._logprobs_of(choice, piece))

    def _logprobs_of(self, choice: Choice, event: TextDelta | ReasoningDelta) -> list[bytes] | None:
        if self._logprobs is None or isinstance(event, ReasoningDelta):
            return None
        return self._logprobs(choice, event.start, event.end)

    def _place(self, prefix: str) -> _Place:
        index = len(self.done)
        return _Place(self.writer, f"{prefix}_{self._key}_{index}", index)

    def _begin(self, item: _OpenItem, kind: type[Event]) -> None:
        self._open, self._kind = item, kind
        self.writer.write(
            "response.output_item.added",
            b'"output_index":%d,"item":%b' % (len(self.done), _json(item.item("in_progress"))),
        )

    def _supersede(self) -> None:
        """Close the open item, because another one begins. A call is complete only after its own
        end."""
        in_call = isinstance(self._open, _CallItem)
        self.cut = self.cut or in_call
        self._close("incomplete" if in_call else "completed")

    def _close(self, status: str) -> None:
        opened = self._open
        if opened is None:
            return
        self._open = self._kind = None
        opened.close(status)
        item = _json(opened.item(status))
        self.writer.write(
            "response.output_item.done", b'"output_index":%d,"item":' % len(self.done), item
        )
        self.done.append(item)

    def _finish(self, event: Finished) -> None:
        self._held = []
        if event.reason == "length":
            self.cut = self.cut or isinstance(self._open, _CallItem)
            self._close("incomplete")
        else:
            self._supersede()
