"""Request bodies at the bounds that the wire structs themselves declare.

Nothing here knows a field by name. The types of a request are walked with ``msgspec.inspect``. Each
place in it (``messages[].content``, ``tools[].function.parameters``) gets bodies in which the value
there is as large as its ``Meta`` bounds and a byte budget allow:

- ``long``: one value there, as long as may be;
- ``many`` (for each list or dict on the way): as many elements as may be, the value repeated or
  shared out among them.

A field that is added to a struct is therefore covered the day it is added.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from msgspec import inspect

# ``encoded`` writes another short string for each.
UNIQUE = "\N{REPLACEMENT CHARACTER}"
_UNIQUE = f'"{UNIQUE}"'.encode()

# Nesting deeper than the wire structs have is a type that contains itself.
_MAX_DEPTH = 8
_WORDS = tuple(
    "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=2 + seed % 9))
    for seed in range(512)
)


class Walk(enum.Enum):
    """How one step of a path is taken."""

    FIELD = "field"
    ELEMENT = "element"  # of a list
    VALUE = "value"  # of a dict


@dataclass(frozen=True)
class Step:
    walk: Walk
    type: inspect.Type  # the type that the step is taken from
    name: str = ""


@dataclass(frozen=True)
class Place:
    """The path of a value in a request, and its type there."""

    steps: tuple[Step, ...]
    type: inspect.Type

    @property
    def path(self) -> str:
        text = ""
        for step in self.steps:
            match step.walk:
                case Walk.FIELD:
                    text += f".{step.name}" if text else step.name
                case Walk.ELEMENT:
                    text += "[]"
                case Walk.VALUE:
                    text += "{}"
        return text


@dataclass(frozen=True)
class Bound:
    """One body to be made: ``many`` is the step whose container is filled; None: the value itself
    is as long as may be."""

    place: Place
    many: int | None = None

    @property
    def name(self) -> str:
        if self.many is None:
            return f"{self.place.path}-long"
        return f"{self.place.path}-many{self.many}"


def bounds_of(struct: type[msgspec.Struct]) -> list[Bound]:
    """Yield every body that the bounds of ``struct`` require."""
    found: list[Bound] = []
    for place in _places(cast(inspect.StructType, inspect.type_info(struct)), (), 0):
        found.append(Bound(place))
        found += [
            Bound(place, index)
            for index, step in enumerate(place.steps)
            if step.walk is not Walk.FIELD
        ]
    return found


def body_of(
    struct: type[msgspec.Struct], bound: Bound, base: dict[str, Any], budget: int
) -> dict[str, Any]:
    """``base`` (a valid request) with the bound's place filled, about ``budget`` bytes of JSON at
    most."""
    first = bound.place.steps[0]
    body = dict(base)
    before = base.get(first.name)
    body[first.name] = _built(bound.place.steps[1:], bound, 1, budget, before)
    return body


def _places(struct: inspect.StructType, steps: tuple[Step, ...], depth: int) -> Iterator[Place]:
    if depth > _MAX_DEPTH:
        return
    for field in struct.fields:
        here = (*steps, Step(Walk.FIELD, struct, field.encode_name))
        yield from _within(field.type, here, depth + 1)


def _within(kind: inspect.Type, steps: tuple[Step, ...], depth: int) -> Iterator[Place]:
    for option in _options(kind):
        match option:
            case inspect.StructType():
                yield from _places(option, steps, depth)
            case inspect.ListType() | inspect.VarTupleType():
                step = (*steps, Step(Walk.ELEMENT, option))
                yield from _within(option.item_type, step, depth + 1)
            case inspect.DictType():
                step = (*steps, Step(Walk.VALUE, option))
                yield from _within(option.value_type, step, depth + 1)
            case inspect.NoneType():
                pass
            case _:
                yield Place(steps, option)


def _options(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _options(kind.type)
    if isinstance(kind, inspect.UnionType):
        return tuple(option for one in kind.types for option in _options(one))
    return (kind,)


# --- values -------------------------------------------------------------------------------------


def _built(steps: tuple[Step, ...], bound: Bound, at: int, budget: int, before: Any) -> Any:
    """Return the value at ``steps``; ``at``: the position of the first step in the whole path.
    ``before``: what the valid request has there, from which other fields are taken."""
    if not steps:
        return _longest(bound.place.type, budget if bound.many is None else min(budget, 64))
    step, rest = steps[0], steps[1:]
    if step.walk is Walk.FIELD:
        kept = before if isinstance(before, dict) else {}
        value = {**_least(step.type), **kept}
        value[step.name] = _built(rest, bound, at + 1, budget, kept.get(step.name))
        return value
    template = _first(before)
    count = 1
    if bound.many == at:
        one = _built(rest, bound, at + 1, 1, template)
        count = _count(step.type, budget // _size(one, is_keyed=step.walk is Walk.VALUE))
    filled = bound.many == at and count > 0
    each = max(1, budget // count) if filled else budget
    value = _built(rest, bound, at + 1, each, template)
    if step.walk is Walk.ELEMENT:
        return [value] * max(1, count)
    return {_key(step.type, index): value for index in range(max(1, count))}


def _first(value: Any) -> Any:
    if isinstance(value, list):
        return value[0] if value else None
    if isinstance(value, dict):
        return next(iter(value.values()), None)
    return None


def _size(one: Any, *, is_keyed: bool) -> int:
    """Bytes of one of many."""
    text = msgspec.json.encode(one)
    longest = len('"u9999999"')
    return len(text) + text.count(_UNIQUE) * (longest - len(_UNIQUE)) + 1 + is_keyed * longest


def _count(kind: inspect.Type, most: int) -> int:
    length = getattr(kind, "max_length", None)
    return max(1, min(most, length if length is not None else most))


def _key(kind: inspect.Type, index: int) -> str:
    """Digits: a key may have to be a token's id."""
    return str(index)


