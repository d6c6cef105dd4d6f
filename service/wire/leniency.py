"""Converts what vendors' servers accept but a strict decoder does not.

    an unknown key                             dropped, its path reported
    null for a field that has a default        the default
    8.0 where an integer is expected           8
    a field's other name (``other_names``)     the field

Everything else is left unchanged for the decoder to check: no string and no boolean ever becomes a
number. The conversion of a value follows from the struct that it is decoded into, so nothing has to
be declared twice.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

# Further names are dropped silently.
MAX_NAMES = 64

# The place of a value: its parent's place, and its key or index there. Formatted only on demand.
_Place = tuple["_Place | None", str | int] | None


class _Plan(NamedTuple):
    """What one place of a body may contain. ``records`` by their tag, or under None."""

    takes_null: bool = False
    takes_int: bool = False
    takes_float: bool = False
    items: _Plan | None = None
    longest: int | None = None
    records: Mapping[Any, _Record] = {}
    tag_field: str | None = None

    @property
    def is_idle(self) -> bool:
        """True if nothing here can need conversion."""
        has_integers = self.takes_int and not self.takes_float
        return not (self.records or self.items or has_integers)


class _Record(NamedTuple):
    """A struct: its fields, those whose value may need conversion, those for which null means their
    default, other names of fields, and whether unknown fields are skipped anyway."""

    known: frozenset[str]
    inner: tuple[tuple[str, _Plan], ...]
    not_null: frozenset[str]
    other_names: Mapping[str, str]
    takes_any: bool


def lenient(value: Any, kind: type[msgspec.Struct], unknown: list[str]) -> Any:
    """Convert ``value``, a decoded body meant for ``kind``, in place, so that the strict decoder
    accepts it; ``unknown`` gains the paths of dropped keys, at most ``MAX_NAMES``."""
    return _mend(value, _plan_of(kind), None, unknown)


def _mend(value: Any, plan: _Plan, place: _Place, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        tag = None if plan.tag_field is None else value.get(plan.tag_field)
        record = plan.records.get(tag) if tag is None or isinstance(tag, str) else None
        if record is not None:
            _mend_record(value, record, place, unknown)
    elif isinstance(value, list):
        # A list that is too long is rejected anyway, so it is not worth processing.
        if plan.items is not None and (plan.longest is None or len(value) <= plan.longest):
            for index, item in enumerate(value):
                _mend(item, plan.items, (place, index), unknown)
    elif isinstance(value, float) and plan.takes_int and not plan.takes_float:
        return int(value) if value.is_integer() else value
    return value


def _mend_record(value: dict[str, Any], record: _Record, place: _Place, unknown: list[str]) -> None:
    if not record.takes_any and not value.keys() <= record.known:
        _leave_out(value, record, place, unknown)
    if None in value.values():
        for name in record.not_null & value.keys():
            if value[name] is None:
                del value[name]
    for name, plan in record.inner:
        part = value.get(name)
        if part is not None:
            value[name] = _mend(part, plan, (place, name), unknown)


def _leave_out(value: dict[str, Any], record: _Record, place: _Place, unknown: list[str]) -> None:
    for name in [name for name in value if name not in record.known]:
        part = value.pop(name)
        known = record.other_names.get(name)
        if known is not None and value.get(known) is None:
            value[known] = part
        elif len(unknown) < MAX_NAMES:
            unknown.append(_written((place, name)))


def _written(place: _Place) -> str:
    """Format a path such as ``messages[1].content``."""
    path = ""
    while place is not None:
        place, key = place
        path = f"[{key}]{path}" if isinstance(key, int) else f".{key}{path}"
    return path.removeprefix(".")


# --- plans, derived once from the structs' types --------------------------------------------------


@functools.cache
def _plan_of(kind: type[msgspec.Struct]) -> _Plan:
    return _plan(inspect.type_info(kind))


def _plan(info: inspect.Type) -> _Plan:
    match info:
        case inspect.Metadata(type=inner):
            return _plan(inner)
        case inspect.StructType():
            return _Plan(records={info.tag: _record(info)}, tag_field=info.tag_field)
        case inspect.ListType(item_type=item, max_length=longest):
            # A list may have a million numbers; only records are worth visiting.
            inside = _plan(item)
            return _Plan(items=inside if inside.records else None, longest=longest)
        case inspect.UnionType(types=types):
            return _either([_plan(each) for each in types])
        case inspect.AnyType():
            return _Plan(takes_null=True, takes_int=True, takes_float=True)
        case inspect.NoneType():
            return _Plan(takes_null=True)
        case inspect.IntType():
            return _Plan(takes_int=True)
        case inspect.FloatType():
            return _Plan(takes_float=True)
    return _Plan()


def _either(plans: list[_Plan]) -> _Plan:
    lists = next((plan for plan in plans if plan.items is not None), _Plan())
    return _Plan(
        takes_null=any(plan.takes_null for plan in plans),
        takes_int=any(plan.takes_int for plan in plans),
        takes_float=any(plan.takes_float for plan in plans),
        items=lists.items,
        longest=lists.longest,
        records={tag: record for plan in plans for tag, record in plan.records.items()},
        tag_field=next((plan.tag_field for plan in plans if plan.tag_field is not None), None),
    )


def _record(info: inspect.StructType) -> _Record:
    plans = {field.encode_name: _plan(field.type) for field in info.fields}
    required = {field.encode_name for field in info.fields if field.required}
    return _Record(
        known=frozenset(plans) | ({info.tag_field} if info.tag_field else set()),
        inner=tuple((name, plan) for name, plan in plans.items() if not plan.is_idle),
        not_null=frozenset(
            name for name, plan in plans.items() if not plan.takes_null and name not in required
        ),
        other_names=getattr(info.cls, "other_names", {}),
        takes_any=getattr(info.cls, "takes_any", False),
    )
