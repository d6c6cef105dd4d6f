"""Command-line flags and environment variables generated from a settings struct.

A settings struct is a msgspec struct whose fields are annotated with ``setting(…)``: group,
description, bounds. ``max_model_len`` becomes ``--max-model-len`` and ``QUIRE_MAX_MODEL_LEN``;
a bool becomes ``--x`` and ``--no-x``; a list's items are separated by commas, and its flag may be
given several times. Each value is checked separately as it is read, and errors name the flag or
variable. A flag overrides a variable, a variable overrides the default.

A field declared ``secret`` may also be read from a file that ``QUIRE_X_FILE`` names. It is passed
to child processes in the environment (``secret_environment``), never as an argument, which every
user of the machine can read, and no message quotes its value. An empty one is refused: where a key
was meant, a server must not start without.

From the same table ``service.settings_page`` writes docs/settings.md, and ``helm.generate`` the
chart's settings.

    parser = argparse.ArgumentParser()
    add_arguments(parser, EngineConfig)
    parser.set_defaults(**environment_defaults(EngineConfig, os.environ))
    config = from_namespace(EngineConfig, parser.parse_args())
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, inspect

ENVIRONMENT_PREFIX = "QUIRE_"

_EMPTY = "must not be empty; give it a value or leave it unset"

S = TypeVar("S", bound=msgspec.Struct)


class OptionError(ValueError):
    """A flag or variable is missing or has an invalid value."""


def setting(group: str, description: str, *, secret: bool = False, **bounds: Any) -> Meta:
    """Declare one field, next to its type. ``group`` is a heading of ``--help`` and of the
    documentation; ``bounds`` are those of ``msgspec.Meta``."""
    return Meta(description=description, extra={"group": group, "secret": secret}, **bounds)


@dataclass(frozen=True, slots=True)
class Option:
    """One field of a settings struct, as users see it."""

    name: str
    annotation: Any  # the field's type with its bounds, as msgspec checks it
    kind: inspect.Type  # the type without None, descriptions and wrappers
    description: str
    required: bool
    default: Any
    group: str = ""
    secret: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def file_variable(self) -> str:
        return self.variable + "_FILE"

    @property
    def is_list(self) -> bool:
        return isinstance(self.kind, inspect.ListType | inspect.VarTupleType)

    @property
    def explains_default(self) -> bool:
        """True if the description says what happens without a value, even where the struct needs
        one: ``quire serve`` has a model by default, an engine has not."""
        return "efault:" in self.description

    @property
    def choices(self) -> str:
        """Which values there are, in words; empty if they are not a list."""
        if not isinstance(self.kind, inspect.LiteralType):
            return ""
        *others, last = map(str, self.kind.values)
        return f"must be {', '.join(others)} or {last}" if others else f"must be {last}"

    def parse(self, text: str | list[str]) -> Any:
        """Convert what a user typed to the field's value. Raises OptionError."""
        if self.secret and not text:
            raise OptionError(_EMPTY)
        try:
            return self.check(text)
        except msgspec.ValidationError as error:
            reason = self.choices or str(error)
            raise OptionError(f"{reason}{self.quoted(text)}") from None

    def check(self, value: Any) -> Any:
        """Return ``value`` in the field's type. Raises msgspec.ValidationError."""
        return msgspec.convert(value, self.annotation, strict=False)

    def quoted(self, value: Any) -> str:
        """Return ``value`` as an error message may show it."""
        return "" if self.secret else f" (got {value!r})"


def options(struct_type: type[msgspec.Struct]) -> Iterator[Option]:
    """Yield the struct's fields in order."""
    annotations = get_type_hints(struct_type, include_extras=True)
    info = inspect.type_info(struct_type)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        kind, declared = _unwrap(field.type)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Option(
            name=field.name,
            annotation=annotations[field.name],
            kind=kind,
            required=field.required,
            default=default,
            **declared,
        )


