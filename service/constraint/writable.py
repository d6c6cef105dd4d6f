r"""Restricts a regex to the texts that a JSON string can be written with.

Strings have no ``\uXXXX`` escapes here, so most control characters cannot be written. llguidance
drops such a character where a pattern names it, and reads a class of all control characters as one
that also has the quotation mark and the backslash: ``^[^"]$`` would allow ``"``, and ``^a\x01$``
would allow "a". Without these characters, a regex is read as it is meant.
"""

from __future__ import annotations

import re

_UNWRITABLE = r"\x00-\x07\x0b\x0e-\x1f\x7f"
_IS_UNWRITABLE = re.compile(f"[{_UNWRITABLE}]")
_LETTERS = {"a": "\x07", "v": "\x0b"}  # escapes of characters that cannot be written
_HEX = "[0-9a-fA-F]"
# In the syntax of Rust's regex crate: escapes, flags, single characters.
_TOKEN = re.compile(
    rf"\\x({_HEX}{{2}})|\\u({_HEX}{{4}})|\\U({_HEX}{{8}})|\\[xuU]\{{\s*({_HEX}+)\s*\}}"
    r"|(?P<property>\\[pP](?:\{[^}]*\}|[^{]))|\\(?P<letter>.)"
    r"|\(\?(?P<flags>[a-zA-Z-]*)(?P<scope>[:)])|(?P<char>.)|\\\Z",
    re.DOTALL,
)
# White space and comments, where the regex has the flag to ignore them.
_IGNORED = re.compile(r"\s+|#[^\n]*")
_SKIPPED = re.compile(rf"(\\.)|{_IGNORED.pattern}", re.DOTALL)
# A class up to its first item, which may be a bracket.
_OPENING = re.compile(r"\[\^?(?:-+|\]?)")
_VERBOSE_OPENING = re.compile(
    r"\[#\^?#(?:(?:-#)+|\]?)".replace("#", r"(?:\s|#[^\n]*\n)*")  # spaces may be anywhere
)
# Most classes: nothing in them is a control character that cannot be written.
_PLAIN_CLASS = re.compile(r"\[(?:[^\\\[^\x00-\x1f\x7f]|\\[wdstnrf.\-/])*\]")


def is_writable(text: str) -> bool:
    """Whether a JSON string can be exactly this text."""
    return _IS_UNWRITABLE.search(text) is None


def writable(regex: str) -> str:
    """Return a regex for those texts of this one that can be written. White space and comments
    that it ignores are left out: llguidance escapes line breaks, so that they would count. An
    unsound regex stays unsound."""
    pieces: list[str] = []
    verbose = [False]  # whether white space and comments are ignored, for each open group
    place = 0
    while place < len(regex):
        if regex[place] == "[":
            end = _class_end(regex, place, verbose[-1])
            if end is None:
                pieces.append(regex[place:])
                break
            piece = regex[place:end]
            if verbose[-1]:
                piece = _SKIPPED.sub(r"\1", piece)
            pieces.append(piece if _PLAIN_CLASS.fullmatch(piece) else _restricted(piece))
            place = end
        elif verbose[-1] and (ignored := _IGNORED.match(regex, place)):
            place = ignored.end()
        else:
            found = _TOKEN.match(regex, place)
            assert found is not None  # it matches any character
            _follow_groups(found, verbose)
            is_literal = not _may_be_unwritable(found)
            pieces.append(found[0] if is_literal else _restricted(f"[{found[0]}]"))
            place = found.end()
    return "".join(pieces)


def _restricted(character_class: str) -> str:
    return f"[{character_class}&&[^{_UNWRITABLE}]]"


def _may_be_unwritable(found: re.Match[str]) -> bool:
    if found["property"]:
        return True
    code = found[1] or found[2] or found[3] or found[4]
    if code:
        number = int(code, 16)
        char = chr(number) if number < 0x80 else ""
    else:
        char = found["char"] or found["letter"] or ""
        char = _LETTERS.get(char, char) if found["letter"] else char
    return _IS_UNWRITABLE.match(char) is not None


def _follow_groups(found: re.Match[str], verbose: list[bool]) -> None:
    if found["scope"]:
        added, _, removed = found["flags"].partition("-")
        now = ("x" in added or verbose[-1]) and "x" not in removed
        if found["scope"] == ":":
            verbose.append(now)
        else:
            verbose[-1] = now
    elif found["char"] == "(":
        verbose.append(verbose[-1])
    elif found["char"] == ")" and len(verbose) > 1:
        verbose.pop()


def _class_end(regex: str, start: int, verbose: bool) -> int | None:
    """Return the end of the class that begins here and of those nested in it; None if there is
    none."""
    opening = _VERBOSE_OPENING if verbose else _OPENING
    place, depth = start, 0
    while place < len(regex):
        char = regex[place]
        if char == "[":
            depth += 1
            found = opening.match(regex, place)
            place = found.end() if found else place + 1
            continue
        if char == "#" and verbose:
            place = regex.find("\n", place)
            if place < 0:
                return None
        place += 2 if char == "\\" else 1
        if char == "]":
            depth -= 1
            if not depth:
                return place
    return None
