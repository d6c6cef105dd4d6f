"""Bodies that contain every pair of a request's fields at their bounds, many pairs per body.

A field whose largest value is large shares a body with each other such field alone, so that both
are as large as possible, and with the small fields in groups. A group covers its pairs only if the
server answers it as it answers the large field by itself: otherwise the sender halves it, down to
single pairs, because one refused field would hide the cost of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from tests.law.bounds import Bound, body_of, bounds_of, encoded
from tests.law.measuring import Ask, batched
from tests.law.routes import Body, Route

LARGE_BYTES = 64 * 1024
_GROUP = 8

Sender = Callable[[Iterable[tuple[str, Ask]]], dict[str, str]]
"""Sends named requests; returns by name how each was answered."""


@dataclass(frozen=True)
class _Field:
    name: str
    bound: Bound
    size: int


class Pairs:
    """The pairs of one route. ``most``: bytes of a body."""

    def __init__(self, route: Route, most: int) -> None:
        self._route, self._most = route, most
        self._values: dict[tuple[str, int], bytes] = {}
        largest: dict[str, _Field] = {}
        for bound in bounds_of(route.struct):
            if bound.place.path.startswith(route.only):
                name = bound.place.steps[0].name
                size = len(_json(route, bound, most // 2))
                if name not in largest or size > largest[name].size:
                    largest[name] = _Field(name, bound, size)
        self._large = [field for field in largest.values() if field.size >= LARGE_BYTES]
        self._small = [field for field in largest.values() if field.size < LARGE_BYTES]

    def send_all(self, send: Sender) -> int:
        """How many pairs there are; each was sent, in a group or by itself."""
        alone = send(self._named((field,) for field in self._large))
        send(self._named(itertools.combinations(self._large, 2)))
        open_groups = [
            (large, group) for large in self._large for group in batched(self._small, _GROUP)
        ]
        while open_groups:
            asked = {_name((large, *group)): (large, group) for large, group in open_groups}
            answers = send(self._named((large, *group) for large, group in asked.values()))
            open_groups = [
                (large, half)
                for name, (large, group) in asked.items()
                if len(group) > 1 and answers[name] != alone[large.name]
                for half in (group[: len(group) // 2], group[len(group) // 2 :])
            ]
        large, small = len(self._large), len(self._small)
        return large * (large - 1) // 2 + large * small

    def _named(self, groups: Iterable[tuple[_Field, ...]]) -> Iterator[tuple[str, Ask]]:
        for group in groups:
            yield _name(group), self._ask(group)

    def _ask(self, fields: tuple[_Field, ...]) -> Ask:
        """With all of them in one body, the large ones as large as it allows."""
        route, size = self._route, self._most // 2
        while True:
            body: Body = {**route.base}
            for field in fields:
                given = route.limits.get(field.name)
                value = msgspec.Raw(self._value(field, size)) if given is None else given
                body[field.name] = value
            data = msgspec.json.encode(route.place(body))
            if len(data) <= self._most:
                return Ask(route.path, data)
            size = size * 3 // 4

    def _value(self, field: _Field, size: int) -> bytes:
        key = field.name, size
        if key not in self._values:
            self._values[key] = _json(self._route, field.bound, size)
        return self._values[key]


def _name(fields: tuple[_Field, ...]) -> str:
    return " × ".join(field.name for field in fields)


def _json(route: Route, bound: Bound, size: int) -> bytes:
    """What a request's field holds whose bound this is."""
    body = body_of(route.struct, bound, route.base, size)
    return encoded(body[bound.place.steps[0].name])
