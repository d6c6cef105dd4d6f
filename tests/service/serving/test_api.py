"""Each API's answer is made by its own encoder, under its own kind of id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.queueing import ServiceClass
from service.errors import DrainingError, InvalidRequestError
from service.serving.api import CHAT_API, COMPLETIONS_API, MESSAGES_API, Api, begin
from service.serving.stream import complete
from service.tenants.caller import ANYBODY, Caller
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


TIERS = (
    (CHAT_API, "flex", Caller("0a" * 32, shares=True, may_hurry=False), "flex", ""),
    (CHAT_API, "fast", Caller("0a" * 32, shares=True), "priority", ""),
    (CHAT_API, "priority", Caller("0a" * 32, True, may_hurry=False), "default", "service_tier"),
    (CHAT_API, "auto", Caller(service_class=ServiceClass.BATCH), "flex", ""),
    (CHAT_API, None, ANYBODY, None, ""),
    (MESSAGES_API, "auto", Caller(service_class=ServiceClass.INTERACTIVE), "priority", ""),
    (MESSAGES_API, "standard_only", Caller(service_class=ServiceClass.INTERACTIVE), "standard", ""),
    (MESSAGES_API, None, ANYBODY, None, ""),
)


@pytest.mark.parametrize(("api", "tier", "caller", "used", "ignored"), TIERS)
async def test_the_answer_and_its_stream_name_the_tier_that_was_used_if_one_was_set(
    api: Api[Any, Any], tier: str | None, caller: Caller, used: str | None, ignored: str
) -> None:
    desk = loaded()
    of = services(desk)
    asking = client(of)
    asking.exchange.caller = caller
    body = dict(ASKED)[api] | ({} if tier is None else {"service_tier": tier})
    begun = await begin(api, json.dumps(body).encode(), asking)
    say(of, desk, "Hello there.")
    await complete(asking.exchange, begun.generation, begun.encoder)
    answer = json.loads(b"".join(begun.encoder.whole()))
    stream = begun.encoder.stream()
    sent = b"".join([stream.begin(), *stream.advance(begun.generation.choices)])
    chunk = json.loads(sent.partition(b"data: ")[2].partition(b"\n\n")[0])
    if api is MESSAGES_API:
        answer, chunk = answer["usage"], chunk["message"]["usage"]
    assert (answer.get("service_tier"), chunk.get("service_tier")) == (used, used)
    assert asking.exchange.ignored.summary() == ignored


@APIS
async def test_an_unknown_tier_is_refused_with_the_known_ones(
    api: Api[Any, Any], body: Any
) -> None:
    desk = loaded()
    with pytest.raises(InvalidRequestError) as refused:
        await begin(
            api, json.dumps({**body, "service_tier": "gold"}).encode(), client(services(desk))
        )
    assert refused.value.param == "service_tier"
    assert "'gold'; it must be one of 'auto', " in refused.value.message
    assert desk.sequences == []


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
