"""Which traces are exported by chance: the standard samplers, with a ratio that can be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_LOW_64_BITS = 2**64 - 1


@dataclass(slots=True)
class TraceSampling:
    """``ratio``: of the traces that begin here. ``follows_callers``: where the caller has begun
    the trace, its sampled flag decides instead."""

    ratio: float
    follows_callers: bool

    def takes(self, number: int, caller_sampled: bool | None = None) -> bool:
        """Return whether a trace is exported. ``number``: random, at least 64 bits; the trace's id
        where other services must decide alike. ``caller_sampled``: the caller's flag, None if
        there is none that counts."""
        if self.follows_callers and caller_sampled is not None:
            return caller_sampled
        return number & _LOW_64_BITS < round(self.ratio * 2**64)


def checked_ratio(ratio: float) -> float:
    """Raises ValueError unless it is a number from 0 to 1."""
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"the sampling ratio is {ratio}; it must be from 0 to 1")
    return ratio


def sampling_of(environ: Mapping[str, str]) -> TraceSampling:
    """Read OTEL_TRACES_SAMPLER and its argument, as the specification names them.

    Raises ValueError for an unknown sampler or a ratio that is not from 0 to 1; it names the
    variable.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    ratio = _ratio_of(environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip())
    ratios = {"always_on": 1.0, "always_off": 0.0, "traceidratio": ratio}
    root = name.removeprefix("parentbased_")
    if root not in ratios:
        known = sorted([*ratios, *(f"parentbased_{one}" for one in ratios)])
        raise ValueError(f"OTEL_TRACES_SAMPLER is {name!r}; it must be one of {known}")
    return TraceSampling(ratios[root], follows_callers=root != name)


def _ratio_of(argument: str) -> float:
    try:
        return checked_ratio(float(argument or 1.0))
    except ValueError:
        raise ValueError(
            f"OTEL_TRACES_SAMPLER_ARG is {argument[:32]!r}; it must be a number from 0 to 1"
        ) from None
