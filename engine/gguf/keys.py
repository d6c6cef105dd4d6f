"""Typed, bounded access to the keys of a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader, Value

ARCHITECTURE_KEY = "general.architecture"
TOKENS_KEY = "tokenizer.ggml.tokens"
MAX_SIZE = 1 << 24
MAX_POSITIONS = 1 << 30
MAX_HEADS = 4096
MAX_HEAD_DIM = 1024
MAX_KERNEL = 64
MAX_EXPERTS = 1 << 17
"""Of all layers together: each expert is several named parameters."""


@dataclass(frozen=True, slots=True)
class GgufKeys:
    """A key that is absent takes the default; every other mismatch raises ConfigError naming the
    file, the key and what was expected."""

    header: GgufHeader

    @property
    def source(self) -> str:
        return str(self.header.path)

    def has(self, key: str) -> bool:
        return key in self.header.keys

    def integer(self, key: str, default: int | None = None, *, low: int, high: int) -> int:
        value = self._value(key, default)
        if type(value) is not int or not low <= value <= high:
            raise self.error(key, f"an integer from {low} to {high}", value)
        return value

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"a number from {low:g} to {high:g}", value)
        if not low <= value <= high:  # NaN is not, either
            raise self.error(key, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if type(value) is not bool:
            raise self.error(key, "true or false", value)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.error(key, "a string", value)
        return value

    def texts(self, key: str) -> list[str]:
        """An array of strings; empty when absent."""
        value = self.header.keys.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, "an array of strings", value)
        return value

    def numbers(self, key: str) -> list[float]:
        """An array of numbers; empty when absent."""
        value = self.header.keys.get(key)
        if value is None:
            return []
        if not isinstance(value, np.ndarray):
            raise self.error(key, "an array of numbers", value)
        found: list[float] = value.tolist()
        return found

    def number_per_layer(self, key: str, count: int, *, low: float, high: float) -> list[float]:
        """Return ``count`` numbers, one for each layer: the key's array, or its single value
        repeated. Raises ConfigError."""
        value = self._value(key, None)
        if not isinstance(value, np.ndarray):
            return [self.number(key, low=low, high=high)] * count
        found: list[Any] = value.tolist() if value.size == count else []
        if value.dtype.kind not in "iuf" or not found or not all(low <= n <= high for n in found):
            expected = f"a number from {low:g} to {high:g}, or an array of {count} of them"
            raise self.error(key, expected, value)
        return [float(each) for each in found]

    def flags(self, key: str, count: int) -> list[bool]:
        """An array of ``count`` booleans."""
        value = self._value(key, None)
        if not isinstance(value, np.ndarray) or value.dtype != bool or value.size != count:
            raise self.error(key, f"an array of {count} booleans", value)
        found: list[bool] = value.tolist()
        return found

    def error(self, key: str, expected: str, value: object) -> ConfigError:
        shown = f"an array of {len(value)}" if isinstance(value, list | np.ndarray) else repr(value)
        if len(shown) > 80:
            shown = shown[:80] + "…"
        return ConfigError(f"{self.source}: {key} must be {expected}, not {shown}")

    def _value(self, key: str, default: Value | None) -> Value:
        value = self.header.keys.get(key, default)
        if value is None:
            raise ConfigError(f"{self.source} has no {key}")
        return value


@dataclass(frozen=True, slots=True)
class ArchitectureKeys:
    """The keys of a file's architecture, named without its prefix; ``file`` has all keys."""

    header: GgufHeader
    file: GgufKeys
    prefix: str

    def name(self, key: str) -> str:
        return f"{self.prefix}.{key}"

    def has(self, key: str) -> bool:
        return self.file.has(self.name(key))

    def unsupported(self, key: str, reason: str) -> UnsupportedError:
        return UnsupportedError(f"{self.file.source}: {self.name(key)} {reason}")

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int) -> int:
        return self.file.integer(self.name(key), default, low=low, high=high)

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        return self.file.number(self.name(key), default, low=low, high=high)

    def per_layer(
        self, key: str, count: int, default: int | None = None, *, low: int = 1, high: int
    ) -> list[int]:
        """Return ``count`` integers, one for each layer: the key's array, or its single value
        repeated. Raises ConfigError."""
        name = self.name(key)
        value = self.header.keys.get(name)
        if not isinstance(value, np.ndarray):
            return [self.integer(key, default, low=low, high=high)] * count
        found: list[Any] = value.tolist() if value.size == count else []
        if not found or not all(type(n) is int and low <= n <= high for n in found):
            raise self.file.error(
                name, f"an integer from {low} to {high}, or an array of {count} of them", value
            )
        return found

    def require_multiple(self, key: str, value: int, divisor: int) -> None:
        """Raise ConfigError unless ``value``, which ``key`` has, is a multiple of ``divisor``."""
        if value % divisor:
            raise self.file.error(self.name(key), f"a multiple of {divisor}", value)

    def says(self, key: str, number: float) -> bool:
        """True if the number ``key`` is given and is this one."""
        return self.has(key) and self.number(key, low=-1e30, high=1e30) == number

    def is_set(self, key: str) -> bool:
        """True if the number ``key`` is given and is not 0."""
        return self.has(key) and not self.says(key, 0)
