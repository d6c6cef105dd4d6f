"""Parses specs such as ``simulated:fast,step=8ms,script=FILE``. Pure, and importable without torch.

``simulated:[PROFILE][,KEY=VALUE…]``: a profile sets every value, keys override them one by one. A
comma inside a value is literal unless ``word=`` follows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from engine.architecture.errors import ModelError

PREFIX = "simulated:"
DEFAULT_PROFILE = "fast"

_SEPARATOR = re.compile(r",(?=[a-z_]+=)")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class SpecError(ValueError):
    """The text is not a valid simulation; the message names the part at fault."""


_MOST_SECONDS = 10
_MOST_PREFILL = 1_000_000_000
_MOST_TOKENS = 16_777_216
_FEWEST_KV, _MOST_KV = 16, 268_435_456

StepSeconds = Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]
Tokens = Annotated[int, Meta(ge=1, le=_MOST_TOKENS)]


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """How a simulated model behaves. A step takes ``step`` seconds, plus ``per_sequence`` for each
    sequence that it gives one token, plus the time for its prompt tokens at ``prefill`` tokens per
    second (0: no time). Lengths are in tokens."""

    profile: str
    step: StepSeconds
    per_sequence: StepSeconds
    prefill: Annotated[int, Meta(ge=0, le=_MOST_PREFILL)]
    output: tuple[Tokens, Tokens]  # shortest and longest answer without a script
    context: Tokens  # longest prompt plus output
    kv_tokens: Annotated[int, Meta(ge=_FEWEST_KV, le=_MOST_KV)]  # simulated size of the KV cache
    script: str | None = None
    tokenizer: str | None = None  # directory in Hugging Face layout

    def step_seconds(self, *, decoding: int, prompt_tokens: int) -> float:
        """Return the duration of a step with this many decoding sequences and prompt tokens."""
        prefill = prompt_tokens / self.prefill if self.prefill else 0.0
        return self.step + decoding * self.per_sequence + prefill

    def longest_sequence(self, asked: int | None) -> int:
        """Return the most tokens of a sequence. ``asked``: --max-model-len. Raises ModelError."""
        longest = asked or self.context
        if longest > self.context:
            raise ModelError(
                f"--max-model-len {longest} exceeds the simulation's context of {self.context}"
            )
        return longest


# Round numbers in the right order of magnitude, not measurements.
PROFILES: Mapping[str, Simulation] = {
    profile.profile: profile
    for profile in (
        Simulation(
            profile="instant",
            step=0.0,
            per_sequence=0.0,
            prefill=0,
            output=(16, 256),
            context=131_072,
            kv_tokens=1_048_576,
        ),
        Simulation(
            profile="fast",
            step=2e-3,
            per_sequence=2e-5,
            prefill=100_000,
            output=(16, 256),
            context=131_072,
            kv_tokens=1_048_576,
        ),
        # 8 billion parameters in bfloat16: each step reads 16 GB of weights; the rest of 80 GB
        # holds 128 KiB per token.
        Simulation(
            profile="h100-8b",
            step=6.5e-3,
            per_sequence=4e-5,
            prefill=25_000,
            output=(64, 512),
            context=131_072,
            kv_tokens=425_984,
        ),
        # 70 billion parameters in bfloat16 on four such GPUs.
        Simulation(
            profile="h100x4-70b",
            step=16e-3,
            per_sequence=6e-5,
            prefill=10_000,
            output=(64, 512),
            context=131_072,
            kv_tokens=442_368,
        ),
    )
}


def is_simulated(model: str) -> bool:
    """True if ``--model`` names a simulation instead of a directory."""
    return model.startswith(PREFIX)


def with_tokenizer(model: str, directory: str) -> str:
    """Return the spec, with this tokenizer if it names none. Raises SpecError."""
    if parse_spec(model).tokenizer is not None:
        return model
    return f"{model},tokenizer={directory}"


def parse_spec(model: str) -> Simulation:
    """Raises SpecError."""
    if not is_simulated(model):
        raise SpecError(f"{model!r} does not begin with {PREFIX}")
    first, *settings = _SEPARATOR.split(model.removeprefix(PREFIX))
    if "=" in first:
        first, settings = "", [first, *settings]
    name = first or DEFAULT_PROFILE
    profile = PROFILES.get(name)
    if profile is None:
        raise SpecError(f"{model}: no profile {name!r}; there are {', '.join(PROFILES)}")
    values = msgspec.structs.asdict(profile)
    given: set[str] = set()
    for setting in settings:
        key, _, text = setting.partition("=")
        if key not in _KEYS:
            raise SpecError(f"{model}: no key {key!r}; there are {', '.join(_KEYS)}")
        if key in given:
            raise SpecError(f"{model}: {key} is given twice")
        given.add(key)
        values[key] = _value(model, key, text)
    if values["output"][0] > values["output"][1]:
        raise SpecError(f"{model}: output: the shortest length comes first")
    if "kv_tokens" not in given:
        values["kv_tokens"] = max(values["kv_tokens"], values["context"])
    return Simulation(**values)


def _value(model: str, key: str, text: str) -> Any:
    read, expected = _KEYS[key]
    try:
        return msgspec.convert(read(text), _TYPES[key])
    except (msgspec.ValidationError, ValueError):
        raise SpecError(f"{model}: {key} must be {expected}, not {text!r}") from None


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1]) * _SECONDS[found[2]]


def _range(text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), int(found[2] or found[1])


def _integer(text: str) -> int:
    if not re.fullmatch(r"\d{1,12}", text):
        raise ValueError(text)
    return int(text)


def _path(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


_TYPES = get_type_hints(Simulation, include_extras=True)
# The parser of each key's text, and a description of valid values, for errors.
_KEYS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "step": (_duration, f"a duration like 8ms, 250us or 0.5s, at most {_MOST_SECONDS}s"),
    "per_sequence": (_duration, f"a duration like 40us, at most {_MOST_SECONDS}s"),
    "prefill": (
        _integer,
        f"a whole number of tokens a second, at most {_MOST_PREFILL:,}, 0 for no limit",
    ),
    "output": (
        _range,
        f"a number of tokens like 200, or a range like 20-400, from 1 to {_MOST_TOKENS:,}",
    ),
    "context": (_integer, f"a whole number of tokens from 1 to {_MOST_TOKENS:,}"),
    "kv_tokens": (_integer, f"a whole number of tokens from {_FEWEST_KV} to {_MOST_KV:,}"),
    "script": (_path, "a file"),
    "tokenizer": (_path, "a directory"),
}
