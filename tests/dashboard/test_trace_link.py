from __future__ import annotations

import pytest

from dashboard.trace_link import TRACE_VARIABLE, trace_link, trace_url


def test_a_trace_is_where_the_operator_says() -> None:
    address = trace_url({TRACE_VARIABLE: "https://jaeger.example/trace/{trace_id}?x={y}"})
    assert trace_link(address, "ab12") == "https://jaeger.example/trace/ab12?x={y}"


def test_without_an_address_or_a_trace_there_is_no_link() -> None:
    assert trace_link(trace_url({}), "ab12") is None
    assert trace_link("http://a/{trace_id}", "") is None


@pytest.mark.parametrize("text", ["jaeger/{trace_id}", "https://jaeger", "javascript:{trace_id}"])
def test_a_wrong_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"contains \{trace_id\}"):
        trace_url({TRACE_VARIABLE: text})
