from __future__ import annotations

import pytest

from dashboard.prices import PRICES_VARIABLE, Prices, prices


def test_without_prices_nothing_costs() -> None:
    assert prices({}) is None


def test_cached_tokens_have_a_price_of_their_own() -> None:
    found = prices({PRICES_VARIABLE: "output=2, input=1 cached=0.5"})
    assert found == Prices(1.0, 0.5, 2.0)
    spent = found.cost(prompt_tokens=3_000_000, cached_tokens=2_000_000, output_tokens=500_000)
    assert spent == 1.0 + 1.0 + 1.0
    assert str(found) == "input 1, cached 0.5, output 2"


def test_cached_tokens_cost_as_others_unless_said_otherwise() -> None:
    assert prices({PRICES_VARIABLE: "input=3 output=4"}) == Prices(3.0, 3.0, 4.0)


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "input=1",
        "output=1",
        "input=x output=1",
        "input=-1 output=1",
        "input=nan output=1",
        "input=inf output=1",
    ],
)
def test_a_wrong_price_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"input=0\.50 cached=0\.05 output=1\.50"):
        prices({PRICES_VARIABLE: text})
