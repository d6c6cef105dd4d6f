"""Grammars made to hurt: each as an engine's Lark, by what it tries."""

from __future__ import annotations

import json
import random
from typing import Any


def _lark(*lines: str) -> str:
    return "\n".join(["%llguidance {}", *lines]) + "\n"


def _schema(schema: dict[str, Any]) -> str:
    return _lark(f"start: %json {json.dumps(schema)}")


def _nested(depth: int, wrap: str) -> str:
    return '{"' + wrap + '":' * 0 + "".join(f'{{"{wrap}":[' for _ in range(depth))


def _ambiguous_arrays() -> dict[str, Any]:
    copies = [{"type": "array", "items": {"$ref": "#/$defs/e"}} for _ in range(40)]
    return {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [*copies, {"type": "integer"}]}}}


def _words(count: int, length: int) -> str:
    return "|".join("".join(random.Random(i).choices("abcdef", k=length)) for i in range(count))


GRAMMARS: dict[str, str] = {
    "nested plus": _lark("start: /(a+)+(a+)+(a+)+b/"),
    "nested counts": _lark("start: /((a{1,200}){1,200}){1,200}/"),
    "huge count": _lark("start: /[a-z]{1,1000000}/"),
    "exponential automaton": _lark("start: /(a|b)*a(a|b){30}/"),
    "exponential automaton on any text": _lark(r"start: /(.|\n)*a(.|\n){200}b/"),
    "three automata at once": _lark(
        "start: X", "X: /(a|b)*a(a|b){20}/ & ~/(a|b)*b(a|b){21}/ & /(.)*c?(.){0,60}/"
    ),
    "letters of all scripts": _lark(r"start: /(\p{L}|\p{N}|\p{S}){1,3000}/"),
    "many words": _lark(f"start: /{_words(20_000, 15)}/"),
    "every split of every text": _lark("start: e", "e: e e | /[a-z]/"),
    "empty splits": _lark("start: e", "e: e e e | e e | /[a-z]/ |"),
    "right recursion, twice": _lark("start: e", "e: /[a-z]/ e | /[a-z]/ e e | /[a-z]/"),
    "both sides": _lark('start: e "!"', "e: /[a-z]/ e /[a-z]/ | e e | /[a-z]/"),
    "one letter a rule": _lark("start: e+", *[f"e: /[a-z]/ | r{i}" for i in range(1)])
    + "".join(f"r{i}: r{i + 1} | /[a-z]/ r{i + 1}\n" for i in range(200))
    + "r200: /[a-z]/\n",
    "rules in a circle": _lark("start: a", "a: b", "b: a"),
    "references in a circle": _schema(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "references that double": _schema(
        {
            "$ref": "#/$defs/a0",
            "$defs": {
                **{f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(25)},
                "a25": {"type": "object"},
            },
        }
    ),
    "alternatives that multiply": _schema(
        {
            "allOf": [
                {
                    "anyOf": [
                        {"properties": {f"x{i}": {"const": j}}, "required": [f"x{i}"]}
                        for j in range(6)
                    ]
                }
                for i in range(8)
            ]
        }
    ),
    "forty ways to read an array": _schema(_ambiguous_arrays()),
    "enum of 10,000": _schema({"enum": [f"value-{i:06d}" for i in range(10_000)]}),
    "2,000 optional properties": _schema(
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2_000)}}
    ),
    "lengths up to a million": _schema(
        {"type": "array", "items": {"type": "string", "maxLength": 1_000_000}, "maxItems": 10**6}
    ),
    "pattern of an object's keys": _schema(
        {"type": "object", "patternProperties": {"^(a|b)*a(a|b){20}$": {"type": "string"}}}
    ),
    "multiples": _schema({"type": "number", "multipleOf": 0.000001234567}),
    "multiples of a large prime": _schema({"type": "integer", "multipleOf": 982451653}),
    "not a grammar": "start: /(/\n",
    "half a schema": _lark('start: %json {"type":'),
    "binary": "\x00\x01\x02",
    "lists of grammars": json.dumps({"grammars": [{"lark_grammar": "start: @x"}] * 50}),
}
