"""Each API's answer is made by its own encoder, under its own kind of id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import DrainingError, InvalidRequestError
from service.serving.api import CHAT_API, COMPLETIONS_API, MESSAGES_API, Api, begin
from service.serving.stream import complete
from tests.service.preparation.bodies import USER
from tests.service.serving.by_hand import client, loaded, say, services

ASKED: tuple[tuple[Api[Any, Any], dict[str, Any]], ...] = (
    (CHAT_API, {"messages": USER}),
    (COMPLETIONS_API, {"prompt": "Hi"}),
    (MESSAGES_API, {"model": "pocket", "max_tokens": 9, "messages": USER}),
)
APIS = pytest.mark.parametrize(("api", "body"), ASKED, ids=[api.id_prefix for api, _ in ASKED])


def text_of(answer: dict[str, Any]) -> str:
    """Wherever the API has it."""
    if "content" in answer:
        return "".join(block["text"] for block in answer["content"])
    [choice] = answer["choices"]
    said: str = choice["message"]["content"] if "message" in choice else choice["text"]
    return said


@APIS
async def test_what_the_engine_says_is_the_answer(api: Api[Any, Any], body: Any) -> None:
    desk = loaded()
    of = services(desk)
    asking = client(of)
    begun = await begin(api, json.dumps(body).encode(), asking)
    say(of, desk, "Hello there.")
    await complete(asking.exchange, begun.generation, begun.encoder)
    answer = json.loads(b"".join(begun.encoder.whole()))
    assert text_of(answer) == "Hello there."
    assert answer["id"] == asking.exchange.record.response_id
    assert answer["id"].startswith(api.id_prefix)
    assert answer["model"] == "pocket"
    assert asking.exchange.record.operation == api.operation
    assert asking.exchange.record.first_token_time is not None


@APIS
async def test_where_no_request_is_let_in_nothing_runs(api: Api[Any, Any], body: Any) -> None:
    desk = loaded()
    of = services(desk)
    of.drain.begin()
    asking = client(of)
    with pytest.raises(DrainingError):
        await begin(api, json.dumps(body).encode(), asking)
    assert desk.sequences == []
    assert asking.exchange.generation is None
    assert asking.exchange.record.operation == api.operation


async def test_a_request_that_is_refused_has_no_answer_to_name() -> None:
    desk = loaded()
    asking = client(services(desk))
    with pytest.raises(InvalidRequestError):
        await begin(CHAT_API, b'{"messages":[]}', asking)
    assert asking.exchange.record.response_id == ""
    assert desk.sequences == []


async def test_cached_tokens_are_told_by_the_block_only_to_who_speaks_of_caching() -> None:
    for system in ("s", [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]):
        desk = loaded()
        of = services(desk)
        asking = client(of)
        body = {"model": "pocket", "max_tokens": 9, "messages": USER * 9, "system": system}
        begun = await begin(MESSAGES_API, json.dumps(body).encode(), asking)
        say(of, desk, "Hello.")
        await complete(asking.exchange, begun.generation, begun.encoder)
        usage = json.loads(b"".join(begun.encoder.whole()))["usage"]
        assert bool(usage.get("cache_creation_input_tokens")) is (system != "s")


@pytest.mark.parametrize(("display", "shown"), [("summarized", True), ("omitted", False)])
async def test_thoughts_are_shown_unless_they_are_to_be_omitted(display: str, shown: bool) -> None:
    desk = loaded()
    of = services(desk)
    asking = client(of)
    thinking = {"type": "enabled", "budget_tokens": 1024, "display": display}
    body = {"model": "pocket", "max_tokens": 2048, "messages": USER, "thinking": thinking}
    begun = await begin(MESSAGES_API, json.dumps(body).encode(), asking)
    say(of, desk, "<think>\nHm.\n</think>\n\nHello.")
    await complete(asking.exchange, begun.generation, begun.encoder)
    thought, said = json.loads(b"".join(begun.encoder.whole()))["content"]
    assert said == {"type": "text", "text": "Hello."}
    assert thought["type"] == "thinking"
    assert ("Hm." in thought["thinking"]) is shown
    assert thought["signature"]
