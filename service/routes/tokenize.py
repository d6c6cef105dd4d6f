"""``POST /tokenize``, ``POST /detokenize`` and ``GET /tokenizer_info``: the model's own tokenizer
and chat template."""

from __future__ import annotations

import asyncio

import msgspec
from litestar import Response, get, post
from litestar.datastructures import State

from service.prompt.tokenizer import THREAD_CHARS
from service.prompt.vocabulary import Vocabulary
from service.routes.answering import HttpRequest, exchange_of, respond
from service.routes.body import read_body
from service.routes.prepare import check_token_ids, render
from service.routes.services import Services
from service.wire.chat import ChatRequest, chat_conversation
from service.wire.tokenize import (
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    decode_detokenize,
    decode_tokenize,
)


@post("/tokenize", status_code=200, opt={"route": "tokenize"})
async def tokenize(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_tokenize(body, exchange.ignored)
    exchange.record.model = services.model_name(wanted.model)
    context = services.engine.max_model_len
    ids = await _encode(wanted, services, len(body))
    texts = None
    if wanted.return_token_strs:
        texts = await asyncio.to_thread(_texts, ids, services.checkpoint.vocabulary)
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(TokenizeResponse(len(ids), context, ids, texts)))


def _texts(ids: list[int], vocabulary: Vocabulary) -> list[str]:
    return [vocabulary.text_of(token) for token in ids]


async def _encode(wanted: TokenizeRequest, services: Services, body_size: int) -> list[int]:
    if wanted.messages is None:
        special = wanted.add_special_tokens is not False
        return await services.checkpoint.tokenizer.encode_async(
            wanted.prompt or "", add_special_tokens=special
        )
    chat = ChatRequest(
        messages=wanted.messages,
        tools=wanted.tools,
        add_generation_prompt=wanted.add_generation_prompt and not wanted.continue_final_message,
        continue_final_message=wanted.continue_final_message,
        chat_template_kwargs=wanted.chat_template_kwargs,
    )
    prompt = await render(chat_conversation(chat), services.checkpoint, body_size=body_size)
    if not wanted.add_special_tokens:
        return prompt.ids
    return await services.checkpoint.tokenizer.encode_async(prompt.text, add_special_tokens=True)


@post("/detokenize", status_code=200, opt={"route": "detokenize"})
async def detokenize(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    wanted = decode_detokenize(body, exchange.ignored)
    exchange.record.model = services.model_name(wanted.model)
    check_token_ids(wanted.tokens, services.engine.vocab_size, "tokens")
    decode = services.checkpoint.tokenizer.decode
    if len(wanted.tokens) < THREAD_CHARS:
        text = decode(wanted.tokens)
    else:
        text = await asyncio.to_thread(decode, wanted.tokens)
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(DetokenizeResponse(text)))


@get("/tokenizer_info", opt={"route": "tokenize"})
async def tokenizer_info(request: HttpRequest, state: State) -> Response[bytes]:
    """What evaluation harnesses need of a tokenizer that they do not have, as vLLM tells it."""
    services: Services = state.services
    exchange = exchange_of(request)
    checkpoint = services.checkpoint
    template = checkpoint.template
    info: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": services.engine.max_model_len,
        "vocab_size": services.engine.vocab_size,
        "chat_template": None if template is None else template.source,
        **dict.fromkeys(_SPECIAL_TOKENS),
        **checkpoint.special_tokens,
    }
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(info))


_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
