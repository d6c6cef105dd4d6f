"""Random JSON schemas of the dialect that is enforced, from a seed.

They allow no endless value (strings, arrays and numbers are bounded), so that random weights come
to an end; everything else is there: unions, references, recursion, patterns, formats, nesting.
"""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

_NAMES = ("a", "b", "name", "tags", "größe", 'with "quotes"', "x y", "n0", "後", "back\\slash")
_PATTERNS = (
    "^[a-c]{1,4}$",
    "^x-[0-9]{2}$",
    "[xyz]{2}$",
    r"^\d{3}-[A-Z]$",
    "^(ab|cd){1,2}$",
    '^"+$',
)
_FORMATS = ("date", "time", "date-time", "uuid", "ipv4")
_CONSTANTS = ("red", "gr\nün", 'q"uote', 7, -3, 2.5, True, None, [1, "two"], {"k": ["v"]})


class SchemaMaker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._definitions: dict[str, Schema] = {}

    def make(self) -> Schema:
        """A schema; an object with definitions that it refers to, as a rule."""
        schema = self._object(3) if self._random.random() < 0.7 else self._any(3)
        if self._definitions:
            schema = {**schema, "$defs": self._definitions}
        return schema

    def _any(self, depth: int) -> Schema:
        kinds = [self._string, self._integer, self._number, self._choice, self._simple]
        if depth > 0:
            kinds += [self._object, self._array, self._union, self._reference, self._merged]
        return self._random.choice(kinds)(depth - 1)

    def _string(self, _: int) -> Schema:
        match self._random.randrange(4):
            case 0:
                return {"type": "string", "pattern": self._random.choice(_PATTERNS), "maxLength": 8}
            case 1:
                return {"type": "string", "format": self._random.choice(_FORMATS)} | (
                    {"maxLength": 40}
                )
            case _:
                least = self._random.randrange(4)
                return {"type": "string", "minLength": least, "maxLength": least + 6}

    def _integer(self, _: int) -> Schema:
        least = self._random.randrange(-2000, 2000)
        schema: Schema = {"type": "integer", "minimum": least, "maximum": least + 1000}
        if self._random.random() < 0.3:
            schema["multipleOf"] = self._random.choice((2, 3, 5, 7))
        if self._random.random() < 0.3:
            schema["exclusiveMaximum"] = schema.pop("maximum") + 1
        return schema

    def _number(self, _: int) -> Schema:
        least = self._random.uniform(-100, 100)
        return {"type": "number", "minimum": least, "exclusiveMaximum": least + 50}

    def _choice(self, _: int) -> Schema:
        count = self._random.randint(1, 4)
        values = self._random.sample(_CONSTANTS, count)
        return {"const": values[0]} if count == 1 else {"enum": values}

    def _simple(self, _: int) -> Schema:
        return {"type": self._random.choice(("boolean", "null", ["boolean", "null"]))}

    def _array(self, depth: int) -> Schema:
        schema: Schema = {"type": "array", "items": self._any(depth), "maxItems": 3}
        if self._random.random() < 0.4:
            schema["minItems"] = self._random.randint(1, 2)
        if self._random.random() < 0.3:
            schema["prefixItems"] = [self._any(depth)]
        return schema

    def _object(self, depth: int) -> Schema:
        names = self._random.sample(_NAMES, self._random.randint(0, 4))
        schema: Schema = {
            "type": "object",
            "properties": {name: self._any(depth) for name in names},
            "required": [name for name in names if self._random.random() < 0.7],
            "additionalProperties": False,
        }
        if names and self._random.random() < 0.5:
            del schema["additionalProperties"]  # what it does not name is not written all the same
        if self._random.random() < 0.15:
            schema["additionalProperties"] = self._simple(depth)
            schema["maxProperties"] = len(schema["required"]) + 1
            schema["properties"] = {
                name: part
                for name, part in schema["properties"].items()
                if name in schema["required"]
            }
        return schema

    def _union(self, depth: int) -> Schema:
        return {"anyOf": [self._any(depth) for _ in range(self._random.randint(1, 3))]}

    def _reference(self, depth: int) -> Schema:
        name = f"d{len(self._definitions)}"
        self._definitions[name] = {"type": "null"}  # its place, while it is made
        body = self._any(depth)
        if self._random.random() < 0.3:  # a list of itself, which ends
            body = {
                "type": "object",
                "properties": {"value": body, "next": {"$ref": f"#/$defs/{name}"}},
                "required": ["value"],
                "additionalProperties": False,
            }
        self._definitions[name] = body
        return {"$ref": f"#/$defs/{name}"}

    def _merged(self, depth: int) -> Schema:
        first, second = self._random.sample(_NAMES, 2)
        return {
            "allOf": [
                {"type": "object", "properties": {first: self._any(depth)}, "required": [first]},
                {"type": "object", "properties": {second: self._any(depth)}, "required": [second]},
            ],
            "properties": {first: True, second: True},
            "unevaluatedProperties": True,
            "maxProperties": 2,
        }
