"""What is refused before its weights are downloaded, and that nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from engine.architecture.errors import UnsupportedError
from engine.architecture.fields import ConfigFields
from engine.architecture.unserved import OTHER_HEADS, OTHER_TYPES, refuse_other_kinds


def refuse(**values: Any) -> None:
    refuse_other_kinds(ConfigFields("config.json", values), None)


@pytest.mark.parametrize(
    "values",
    [
        {"architectures": ["MPNetModel"], "model_type": "mpnet"},
        {"architectures": ["BertForMaskedLM"], "model_type": "bert"},
        {"architectures": ["Qwen3ForSequenceClassification"]},
        {"architectures": [], "model_type": "mpnet"},
    ],
)
def test_encoders_and_other_heads_are_refused_with_the_reason_that_is_known(
    values: dict[str, Any],
) -> None:
    with pytest.raises(
        UnsupportedError, match=f": {(values['architectures'] or ['mpnet'])[0]} is not supported"
    ):
        refuse(**values)
    why_not = UnsupportedError("because")
    with pytest.raises(UnsupportedError, match="because"):
        refuse_other_kinds(ConfigFields("config.json", values), why_not)


@pytest.mark.parametrize(
    "values",
    [
        {"architectures": ["OtherModel"], "model_type": "other"},
        {"architectures": ["OtherForMaskedLM", "OtherForCausalLM"]},
        {"architectures": ["OtherForConditionalGeneration"], "model_type": 3},
        {"architectures": ["OtherForCausalLM"], "model_type": []},
        {"model_type": "llama"},
    ],
)
def test_what_transformers_may_compute_is_left_to_it(values: dict[str, Any]) -> None:
    refuse(**values)


def test_none_of_it_is_a_causal_language_model_in_transformers() -> None:
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    models: dict[str, Any] = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    bodies: dict[str, Any] = auto.MODEL_MAPPING_NAMES
    assert not OTHER_TYPES & models.keys()
    assert bodies.keys() >= OTHER_TYPES
    for model_type, found in models.items():
        for named in (found, bodies.get(model_type, ())):
            for name in [named] if isinstance(named, str) else named:
                refuse(architectures=[name], model_type=model_type)
    assert all(head.startswith("For") for head in OTHER_HEADS)
