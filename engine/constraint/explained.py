"""Says in plain words why llguidance refuses a grammar.

Its errors begin with a place in the grammar, ``at 3(5): ``, and quote regexes and other libraries'
messages. They may repeat a client's text several times, so each pattern is matched at one place, in
linear time.
"""

from __future__ import annotations

import re

_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_QUOTED_REGEX = re.compile(r'invalid regex "(?:[^"\\]++|\\.)*+" \([a-z ]*\): ', re.DOTALL)
_PARSE_ERROR = "regex parse error: "
_LOOKAROUND = re.compile(r"lookarounds not supported yet; (Word)?")
_OUTSIDE = re.compile(r"Resource '(?:json-schema:///)?(\S*)' is not present in a registry")
_IN_SCHEMA = "failed to compile JSON schema: "
_MOST_SHOWN = 200


def plain_error(error: str, *, has_place: bool) -> str:
    """Return the library's error in plain words. ``has_place``: say in which line of the grammar it
    is."""
    place = _PLACE.match(error)
    if place is None:
        return _plain(error)
    where = f"line {place[1]}, column {place[2]}: " if has_place else ""
    return where + _plain(error[place.end() :])


def _plain(error: str) -> str:
    if not error.startswith(_IN_SCHEMA):
        return _regex_error(error)
    error = error.removeprefix(_IN_SCHEMA)
    if outside := _OUTSIDE.match(error):
        return (
            f"the reference '{outside[1][:_MOST_SHOWN]}' leads to another document; only those "
            "within the schema, such as '#/$defs/name', are supported"
        )
    return f"the JSON schema cannot be compiled: {_regex_error(error)}"


def _regex_error(error: str) -> str:
    if quoted := _QUOTED_REGEX.match(error):
        error = error[quoted.end() :]
    if lookaround := _LOOKAROUND.match(error):
        if lookaround[1]:
            return r"word boundaries (\b, \B, \<, \>) are not supported in a regex"
        return "in a regex, ^ and $ are supported only at its ends, and without the flag m"
    if error.startswith(_PARSE_ERROR):
        return f"the regex is invalid: {error.rpartition(' error: ')[2]}"
    return error
