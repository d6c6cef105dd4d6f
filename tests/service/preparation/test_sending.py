"""A result on its way from a process is compact, and whole again at its end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from service.preparation.jobs import Done, Reply
from service.preparation.sending import lightened, packed, unpacked
from service.wire.texts.rerank import RerankRequest
from tests.service.preparation.bodies import LONG, USER
from tests.service.preparation.prepared import prepared, work_of


async def carried(step: str, body: Any) -> tuple[Any, Any, int]:
    """What was made, what arrived, and how many bytes went."""
    made = prepared(step, body)
    sent = msgspec.msgpack.encode(packed(made))
    done = msgspec.msgpack.decode(sent, type=Reply)
    assert isinstance(done, Done)
    return made, await unpacked(work_of(step, body).job, done), len(sent)


async def test_token_ids_arrive_as_they_were_and_take_four_bytes_each() -> None:
    prompts = [[number % 1500 for number in range(3000)], [7]]
    made, arrived, size = await carried("completion", {"prompt": prompts})
    assert arrived.generation == made.generation
    assert arrived.generation.prompts == prompts
    assert size < 4 * 3001 + 1500
    inputs, there, _ = await carried("embeddings", {"input": prompts})
    assert [list(one.token_ids) for one in there.inputs] == prompts
    assert inputs.request.dimensions == there.request.dimensions


async def test_what_made_the_prompt_does_not_travel() -> None:
    body = {
        "messages": [{"role": "user", "content": LONG}],
        "tools": [{"type": "function", "function": {"name": "f", "description": LONG}}],
        "truncate_prompt_tokens": 9,
        "n": 3,
        "stream": True,
    }
    made, arrived, size = await carried("chat", body)
    assert size < 8 * 1024 < len(LONG)
    assert arrived.generation == made.generation
    request = arrived.request
    assert (request.n, request.stream, request.tools) == (3, True, None)


async def test_what_answers_tell_back_travels_however_large() -> None:
    echoed = [*USER, {"role": "assistant", "content": LONG}]
    body = {
        "messages": echoed,
        "echo": True,
        "continue_final_message": True,
        "add_generation_prompt": False,
        "truncate_prompt_tokens": 9,
    }
    _, arrived, _ = await carried("chat", body)
    assert [message.content for message in arrived.request.messages] == [LONG]


@pytest.mark.parametrize(("returns", "kept"), [(True, ["a", LONG]), (False, [""])])
def test_documents_travel_only_where_they_are_returned(returns: bool, kept: list[str]) -> None:
    request = RerankRequest(query=LONG, documents=["a", LONG], return_documents=returns, top_n=1)
    light = lightened(request)
    assert isinstance(light, RerankRequest)
    assert (light.query, light.documents, light.top_n) == ("", kept, 1)


async def test_a_result_without_token_ids_arrives_as_it_was() -> None:
    made, arrived, _ = await carried("tokenize", {"prompt": "Hi"})
    assert arrived == made
