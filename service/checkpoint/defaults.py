"""The sampling defaults of a checkpoint, from its generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

GENERATION = "generation_config.json"

_MOST_SHOWN = 80  # characters of a value


class SamplingDefaults(msgspec.Struct, frozen=True):
    """The defaults from generation_config.json for parameters that a request does not set; its
    other keys are ignored. None: the API's own default. An explicit ``do_sample: false`` means
    temperature 0. The bounds are those of requests."""

    do_sample: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_k: Annotated[int, Meta(ge=-1, lt=2**31)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    max_new_tokens: Annotated[int, Meta(ge=1)] | None = None


class IgnoredDefault(NamedTuple):
    """A value of generation_config.json that is not used, and why not."""

    field: str
    value: str
    reason: str


def sampling_defaults(
    generation: Mapping[str, Any],
) -> tuple[SamplingDefaults, list[IgnoredDefault]]:
    """Return the defaults in the content of generation_config.json, and what is left out because no
    request could have it."""
    found: dict[str, Any] = {}
    ignored: list[IgnoredDefault] = []
    for name in SamplingDefaults.__struct_fields__:
        value = given = generation.get(name)
        # JSON writers disagree on whole numbers: 50.0 is read as an integer too. Either type will
        # do for a field of numbers.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            msgspec.convert({name: value}, SamplingDefaults)
        except msgspec.ValidationError as error:
            ignored.append(IgnoredDefault(name, repr(given)[:_MOST_SHOWN], str(error)))
        else:
            found[name] = value
    return msgspec.convert(found, SamplingDefaults), ignored