def _unwrap(kind: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """Return a field's type without ``| None`` and wrappers, and the metadata that ``setting``
    declared."""
    declared: dict[str, Any] = {"description": ""}
    while True:
        if isinstance(kind, inspect.Metadata):
            schema, extra = kind.extra_json_schema or {}, kind.extra or {}
            declared |= {name: schema[name] for name in ("description",) if name in schema} | extra
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            members = [t for t in kind.types if not isinstance(_bare(t), inspect.NoneType)]
            if len(members) != 1:
                raise TypeError(f"a setting of several types: {kind}")
            kind = members[0]
        else:
            return kind, declared


def _bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def add_arguments(
    parser: argparse.ArgumentParser, struct_type: type[msgspec.Struct], group: str | None = None
) -> None:
    """Add a flag for each field, under the heading of its group in ``--help``, or of ``group``
    if the field has none.

    A flag that is not given sets no attribute, so that defaults are only in the struct.
    """
    headings: dict[str | None, argparse._ActionsContainer] = {None: parser}
    for option in options(struct_type):
        settings: dict[str, Any] = {
            "dest": option.name,
            "default": argparse.SUPPRESS,
            "help": _help(option),
        }
        if isinstance(option.kind, inspect.BoolType):
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["metavar"] = _metavar(option.kind)
            settings["type"] = _splitter(option) if option.is_list else _converter(option)
            if option.is_list:
                settings["action"] = _Gather
        heading = option.group or group
        if heading not in headings:
            headings[heading] = parser.add_argument_group(heading)
        headings[heading].add_argument(option.flag, **settings)


class _Gather(argparse.Action):
    """Joins the lists of a flag that is given several times; the first replaces the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("_given", set())
        before = getattr(namespace, self.dest) if self.dest in given else []
        setattr(namespace, self.dest, [*before, *values])
        given.add(self.dest)


def _converter(option: Option) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return option.parse(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _splitter(option: Option) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        parts = _split(text)
        if option.secret and not parts:
            raise argparse.ArgumentTypeError(_EMPTY)
        return parts

    return split


def _metavar(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType(values):
            return "{" + ",".join(str(value) for value in values) + "}"
        case inspect.IntType():
            return "N"
        case inspect.FloatType():
            return "X"
        case inspect.ListType(item) | inspect.VarTupleType(item):
            return _metavar(_bare(item))
        case _:
            return "TEXT"


def _help(option: Option) -> str:
    facts = [bounds for bounds in [_bounds(option.kind)] if bounds]
    if option.required:
        facts += [] if option.explains_default else ["required"]
    elif option.default not in (None, [], (), ""):
        facts.append(f"default: {option.default}")
    if option.is_list:
        facts.append("several: separated by commas, or repeat the flag")
    facts.append(option.variable)
    if option.secret:
        facts.append(f"or a file: {option.file_variable}")
    # argparse formats help with %, so a literal % must be doubled.
    return f"{option.description} ({'; '.join(facts)})".replace("%", "%%").strip()


def _bounds(kind: inspect.Type) -> str:
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return ""
    parts = [(">=", kind.ge), (">", kind.gt), ("<=", kind.le), ("<", kind.lt)]
    return ", ".join(f"{sign} {bound}" for sign, bound in parts if bound is not None)


def environment_defaults(
    struct_type: type[msgspec.Struct], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields set by environment variables, or by the files they name. Raises
    OptionError naming the variable."""
    defaults: dict[str, Any] = {}
    for option in options(struct_type):
        variable, text = option.variable, environ.get(option.variable)
        if option.secret and (path := environ.get(option.file_variable)) is not None:
            if text is not None:
                raise OptionError(f"set {variable} or {option.file_variable}, not both")
            variable, text = option.file_variable, _read(path, option.file_variable)
        if text is None:
            continue
        try:
            defaults[option.name] = option.parse(_split(text) if option.is_list else text)
        except OptionError as error:
            raise OptionError(f"{variable}: {error}") from None
    return defaults


def _read(path: str, variable: str) -> str:
    """Read a secret's file, without the surrounding white space that editors and ``echo`` add."""
    if not path:
        raise OptionError(f"{variable}: {_EMPTY}")
    try:
        text = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(f"{variable}: cannot read {path}: {reason}") from None
    if not text:
        raise OptionError(
            f"{variable}: {path} is empty; write the secret to it, or unset {variable}"
        )
    if "\0" in text:
        raise OptionError(f"{variable}: {path} holds a NUL character")
    return text


def secret_environment(settings: msgspec.Struct) -> dict[str, str]:
    """Return the variables that pass a child the settings that ``to_argv`` leaves out."""
    found: dict[str, str] = {}
    for option in options(type(settings)):
        value = getattr(settings, option.name)
        if option.secret and value != option.default:
            found[option.variable] = ",".join(value) if option.is_list else str(value)
    return found


def forget_secrets(struct_type: type[msgspec.Struct], environ: MutableMapping[str, str]) -> None:
    """Remove the secrets, once read, from the environment that child processes inherit."""
    for option in options(struct_type):
        if option.secret:
            environ.pop(option.variable, None)


def _split(text: str) -> list[str]:
    parts = (part.strip() for line in text.splitlines() for part in line.split(","))
    return [part for part in parts if part]


def from_namespace(struct_type: type[S], namespace: argparse.Namespace) -> S:
    """Build the struct from parsed arguments. Attributes that are not its fields are ignored.

    Raises OptionError for a missing required field or a value out of bounds.
    """
    values: dict[str, Any] = {}
    for option in options(struct_type):
        if hasattr(namespace, option.name):
            value = getattr(namespace, option.name)
            try:
                values[option.name] = option.check(value)
            except msgspec.ValidationError as error:
                raise OptionError(f"{option.flag}: {error}{option.quoted(value)}") from None
        elif option.required:
            raise OptionError(f"{option.flag} (or {option.variable}) is required")
    return struct_type(**values)


def to_argv(settings: msgspec.Struct) -> list[str]:
    """Return arguments that ``from_namespace`` turns back into an equal struct. Defaults are left
    out, and so are secrets: see ``secret_environment``."""
    argv: list[str] = []
    for option in options(type(settings)):
        value = getattr(settings, option.name)
        if option.secret or (not option.required and value == option.default):
            continue
        if isinstance(option.kind, inspect.BoolType):
            argv.append(option.flag if value else "--no-" + option.flag[2:])
        elif option.is_list:
            argv += [f"{option.flag}={item}" for item in value]
        elif value is None:
            raise OptionError(f"{option.flag}: None cannot be passed as an argument")
        else:
            # One argument, so that a value may begin with a dash.
            argv.append(
                f"{option.flag}={value!r}" if isinstance(value, float) else f"{option.flag}={value}"
            )
    return argv
