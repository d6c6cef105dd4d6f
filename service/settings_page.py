"""``python -m service.settings_page [--check]``: writes docs/settings.md from the tables of
settings."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import inspect

from engine.config import EngineConfig
from engine.options import Option, options
from service.hub_settings import HubSettings
from service.settings import ServiceSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

_INTRODUCTION = """\
# Settings

Written by `python -m service.settings_page` (`make docs`) from `engine/config.py`,
`service/hub_settings.py` and `service/settings.py`; a test fails when they differ.

Every setting of `quire serve` is a flag and an environment variable. A flag takes precedence over
the variable, the variable over the default. A switch `--x` is turned off by `--no-x` (variable:
`true` or `false`). A list is separated by commas, or the flag is repeated.

A setting marked **secret** can also be read from the file that the variable with `_FILE` names. Do
not give secrets as flags: every user of the machine can read a process's arguments. Quire itself
passes them on only in the environment of the process that needs them and through pipes to
preparation processes, and never logs them. A secret that is set but empty is refused, so that an
empty `QUIRE_API_KEY` does not start a server without keys.

`quire serve` ignores variables that begin with `QUIRE_` and are not in these tables. The log warns
of each (`ignoring an unknown variable`) and names the setting that may have been meant.
"""


def settings() -> Iterator[Option]:
    """Yield every setting of ``quire serve``."""
    return itertools.chain(options(EngineConfig), options(HubSettings), options(ServiceSettings))


def page() -> str:
    """Return the whole document."""
    parts = [_INTRODUCTION]
    for group, members in itertools.groupby(settings(), lambda option: option.group):
        parts.append(f"\n## {group}\n\n{_table(members)}")
    return "".join(parts)


def _table(members: Iterable[Option]) -> str:
    lines = ["| Flag | Variable | Type | Default | Meaning |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(_cells(option)) + " |" for option in members]
    return "\n".join(lines) + "\n"


def _cells(option: Option) -> Iterator[str]:
    yield f"`{option.flag}`"
    yield f"`{option.variable}`" + (f", `{option.file_variable}`" if option.secret else "")
    yield _type(option.kind)
    yield _default(option)
    yield ("**secret**. " if option.secret else "") + option.description.replace("|", "\\|")


def _type(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "switch"
        case inspect.LiteralType(values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.IntType() | inspect.FloatType():
            name = "integer" if isinstance(kind, inspect.IntType) else "number"
            signs = ((">=", kind.ge), (">", kind.gt), ("<=", kind.le), ("<", kind.lt))
            return ", ".join(
                [name, *(f"{sign} {_number(bound)}" for sign, bound in signs if bound is not None)]
            )
        case inspect.ListType() | inspect.VarTupleType():
            return "list of texts" + _lengths(kind.min_length, kind.max_length, "items")
        case inspect.StrType():
            return "text" + _lengths(kind.min_length, kind.max_length, "characters")
    raise TypeError(f"no words for {kind}")


def _lengths(least: int | None, most: int | None, what: str) -> str:
    least_words = f", >= {least} {what}" if least else ""
    return least_words + (f", <= {most} {what}" if most else "")


def _default(option: Option) -> str:
    if option.required or option.default in (None, (), [], ""):
        if option.explains_default:
            return "see the meaning"
        return "required" if option.required else "none"
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    if isinstance(option.default, int | float):
        return f"`{_number(option.default)}`"
    return f"`{option.default}`"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def main(argv: list[str]) -> int:
    """Write the page, or with ``--check`` only compare: exit status 1 if it is stale."""
    parser = argparse.ArgumentParser(prog="python -m service.settings_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    if parser.parse_args(argv).check:
        current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        if current == page():
            return 0
        print(f"{PAGE} is stale: run python -m service.settings_page", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
