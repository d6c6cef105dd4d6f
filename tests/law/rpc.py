"""gRPC messages at their bounds, for every method that the server's descriptors declare.

A message is filled as a body is (``bounds``). The bounds, which descriptors do not declare, are
those of the wire struct that the message becomes, under the same name; a field that has none there
is as large as the message may be. Beside these, each method gets messages that repeat one field on
the wire as often as may be, known fields and one that is not.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from msgspec import inspect

from service.proto.quire.v1 import quire_pb2 as pb
from service.wire.chat.request import ChatRequest
from service.wire.completions.request import CompletionRequest
from service.wire.protobuf.parts import MAX_FIELDS
from service.wire.texts.embeddings import EmbeddingRequest
from tests.law import bounds
from tests.law.measuring import GRPC, Ask
from tests.law.routes import POOLING

_SERVICES = tuple(
    service
    for module in (pb, health_pb2, reflection_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
)
_UNIQUE = "*"
_FEW = pb.Sampling(temperature=0, n=1)
_JSON = "_json"
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: 2**31 - 1,
    FieldDescriptor.CPPTYPE_INT64: 2**63 - 1,
    FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1,
    FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1,
}


@dataclass(frozen=True, eq=False)
class Call:
    """A method, a valid message of it to vary, and the struct that it becomes. ``only``: the paths
    that the message is made for. ``limits``: bounds that are this server's settings."""

    method: str
    base: Any
    struct: type[msgspec.Struct] | None = None
    only: str = ""
    limits: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return GRPC + self.method

    @property
    def valid(self) -> bytes:
        data: bytes = self.base.SerializeToString()
        return data

    @property
    def pools(self) -> bool:
        return self.struct in POOLING

    @property
    def id(self) -> str:
        return self.method.rsplit("/", 1)[1] + (f"-{self.only}" if self.only else "")


_USER = pb.Message(role="user", content="hi")
_TOOL = pb.Tool(function=pb.FunctionDefinition(name=_UNIQUE))
_MADE = pb.ToolCall(id=_UNIQUE, function=pb.FunctionCall(name="f", arguments="{}"))
_ONE = {"sampling.n": 16}
_KNOWN: tuple[Call, ...] = (
    Call(
        "/quire.v1.Quire/Chat",
        pb.ChatRequest(messages=[_USER], tools=[_TOOL], sampling=_FEW, max_tokens=2),
        ChatRequest,
        limits=_ONE,
    ),
    Call(
        "/quire.v1.Quire/Chat",
        pb.ChatRequest(messages=[pb.Message(role="assistant", tool_calls=[_MADE])], max_tokens=2),
        ChatRequest,
        only="messages[].tool_calls",
    ),
    Call(
        "/quire.v1.Quire/Generate",
        pb.GenerateRequest(text="hi", sampling=_FEW, max_tokens=2),
        CompletionRequest,
        limits=_ONE,
    ),
    Call(
        "/quire.v1.Quire/Embed", pb.EmbedRequest(input=[pb.EmbedInput(text="hi")]), EmbeddingRequest
    ),
)


def _calls() -> Iterator[Call]:
    """A method that nothing is known of starts from an empty message."""
    for service in _SERVICES:
        for method in service.methods:
            path = f"/{service.full_name}/{method.name}"
            known = [call for call in _KNOWN if call.method == path]
            yield from known or [Call(path, GetMessageClass(method.input_type)())]


CALLS = tuple(_calls())


@dataclass(frozen=True)
class _Place:
    fields: tuple[FieldDescriptor, ...]

    @property
    def path(self) -> str:
        return ".".join(f"{one.name}{'[]' if one.is_repeated else ''}" for one in self.fields)


def asks(call: Call, size: int) -> Iterator[tuple[str, Ask]]:
    """A request for each bound, and its name."""
    for place in _places(type(call.base).DESCRIPTOR, ()):
        if not place.path.startswith(call.only):
            continue
        containers = [index for index, one in enumerate(place.fields) if one.is_repeated]
        for many in (None, *containers):
            message = type(call.base)()
            message.CopyFrom(call.base)
            _Filler(call, place, many).fill(message, 0, size)
            name = "long" if many is None else f"many{many}"
            yield f"{place.path}-{name}", Ask(call.path, message.SerializeToString())
    yield from _repeated(call, max(_numbers(call), default=0) + 1)


def repeats(call: Call) -> Iterator[tuple[str, Ask]]:
    """Each field of the message, again and again."""
    for number in _numbers(call):
        yield from _repeated(call, number)


def _repeated(call: Call, number: int) -> Iterator[tuple[str, Ask]]:
    """A few bytes each, the most that are counted, and one more."""
    for times in (MAX_FIELDS, MAX_FIELDS + 1):
        for kind in (0, 2):
            data = (_tag(number, kind) + b"\0") * times
            yield f"field {number} of kind {kind}, {times} times", Ask(call.path, data)


def _numbers(call: Call) -> list[int]:
    return [one.number for one in type(call.base).DESCRIPTOR.fields]


def _tag(number: int, kind: int) -> bytes:
    """Before a field on the wire; of numbers below 2048."""
    tag = number << 3 | kind
    return bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])


