"""How config.json describes rotary position embeddings. Does not import torch.

RoFormer (arXiv 2104.09864); position interpolation (2306.15595); NTK-by-parts as in YaRN
(2309.00071); LongRoPE's factor for each frequency (2402.13753); Llama 3.1's wavelength-dependent
scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine.architecture.errors import UnsupportedError
from engine.architecture.fields import ConfigFields

SERVED = ("default", "linear", "llama3", "yarn")
LONG = ("longrope", "su", "yarn")  # what Phi-3's checkpoints call LongRoPE
MAX_LENGTH = 1 << 30
_MOST_FACTORS = 1024
_MIN_THETA = 1.001  # a base of 1 or less turns every pair alike


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``theta``: the base. The other fields belong to the scaling ``kind`` that names them in
    the literature; ``original_positions`` is the context length before scaling, in tokens."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original_positions: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # yarn, longrope: multiplies cosines and sines
    truncate: bool = True  # yarn: whole dimensions as the ramp's ends
    # longrope: a factor for each frequency, for models of up to the original positions or of more
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    share: float = 1.0  # of a head's elements that turn; the first of them
    turning: float = 1.0  # proportional: of a head's pairs; the others have a frequency of zero

    def rotary_dim(self, head_dim: int) -> int:
        """Return how many elements of a head turn."""
        return int(head_dim * self.share)


NO_ROPE = RopeConfig(share=0.0)
"""Turns nothing, for kernels that turn every layer's queries and keys."""


def scaled_positions(model_type: str, ropes: Iterable[RopeConfig], positions: int) -> int:
    """Return how many positions the scaling reaches, as vLLM counts them. ``positions``:
    config.json's. ``linear`` and ``dynamic`` multiply them; YaRN multiplies the original positions
    that it names. For Gemma 3 and all other kinds they already include the scaling."""
    if "gemma3" in model_type:
        return positions
    reached = [min(_before_scaling(rope, positions) * rope.factor, MAX_LENGTH) for rope in ropes]
    return max(positions, int(max(reached, default=0)))


def _before_scaling(rope: RopeConfig, positions: int) -> int:
    if rope.kind == "yarn":
        return rope.original_positions
    return positions if rope.kind in ("linear", "dynamic") else 0


def read_rope(
    fields: ConfigFields, max_position_embeddings: int, default_theta: float = 10_000.0
) -> RopeConfig:
    """Rotary settings from ``rope_parameters`` (transformers 5) or ``rope_theta`` and
    ``rope_scaling`` (before). Raises ConfigError when they are unusable or unserved."""
    scaling = _settings(fields)
    theta = fields.number("rope_theta", default_theta, low=_MIN_THETA, high=1e15)
    if scaling is None:
        return RopeConfig(theta=theta)
    return read_scaling(fields, scaling, max_position_embeddings, theta)


def read_text_rope(
    fields: ConfigFields, max_position_embeddings: int, default_theta: float
) -> RopeConfig:
    """Do the same where positions have three axes for images (M-RoPE). A token of text has the same
    position on each, so that the rotation is the usual one, however the axes share a head."""
    scaling = _settings(fields)
    if scaling is None or scaling.text("rope_type", scaling.text("type", "default")) != "mrope":
        return read_rope(fields, max_position_embeddings, default_theta)
    theta = fields.number("rope_theta", default_theta, low=_MIN_THETA, high=1e15)
    plain = ConfigFields(scaling.source, scaling.values | {"rope_type": "default"})
    return read_scaling(fields, plain, max_position_embeddings, theta)


def _settings(fields: ConfigFields) -> ConfigFields | None:
    """Return the object that has the settings, under its new or its old name. Raises
    UnsupportedError for two that differ: libraries disagree on which counts."""
    given = [fields.section("rope_parameters"), fields.section("rope_scaling")]
    found = [each for each in given if each is not None and each.values]
    if len(found) == 2 and found[0].values != found[1].values:
        raise UnsupportedError(
            f"{fields.source} has both rope_parameters and rope_scaling, and they differ"
        )
    return found[0] if found else None


def read_scaling(
    fields: ConfigFields, scaling: ConfigFields, max_position_embeddings: int, theta: float
) -> RopeConfig:
    """Do the same from the object that has the settings. ``theta``: where it names none."""
    theta = scaling.number("rope_theta", theta, low=_MIN_THETA, high=1e15)
    partial = scaling.number(
        "partial_rotary_factor",
        fields.number("partial_rotary_factor", 1.0, low=0.0, high=1.0),
        low=0.0,
        high=1.0,
    )
    if partial != 1.0:
        raise UnsupportedError(
            f"{scaling.source}: a partial_rotary_factor other than 1 is not supported"
        )
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind not in SERVED:
        raise UnsupportedError(
            f"{scaling.source}: rope type {kind!r} is not supported; supported: {', '.join(SERVED)}"
        )
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        factor = scaling.number("factor", low=1e-3, high=1e6)
        return RopeConfig(theta=theta, kind=kind, factor=factor)
    # As in transformers, the one outside the scaling counts where they differ.
    original = max_position_embeddings
    for place in (scaling, fields):
        original = place.integer(
            "original_max_position_embeddings", original, low=1, high=MAX_LENGTH
        )
    if kind == "llama3":
        return _read_llama3(scaling, theta, original)
    return _read_yarn(scaling, theta, original, max_position_embeddings)


