"""The standard samplers, and a ratio that is changed."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from observability.sampling import TraceSampling, sampling_of


@pytest.mark.parametrize(
    ("name", "argument", "ratio", "follows"),
    [
        ("", "", 1.0, True),
        ("always_on", "0.5", 1.0, False),
        ("always_off", "", 0.0, False),
        ("traceidratio", "0.25", 0.25, False),
        ("parentbased_always_on", "", 1.0, True),
        ("parentbased_always_off", " ", 0.0, True),
        (" ParentBased_TraceIdRatio ", "0.1", 0.1, True),
    ],
)
def test_each_standard_sampler_is_a_ratio_and_whether_callers_decide(
    name: str, argument: str, ratio: float, follows: bool
) -> None:
    environ = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert sampling_of(environ) == TraceSampling(ratio, follows)


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("sometimes", "", "OTEL_TRACES_SAMPLER"),
        ("parentbased_", "", "OTEL_TRACES_SAMPLER"),
        ("traceidratio", "1.5", "OTEL_TRACES_SAMPLER_ARG is '1.5'; .* from 0 to 1"),
        ("traceidratio", "nan", "OTEL_TRACES_SAMPLER_ARG is 'nan'; .* from 0 to 1"),
        ("", "half", "OTEL_TRACES_SAMPLER_ARG is 'half'; .* from 0 to 1"),
    ],
)
def test_what_is_no_sampler_or_ratio_is_refused(name: str, argument: str, message: str) -> None:
    environ = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}
    with pytest.raises(ValueError, match=message):
        sampling_of(environ)


@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.5, 1.0])
def test_the_same_traces_are_taken_as_by_other_services(ratio: float) -> None:
    sdk, own = TraceIdRatioBased(ratio), TraceSampling(ratio, follows_callers=False)
    draw = random.Random(1)
    ids = [draw.getrandbits(128) for _ in range(2000)] + [0, 2**64 - 1, 2**128 - 1]
    expected = [sdk.should_sample(None, one, "").decision.is_sampled() for one in ids]
    assert [own.takes(one) for one in ids] == expected


def test_a_callers_flag_decides_only_where_callers_are_followed() -> None:
    for follows in (True, False):
        assert TraceSampling(0.0, follows).takes(1, caller_sampled=True) == follows
        assert TraceSampling(1.0, follows).takes(1, caller_sampled=False) != follows
        assert TraceSampling(1.0, follows).takes(1)
