"""How a matrix of few bits may be stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.architecture.fields import ConfigFields

MOST_INPUTS = 1 << 24
MOST_RULES = 4096
# Names of codes that are of no other use; and types of codes that are named as usual.
_CODES = ("weight_packed", "qweight")
_BLOCKS = "_blocks"
_CODE_DTYPES = ("F8_E4M3", "I8", "U8")


@dataclass(frozen=True, slots=True)
class Grid:
    """Which elements share a scale: those of ``rows`` outputs and ``columns`` inputs; None: all."""

    rows: int | None
    columns: int | None


WHOLE, BY_ROW = Grid(None, None), Grid(1, None)


@dataclass(frozen=True, slots=True)
class Float8:
    """E4M3 numbers with one of ``grids``: the one that the scales' shape fits. ``divides``: by the
    scales."""

    grids: tuple[Grid, ...]
    divides: bool = False


@dataclass(frozen=True, slots=True)
class IntegerCodes:
    """compressed-tensors' integers, one a byte or ``packed`` into words. ``ordered``: groups are
    not runs of inputs, so the checkpoint must say the group of each input."""

    bits: int
    packed: bool
    grid: Grid
    has_zeros: bool
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Awq:
    """Packed along the outputs. ``group``: inputs; None: all."""

    group: int | None


@dataclass(frozen=True, slots=True)
class Gptq:
    """Packed along the inputs. ``zeros_less_one``: zero points are stored less 1. ``ordered``: see
    ``IntegerCodes``."""

    bits: int
    group: int | None
    zeros_less_one: bool
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Float4:
    """E2M1 numbers, two a byte. ``group``: inputs that share a scale, 32 with an exponent as scale,
    16 with an E4M3 scale and one scale for the matrix. ``divides``: by the latter."""

    group: int
    codes: str = "weight_packed"
    whole_scale: str | None = None
    divides: bool = False


@dataclass(frozen=True, slots=True)
class Experts4:
    """E2M1 numbers of stacked experts, in blocks of 32 with an exponent (gpt-oss)."""


Scheme = Float8 | IntegerCodes | Awq | Gptq | Float4 | Experts4
Matches = Callable[[str], bool]
ModuleRule = tuple[Matches, Scheme | None]


@dataclass(frozen=True, slots=True)
class QuantizedFormat:
    """``rules``: the first that matches a module's name says how its weight is stored; None: in
    floats. ``description``: for people."""

    description: str
    rules: tuple[ModuleRule, ...]

    @property
    def is_floats(self) -> bool:
        """True if no weight is in few bits: only inputs, keys or values were to be."""
        return all(scheme is None for _, scheme in self.rules)

    def scheme_of(self, *module: str) -> Scheme | None:
        """``module``: its name, or all names by which a rule may mean it."""
        return next((scheme for matches, scheme in self.rules if any(map(matches, module))), None)


def every(module: str) -> bool:
    return True


def is_codes(name: str, dtype: str) -> bool:
    """True for a stored tensor that holds a matrix's codes. ``dtype``: as safetensors names it."""
    own = name.rpartition(".")[2]
    return (
        own in _CODES
        or (own == "weight" and dtype in _CODE_DTYPES)
        or (own.endswith(_BLOCKS) and dtype == "U8")
    )


def in_groups(group: int | None) -> str:
    """Return in words what shares a scale."""
    return "a scale for each output" if group is None else f"groups of {group}"


def two_sizes(fields: ConfigFields, name: str) -> tuple[int, int] | None:
    """Return two sizes, of rows and columns; None if there are none. Raises ConfigError."""
    value: Any = fields.values.get(name)
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) != 2
        or any(isinstance(one, bool) or not isinstance(one, int) for one in value)
        or not all(1 <= one <= MOST_INPUTS for one in value)
    ):
        raise fields.error(name, "two sizes, of rows and columns", value)
    return value[0], value[1]
