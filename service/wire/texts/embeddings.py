"""``POST /v1/embeddings``: the request, decoded, and the answer."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError
from service.pooling.scores import floats_of
from service.wire.completions.request import PromptIds, split_prompts
from service.wire.decode import Ignored, decode
from service.wire.pieces import HOLE, array, filled
from service.wire.sampling import Name, TokenId

MAX_INPUTS = 2048

TokenLimit = Annotated[int, Meta(ge=-1, le=2**31)]


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request, with the extensions that local servers share. ``normalize``: scale the
    vectors to length 1; by default as the checkpoint declares."""

    input: str | list[str | TokenId | PromptIds]
    model: Name | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=1 << 24)] | None = None
    user: Name | None = None
    truncate_prompt_tokens: TokenLimit | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool = True
    normalize: bool | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    cache_salt: Name | None = None
    request_id: Name | None = None
    metadata: dict[str, Any] | None = None
    # Other servers' option to cut a text to the model's context: Hugging Face's as a boolean,
    # Cohere's and NVIDIA's by the side that is cut off.
    truncate: bool | Literal["NONE", "START", "END", "LEFT", "RIGHT"] | None = None

    @property
    def truncation(self) -> tuple[int | None, Literal["left", "right"] | None]:
        """``truncate_prompt_tokens`` and ``truncation_side``, under any of their names."""
        if self.truncate_prompt_tokens is not None or self.truncate in (None, False, "NONE"):
            return self.truncate_prompt_tokens, self.truncation_side
        side: Literal["left", "right"] = "left" if self.truncate in ("START", "LEFT") else "right"
        return -1, self.truncation_side if self.truncate is True else side

    @property
    def inputs(self) -> list[str] | list[PromptIds]:
        """All inputs, as texts or as token ids. Raises InvalidRequestError."""
        return split_prompts(self.input, name="input")

    @property
    def names(self) -> list[str]:
        """The inputs' names in errors."""
        count = len(self.inputs)
        is_single = isinstance(self.input, str) or not isinstance(self.input[0], str | list)
        return ["input"] if is_single else [f"input[{index}]" for index in range(count)]


_decoder = msgspec.json.Decoder(EmbeddingRequest, strict=True)


def decode_embeddings(body: bytes, ignored: Ignored | None = None) -> EmbeddingRequest:
    """Raises InvalidRequestError."""
    request = decode(_decoder, body, ignored)
    if len(request.inputs) > MAX_INPUTS:
        raise InvalidRequestError(f"'input' may hold at most {MAX_INPUTS} texts.", param="input")
    check_truncation(request.truncate_prompt_tokens)
    return request


def check_truncation(limit: int | None) -> None:
    """Raise InvalidRequestError for a limit that keeps nothing."""
    if limit == 0:
        raise InvalidRequestError(
            "'truncate_prompt_tokens' must be -1 or at least 1.", param="truncate_prompt_tokens"
        )


class PoolingUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """``embedding``: numbers, or with encoding_format base64 their little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    """``id`` is not in OpenAI's answer: vLLM sends one, and Mistral's client requires it."""

    id: str
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: PoolingUsage


def encode_embedding(index: int, vector: bytes, *, as_base64: bool) -> bytes:
    """Encode one ``Embedding`` as JSON. ``vector``: little-endian float32."""
    shown = base64.b64encode(vector).decode() if as_base64 else floats_of(vector).tolist()
    return msgspec.json.encode(Embedding(index=index, embedding=shown))


def list_pieces(
    vectors: Iterable[bytes], *, as_base64: bool, id: str, model: str, prompt_tokens: int
) -> Iterator[bytes]:
    """Yield the answer, encoding each embedding lazily: thousands of long ones are hundreds of
    megabytes. ``vectors``: as for ``encode_embedding``."""
    usage = PoolingUsage(prompt_tokens, prompt_tokens)
    envelope = msgspec.json.encode(EmbeddingList(id=id, data=HOLE, model=model, usage=usage))
    encoded = (
        (encode_embedding(index, vector, as_base64=as_base64),)
        for index, vector in enumerate(vectors)
    )
    return filled(envelope, [array(encoded)])