def _places(descriptor: Any, above: tuple[FieldDescriptor, ...]) -> Iterator[_Place]:
    for one in descriptor.fields:
        here = (*above, one)
        if one.message_type is None or _is_map(one):
            yield _Place(here)
        elif one.message_type not in [each.message_type for each in above]:
            yield from _places(one.message_type, here)


def _is_map(one: FieldDescriptor) -> bool:
    return one.message_type is not None and one.message_type.GetOptions().map_entry


class _Filler:
    """Fills one place of a message; ``many``: the field on the way that is repeated, None: the
    value itself is long."""

    def __init__(self, call: Call, place: _Place, many: int | None) -> None:
        self._call, self._place, self._many = call, place, many
        self._kinds = _kinds(call.struct)
        self._numbers = count()

    def fill(self, message: Any, at: int, budget: int) -> None:
        """The field at this depth, with about ``budget`` bytes."""
        one = self._place.fields[at]
        value = getattr(message, one.name)
        if _is_map(one):
            most = self._most(at, budget // 12) if self._many == at else 1
            for key in range(most):
                value[key] = self._leaf(one.message_type.fields_by_name["value"], 8)
        elif one.message_type is None:
            self._fill_leaf(message, one, at, budget)
        elif one.is_repeated:
            self._fill_list(value, one, at, budget)
        else:
            value.SetInParent()
            self.fill(value, at + 1, budget)

    def _fill_leaf(self, message: Any, one: FieldDescriptor, at: int, budget: int) -> None:
        if not one.is_repeated:
            setattr(message, one.name, self._leaf(one, budget if self._many is None else 8))
        elif self._many == at:
            size = 2 if one.cpp_type != FieldDescriptor.CPPTYPE_STRING else 10
            most = self._most(at, budget // size)
            getattr(message, one.name).extend(self._leaf(one, 1) for _ in range(most))
        else:
            getattr(message, one.name).append(self._leaf(one, budget if self._many is None else 8))

    def _fill_list(self, container: Any, one: FieldDescriptor, at: int, budget: int) -> None:
        template = GetMessageClass(one.message_type)()
        if container:
            template.CopyFrom(container[0])
        del container[:]
        most, each = 1, budget
        if self._many == at:
            sample = type(template)()
            sample.CopyFrom(template)
            self.fill(sample, at + 1, 1)
            most = self._most(at, budget // (sample.ByteSize() + 8))
            each = budget // most
        for _ in range(most):
            made = container.add()
            made.CopyFrom(template)
            self.fill(made, at + 1, each)
            self._freshen(made)

    def _freshen(self, message: Any) -> None:
        """Names and ids that must not be equal."""
        for one, value in message.ListFields():
            if one.message_type is not None and not one.is_repeated:
                self._freshen(value)
            elif value == _UNIQUE:
                setattr(message, one.name, f"u{next(self._numbers)}")

    def _most(self, at: int, fitting: int) -> int:
        kind = self._kinds.get(_named(self._place.fields[: at + 1]).removesuffix("[]"))
        length = getattr(kind, "max_length", None)
        # Beyond these a message is refused unread.
        return max(1, min(fitting, MAX_FIELDS * 2 if length is None else length))

    def _leaf(self, one: FieldDescriptor, budget: int) -> Any:
        """The costliest value."""
        path = self._place.path
        if path in self._call.limits:
            return self._call.limits[path]
        if one.name.endswith(_JSON):
            return json.dumps(bounds.schema(budget))
        kind = self._kinds.get(_named(self._place.fields))
        match one.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                if budget <= 1:
                    return f"u{next(self._numbers)}"
                most = getattr(kind, "max_length", None)
                text = bounds.text(budget if most is None else min(most, budget))
                return text.encode() if one.type == FieldDescriptor.TYPE_BYTES else text
            case FieldDescriptor.CPPTYPE_BOOL:
                return True
            case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
                most = getattr(kind, "le", None)
                return float(1e6 if most is None else most)
            case FieldDescriptor.CPPTYPE_ENUM:
                return one.enum_type.values[-1].number
        # A valid token id, where many are sent: an invalid one is refused at once.
        if "ids" in one.name and self._many is not None:
            return 5
        most = getattr(kind, "le", None)
        return min(_INTEGERS[one.cpp_type], int(_INTEGERS[one.cpp_type] if most is None else most))


@functools.cache
def _kinds(struct: type[msgspec.Struct] | None) -> dict[str, inspect.Type]:
    """The type of each place of a struct, by its path; of a list or dict without its brackets."""
    found: dict[str, inspect.Type] = {}
    for bound in bounds.bounds_of(struct) if struct else ():
        path, place = "", bound.place
        for step in place.steps:
            if step.walk is bounds.Walk.FIELD:
                path += f".{step.name}" if path else step.name
            else:
                found.setdefault(path, step.type)
                path += "[]" if step.walk is bounds.Walk.ELEMENT else "{}"
        found.setdefault(path, place.type)
    return found


def _named(fields: tuple[FieldDescriptor, ...]) -> str:
    """The same place's path in HTTP's body."""
    names = []
    for one in fields:
        brackets = "{}" if _is_map(one) else "[]" if one.is_repeated else ""
        names.append(one.name.removesuffix(_JSON) + brackets)
    if names[0] == "sampling":
        names = names[1:]
    return ".".join(names).replace(".choice.options[]", ".choice[]")
