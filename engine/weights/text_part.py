"""The tensors of a language model among those of a checkpoint that also reads images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from engine.architecture.errors import WeightsError
from engine.architecture.text_part import TextModelPart, text_name

AnyTensor = TypeVar("AnyTensor")


def without_media(
    stored: Mapping[str, AnyTensor], part: TextModelPart | None
) -> Mapping[str, AnyTensor]:
    """Leave out what no text passes through. ``part``: None if the checkpoint has nothing else."""
    if part is None:
        return stored
    return {name: each for name, each in stored.items() if not part.is_media(name)}


def by_text_name(
    stored: Mapping[str, AnyTensor], part: TextModelPart | None
) -> Mapping[str, AnyTensor]:
    """Name tensors as in a checkpoint of the language model alone. Raises WeightsError for two of
    the same name."""
    if part is None:
        return stored
    named: dict[str, AnyTensor] = {}
    for name, each in stored.items():
        plain = text_name(name)
        if plain in named:
            raise WeightsError(f"{plain} is stored twice, once as {name}")
        named[plain] = each
    return named