def read_long_rope(fields: ConfigFields, max_position_embeddings: int, head_dim: int) -> RopeConfig:
    """Rotary settings of Phi-3: plain ones or LongRoPE, of a part of each head or all of it. Raises
    ConfigError."""
    scaling = _settings(fields) or ConfigFields(fields.source, {})
    theta = fields.number("rope_theta", 10_000.0, low=_MIN_THETA, high=1e15)
    theta = scaling.number("rope_theta", theta, low=_MIN_THETA, high=1e15)
    share = fields.number("partial_rotary_factor", 1.0, low=0.01, high=1.0)
    share = scaling.number("partial_rotary_factor", share, low=0.01, high=1.0)
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind not in ("default", *LONG):
        raise UnsupportedError(
            f"{scaling.source}: rope type {kind!r} is not supported; supported: default, longrope"
        )
    pairs = int(head_dim * share) // 2
    if pairs == 0 or int(head_dim * share) % 2:
        raise UnsupportedError(
            f"{scaling.source}: partial_rotary_factor {share:g} of a head's {head_dim} elements is "
            "not a whole number of pairs, which rotary embeddings turn"
        )
    if kind == "default":
        return RopeConfig(theta=theta, share=share)
    original = fields.integer("original_max_position_embeddings", 4096, low=2, high=MAX_LENGTH)
    factor = scaling.number("factor", max_position_embeddings / original, low=1e-6, high=1e6)
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return RopeConfig(
        theta=theta,
        kind="longrope",
        factor=factor,
        original_positions=original,
        attention_factor=scaling.number("attention_factor", usual, low=0.0, high=1e6),
        short_factors=_factors(scaling, "short_factor", pairs),
        long_factors=_factors(scaling, "long_factor", pairs),
        share=share,
    )


def read_proportional(scaling: ConfigFields, theta: float) -> RopeConfig:
    """Rotary settings of Gemma 4: plain ones, or those where a part of a head's pairs turns, with
    the frequencies that they have if all turn. ``theta``: where it names none. Raises
    ConfigError."""
    theta = scaling.number("rope_theta", theta, low=_MIN_THETA, high=1e15)
    kind = scaling.text("rope_type", "default")
    if kind not in ("default", "proportional"):
        raise UnsupportedError(
            f"{scaling.source}: rope type {kind!r} is not supported here; supported: default, "
            "proportional"
        )
    if kind == "default":
        return RopeConfig(theta=theta)
    return RopeConfig(
        theta=theta,
        kind=kind,
        factor=scaling.number("factor", 1.0, low=1e-3, high=1e6),
        turning=scaling.number("partial_rotary_factor", 1.0, low=0.0, high=1.0),
    )


def _factors(scaling: ConfigFields, name: str, count: int) -> tuple[float, ...]:
    values = scaling.values.get(name)
    expected = f"a list of {count} positive numbers, one a pair that turns"
    if not isinstance(values, list) or len(values) != count or count > _MOST_FACTORS:
        raise scaling.error(name, expected, values)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise scaling.error(name, expected, values)
    return tuple(map(float, values))


def _read_llama3(scaling: ConfigFields, theta: float, original: int) -> RopeConfig:
    low = scaling.number("low_freq_factor", low=1e-6, high=1e6)
    high = scaling.number("high_freq_factor", low=1e-6, high=1e6)
    if high < low:
        raise scaling.error("high_freq_factor", f"at least low_freq_factor {low:g}", high)
    return RopeConfig(
        theta=theta,
        kind="llama3",
        factor=scaling.number("factor", low=1e-3, high=1e6),
        original_positions=original,
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _read_yarn(scaling: ConfigFields, theta: float, original: int, positions: int) -> RopeConfig:
    factor = scaling.number("factor", max(1.0, positions / original), low=1e-3, high=1e6)
    return RopeConfig(
        theta=theta,
        kind="yarn",
        factor=factor,
        original_positions=original,
        beta_fast=scaling.number("beta_fast", 32.0, low=1e-6, high=1e6) or 32.0,
        beta_slow=scaling.number("beta_slow", 1.0, low=1e-6, high=1e6) or 1.0,
        attention_factor=scaling.number(
            "attention_factor", _yarn_attention_factor(scaling, factor), low=0.0, high=1e6
        ),
        truncate=scaling.flag("truncate", True),
    )


def _yarn_attention_factor(scaling: ConfigFields, factor: float) -> float:
    """The temperature of section 3.4 of the YaRN paper; ``mscale`` pairs as DeepSeek defines."""

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    mscale = scaling.number("mscale", 0.0, low=0.0, high=1e6)
    all_dims = scaling.number("mscale_all_dim", 0.0, low=0.0, high=1e6)
    return scale(mscale) / scale(all_dims) if mscale and all_dims else scale(1.0)