def _least(kind: inspect.Type) -> dict[str, Any]:
    """A struct with what it must have."""
    assert isinstance(kind, inspect.StructType)
    value: dict[str, Any] = {}
    if kind.tag is not None and kind.tag_field is not None:
        value[kind.tag_field] = kind.tag
    for field in kind.fields:
        if field.required:
            value[field.encode_name] = _small(field.type)
    return value


def _small(kind: inspect.Type) -> Any:
    option = _options(kind)[0]
    match option:
        case inspect.StructType():
            return _least(option)
        case inspect.ListType() | inspect.VarTupleType():
            return [_small(option.item_type)] * (option.min_length or 0)
        case inspect.DictType() | inspect.AnyType() | inspect.RawType():
            return {}
        case _:
            return _longest(option, 1)


def _longest(kind: inspect.Type, budget: int) -> Any:
    """The costliest value of a type that takes ``budget`` bytes at most."""
    match kind:
        case inspect.StrType():
            least, most = kind.min_length or 0, kind.max_length
            size = budget if most is None else min(most, budget)
            # Elements of a list must not be equal: names and ids would be refused as duplicates.
            return UNIQUE if size <= 1 and least <= 1 else text(max(least, 1, size))
        case inspect.IntType():
            return _extreme(kind, 2**31)
        case inspect.FloatType():
            return float(_extreme(kind, 1e6))
        case inspect.BoolType():
            return True
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.AnyType() | inspect.RawType():
            return schema(budget)
    raise TypeError(f"no value is known for {kind}: teach tests/law/bounds.py")


def _extreme(kind: inspect.IntType | inspect.FloatType, fallback: float) -> Any:
    if kind.le is not None:
        return kind.le
    if kind.lt is not None:
        return kind.lt - 1
    return int(fallback) if isinstance(kind, inspect.IntType) else fallback


def text(size: int) -> str:
    """Words, as a tokenizer meets them; the same text for the same size."""
    chooser = random.Random(7)
    piece = " ".join(chooser.choices(_WORDS, k=2048)) + " "
    return (piece * (size // len(piece) + 1))[:size]


def schema(size: int) -> Any:
    """A JSON value that is also a JSON schema: an object with many properties."""
    if size < 64:
        return {}
    one = '"p00000":{"type":"string","pattern":"[a-z]{1,8}"},'
    count = max(1, size // len(one))
    return {
        "type": "object",
        "properties": {
            f"p{index:05}": {"type": "string", "pattern": "[a-z]{1,8}"} for index in range(count)
        },
    }


def encoded(body: Any) -> bytes:
    """The body, or a part of one, as JSON, each of its unique strings another."""
    first, *rest = msgspec.json.encode(body).split(_UNIQUE)
    numbered = (b'"u%d"%b' % (index, piece) for index, piece in enumerate(rest))
    return first + b"".join(numbered)
