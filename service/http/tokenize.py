"""``POST /tokenize``, ``POST /detokenize`` and ``GET /tokenizer_info``: the model's own tokenizer
and chat template."""

from __future__ import annotations

import msgspec
from litestar import Response

from engine.architecture.tokenizer_files import SPECIAL_TOKENS
from service.http.call import HttpCall
from service.http.serves import serves
from service.preparation.jobs import Answered
from service.preparation.tokenize import DETOKENIZE, TOKENIZE
from service.preparation.work import Step
from service.serving.prepare import prepare


@serves("POST /tokenize")
async def tokenize(request: HttpCall) -> Response[bytes]:
    return await _answer(request, TOKENIZE)


@serves("POST /detokenize")
async def detokenize(request: HttpCall) -> Response[bytes]:
    return await _answer(request, DETOKENIZE)


async def _answer(request: HttpCall, step: Step[Answered]) -> Response[bytes]:
    answered = await prepare(step, await request.read(), request.requester)
    return request.answer(answered.body)


@serves("GET /tokenizer_info")
async def tokenizer_info(request: HttpCall) -> Response[bytes]:
    """Return what evaluation harnesses need to know about a tokenizer that they do not have, in
    vLLM's format."""
    checkpoint, engine = request.services.checkpoint, request.services.engine
    template = checkpoint.template
    info: dict[str, object] = {
        **dict.fromkeys(SPECIAL_TOKENS),
        **checkpoint.special_tokens,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": engine.max_model_len,
        "vocab_size": engine.vocab_size,
        "chat_template": None if template is None else template.source,
    }
    return request.answer(msgspec.json.encode(info))
