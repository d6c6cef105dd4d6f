"""``POST /tokenize``, ``POST /detokenize`` and ``GET /tokenizer_info``: the model's own tokenizer
and chat template."""

from __future__ import annotations

import msgspec
from litestar import Response, get, post
from litestar.datastructures import State

from service.http.answering import HttpRequest, exchange_of, respond
from service.http.body import read_body
from service.http.prepare import client_of, prepare
from service.http.services import Services
from service.preparation.jobs import Answered, DetokenizeJob, Job, TokenizeJob


@post("/tokenize", status_code=200, opt={"route": "tokenize"})
async def tokenize(request: HttpRequest, state: State) -> Response[bytes]:
    return await _answer(request, state, TokenizeJob)


@post("/detokenize", status_code=200, opt={"route": "detokenize"})
async def detokenize(request: HttpRequest, state: State) -> Response[bytes]:
    return await _answer(request, state, DetokenizeJob)


async def _answer(request: HttpRequest, state: State, kind: type[Job]) -> Response[bytes]:
    services: Services = state.services
    client = client_of(request, services)
    limit = services.settings.max_body_bytes
    body = await read_body(request.scope, request.receive, limit=limit)
    answered = await prepare(kind, Answered, body, client)
    client.exchange.succeed("stop")
    client.exchange.hold(len(answered.body))
    return respond(client.exchange, answered.body)


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
