"""``POST /v1/completions``: the request, decoded."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError
from service.wire.decode import Ignored, decode
from service.wire.sampling import (
    MAX_TOP_LOGPROBS,
    TokenId,
    check_limits,
    refuse_unserved,
)
from service.wire.structured_output import StructuredOutputFields, idle_fields_of_form

MAX_PROMPTS = 256
DEFAULT_MAX_TOKENS = 16

PromptIds = list[TokenId]
Prompt = str | list[str] | PromptIds | list[PromptIds]


class CompletionRequest(
    StructuredOutputFields, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """OpenAI's legacy request, with the extensions that local servers share. Use ``prompts`` to
    read ``prompt``: JSON lists of strings, of ids and of lists share one type here."""

    prompt: str | list[str | TokenId | PromptIds]
    max_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None
    add_special_tokens: bool = True
    suffix: str | None = None

    other_names: ClassVar[dict[str, str]] = {
        **StructuredOutputFields.other_names,
        "max_new_tokens": "max_tokens",
        "max_completion_tokens": "max_tokens",
    }

    @property
    def prompts(self) -> list[str] | list[PromptIds]:
        """The prompts, all texts or all token ids. Raises InvalidRequestError."""
        return split_prompts(self.prompt)

    @property
    def ranks(self) -> bool:
        """True if more choices are generated than returned; the most likely ones are returned."""
        return self.best_of is not None and self.best_of > (self.n or 1)

    @property
    def only_echo(self) -> bool:
        """True if only the prompt and its logprobs are requested, without output."""
        return self.max_tokens == 0


_decoder = msgspec.json.Decoder(CompletionRequest, strict=True)


def decode_completion(
    body: bytes, *, max_choices: int, ignored: Ignored | None = None
) -> CompletionRequest:
    """Raises InvalidRequestError."""
    ignored = ignored or Ignored()
    request = decode(_decoder, body, ignored)
    ignored.add(*idle_fields_of_form(request))
    refuse_unserved(request, {"suffix": lambda suffix: suffix == ""})
    check_limits(request, max_choices=max_choices)
    n = request.n or 1
    if request.best_of is not None:
        _check_best_of(request, n, max_choices)
        n = request.best_of
    if request.use_beam_search and len(request.prompts) > 1:
        raise InvalidRequestError(
            "'use_beam_search' supports only one prompt.", param="use_beam_search"
        )
    if request.only_echo and not request.echo:
        raise InvalidRequestError("'max_tokens' may be 0 only with 'echo'.", param="max_tokens")
    if len(request.prompts) * n > MAX_PROMPTS:
        raise InvalidRequestError(
            f"At most {MAX_PROMPTS} choices (prompts times n) may be requested at once.",
            param="prompt",
        )
    return request


def _check_best_of(request: CompletionRequest, n: int, max_choices: int) -> None:
    best_of = request.best_of or n
    if best_of < n:
        raise InvalidRequestError("'best_of' must not be less than 'n'.", param="best_of")
    if best_of > max_choices:
        raise InvalidRequestError(
            f"'best_of' may be at most {max_choices} on this server.", param="best_of"
        )
    if request.ranks and request.stream:
        raise InvalidRequestError(
            "'best_of' is not supported with 'stream': the best is known at the end.",
            param="best_of",
        )
    if request.ranks and request.use_beam_search:
        raise InvalidRequestError(
            "'best_of' is not supported with 'use_beam_search'.", param="best_of"
        )


def split_prompts(prompt: str | list[Any], *, name: str = "prompt") -> list[str] | list[PromptIds]:
    """``name``: the request's field. Raises InvalidRequestError for an empty or mixed list."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise InvalidRequestError(f"'{name}' must not be empty.", param=name)
    kind = type(prompt[0])
    if len(set(map(type, prompt))) > 1:
        raise InvalidRequestError(
            f"'{name}' must be a string, a list of strings, a list of token ids or a list of such "
            "lists, not a mixture.",
            param=name,
        )
    if kind is int:
        return [prompt]
    if kind is list and not all(prompt):
        raise InvalidRequestError(f"'{name}' holds an empty list of token ids.", param=name)
    return prompt
