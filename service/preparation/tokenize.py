"""``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

import msgspec

from service.errors import InvalidRequestError
from service.preparation.counting import counted, encode_counted
from service.preparation.jobs import Answered, Limits
from service.preparation.prompts import check_token_ids
from service.preparation.work import Step, Work
from service.wire.chat.request import ChatRequest, chat_conversation
from service.wire.decode import Ignored
from service.wire.texts.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    decode_detokenize,
    decode_tokenize,
)

_MAX_DETOKENIZED_BYTES = 1 << 24


def _decode_tokenize(body: bytes, _limits: Limits, ignored: Ignored) -> TokenizeRequest:
    return decode_tokenize(body, ignored)


def _decode_detokenize(body: bytes, _limits: Limits, ignored: Ignored) -> DetokenizeRequest:
    return decode_detokenize(body, ignored)


def _finish_tokenize(request: TokenizeRequest, work: Work) -> Answered:
    if request.messages is None:
        ids = encode_counted(
            request.prompt or "",
            work,
            "prompt",
            add_special_tokens=request.add_special_tokens is not False,
        )
    else:
        chat = ChatRequest(
            messages=request.messages,
            tools=request.tools,
            add_generation_prompt=(
                request.add_generation_prompt and not request.continue_final_message
            ),
            continue_final_message=request.continue_final_message,
            chat_template_kwargs=request.chat_template_kwargs,
        )
        ids = counted(chat_conversation(chat), work, special=bool(request.add_special_tokens))
    texts = None
    if request.return_token_strs:
        texts = list(map(work.checkpoint.vocabulary.text_of, ids))
    answer = TokenizeResponse(len(ids), work.context, ids, texts)
    return Answered(noted=work.noted, body=msgspec.json.encode(answer))


def _finish_detokenize(request: DetokenizeRequest, work: Work) -> Answered:
    check_token_ids(request.tokens, work.job.engine.vocab_size, "tokens")
    size = sum(map(len, map(work.checkpoint.vocabulary.bytes_of, request.tokens)))
    if size > _MAX_DETOKENIZED_BYTES:
        raise InvalidRequestError(
            f"The tokens' text has {size} bytes; it may have at most {_MAX_DETOKENIZED_BYTES}.",
            param="tokens",
        )
    text = work.checkpoint.tokenizer.decode(request.tokens)
    return Answered(noted=work.noted, body=msgspec.json.encode(DetokenizeResponse(text)))


TOKENIZE = Step("tokenize", _decode_tokenize, _finish_tokenize, Answered, uses_template=True)
DETOKENIZE = Step("detokenize", _decode_detokenize, _finish_detokenize, Answered)
