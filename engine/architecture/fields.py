"""Reads a JSON object field by field, each checked for type and bounds."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from engine.architecture.errors import ConfigError

_MAX_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """A JSON object and its source. A field that is absent or null takes the default; every other
    mismatch raises ConfigError naming the file, the field and what was expected."""

    source: str
    values: dict[str, object]

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, low: int, high: int) -> int:
        value = self._value(name, default)
        # JSON writers disagree on whole numbers: 1e6 and 4096.0 are read as integers too.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(name, f"an integer from {low} to {high}", value)
        return value

    def number(self, name: str, default: float | None = None, *, low: float, high: float) -> float:
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"a number from {low:g} to {high:g}", value)
        # JSON integers are unbounded; float() of a huge one would overflow.
        if not low <= value <= high or math.isnan(value):
            raise self.error(name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, "a string", value)
        return value

    def strings(self, name: str) -> list[str] | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, "a list of strings", value)
        return value

    def token_ids(self, name: str) -> tuple[int, ...]:
        """One token id or a list of them; empty when absent."""
        value = self.values.get(name)
        if value is None:
            return ()
        ids = value if isinstance(value, list) else [value]
        for item in ids:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < 2**31:
                raise self.error(name, "a token id or a list of token ids", value)
        return tuple(ids)

    def section(self, name: str) -> ConfigFields | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "an object", value)
        return ConfigFields(f"{self.source}: {name}", value)

    def error(self, name: str, expected: str, value: object) -> ConfigError:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        got = "it is missing" if value is None else f"not {shown}"
        return ConfigError(f"{self.source}: {name} must be {expected}, {got}")

    def _value(self, name: str, default: object) -> object:
        value = self.values.get(name)
        return default if value is None else value


def read_json_file(path: Path, max_bytes: int = _MAX_CONFIG_BYTES) -> object:
    """Return the contents of ``path``. Raises ConfigError when it is not readable JSON."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > max_bytes:
        raise ConfigError(f"{path} is larger than {max_bytes} bytes")
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
    return value


def read_object(path: Path, max_bytes: int = _MAX_CONFIG_BYTES) -> ConfigFields:
    """Return the JSON object in ``path``. Raises ConfigError when it is not a readable JSON
    object."""
    values = read_json_file(path, max_bytes)
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a JSON object, not {type(values).__name__}")
    return ConfigFields(str(path), values)
