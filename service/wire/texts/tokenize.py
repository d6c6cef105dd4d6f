"""``POST /tokenize`` and ``POST /detokenize``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError
from service.wire.chat.request import Message, check_messages
from service.wire.chat.tools import MAX_CHAT_TOOLS, Tool, check_tools
from service.wire.decode import Ignored, decode
from service.wire.sampling import Name, TokenId


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either ``prompt``, or ``messages`` to be rendered by the chat template."""

    model: Name | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None  # default: true for a prompt, false for messages
    messages: Annotated[list[Message], Meta(min_length=1, max_length=16384)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_CHAT_TOOLS)] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: Annotated[dict[str, Any], Meta(max_length=64)] | None = None
    return_token_strs: bool | None = None


class TokenizeResponse(msgspec.Struct, frozen=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: Name | None = None
    tokens: Annotated[list[TokenId], Meta(max_length=4_000_000)]


class DetokenizeResponse(msgspec.Struct, frozen=True):
    prompt: str


_tokenize = msgspec.json.Decoder(TokenizeRequest, strict=True)
_detokenize = msgspec.json.Decoder(DetokenizeRequest, strict=True)


def decode_tokenize(body: bytes, ignored: Ignored | None = None) -> TokenizeRequest:
    """Raises InvalidRequestError."""
    ignored = ignored or Ignored()
    request = decode(_tokenize, body, ignored)
    if (request.prompt is None) == (request.messages is None):
        raise InvalidRequestError("Send either 'prompt' or 'messages'.", param="prompt")
    check_tools(request.tools or (), ignored)
    check_messages(request.messages or (), ignored)
    return request


def decode_detokenize(body: bytes, ignored: Ignored | None = None) -> DetokenizeRequest:
    """Raises InvalidRequestError."""
    return decode(_detokenize, body, ignored)
