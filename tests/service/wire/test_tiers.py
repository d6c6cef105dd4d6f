"""The names of tiers are the vendors' own, in requests and in answers."""

from __future__ import annotations

from typing import get_args

import anthropic.types
import openai.types.chat
import openai.types.responses

from engine.queueing import ServiceClass
from service.wire.tiers import (
    ANTHROPIC_TIERS,
    ANTHROPIC_USED,
    OPENAI_TIERS,
    OPENAI_USED,
    AnthropicTier,
    OpenAITier,
)


def _names(model: type, field: str) -> set[str]:
    options = get_args(model.model_fields[field].annotation)  # type: ignore[attr-defined]
    return {name for option in options for name in get_args(option)}


def test_requests_take_every_name_of_the_vendors() -> None:
    assert set(OPENAI_TIERS) < set(get_args(OpenAITier))
    assert set(ANTHROPIC_TIERS) < set(get_args(AnthropicTier))
    assert set(get_args(AnthropicTier)) == {"auto", "standard_only"}


def test_answers_use_only_names_that_the_sdks_know() -> None:
    assert OPENAI_USED.keys() == ANTHROPIC_USED.keys() == set(ServiceClass)
    for model in (openai.types.chat.ChatCompletion, openai.types.responses.Response):
        of_openai = _names(model, "service_tier")
        assert set(OPENAI_USED.values()) <= of_openai <= set(get_args(OpenAITier))
    assert set(ANTHROPIC_USED.values()) == _names(anthropic.types.Usage, "service_tier")
