"""The list of models, as Anthropic's clients page through it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequestError
from service.wire.models import ModelCard, anthropic_model, anthropic_models


def cards(*names: str) -> list[ModelCard]:
    return [
        ModelCard(
            id=name,
            created=86_400,
            root=name,
            max_model_len=4096,
            architecture="LlamaForCausalLM",
            implementation="native",
            quantization="",
            unserved_inputs=(),
            tasks=("generate",),
        )
        for name in names
    ]


NAMES = [f"m{number}" for number in range(7)]


def test_a_model_has_anthropics_fields() -> None:
    model = anthropic_model(cards("m")[0])
    assert (model.id, model.display_name, model.type) == ("m", "m", "model")
    assert model.created_at == "1970-01-02T00:00:00Z"
    assert model.max_input_tokens == model.max_tokens == 4096


@given(limit=st.integers(1, 9))
def test_pages_in_either_direction_are_the_whole_list(limit: int) -> None:
    forward: list[str] = []
    query = {"limit": str(limit)}
    while True:
        page = anthropic_models(cards(*NAMES), query)
        forward += [model.id for model in page.data]
        assert page.first_id == page.data[0].id
        if not page.has_more:
            break
        query["after_id"] = str(page.last_id)
    backward: list[str] = []
    query = {"limit": str(limit), "before_id": NAMES[-1]}
    while True:
        page = anthropic_models(cards(*NAMES), query)
        backward[:0] = [model.id for model in page.data]
        if not page.has_more:
            break
        query["before_id"] = str(page.first_id)
    assert forward == NAMES
    assert backward == NAMES[:-1]


def test_an_empty_page_has_neither_first_nor_last() -> None:
    page = anthropic_models(cards("m"), {"after_id": "m"})
    assert (page.data, page.has_more, page.first_id, page.last_id) == ([], False, None, None)


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"after_id": "nobody"}]
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        anthropic_models(cards("m"), query)


def test_a_parameter_that_is_unknown_does_not_matter() -> None:
    assert anthropic_models(cards("m"), {"beta": "true"}).data[0].id == "m"
