"""A body is prepared once its request is admitted, and its record says so whatever comes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.errors import ContextTooLongError, InvalidRequestError, OverloadedError
from service.preparation.chat import CHAT
from service.preparation.responses import RESPONSES as RESPONSES_STEP
from service.preparation.tokenize import TOKENIZE
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.prepare import prepare, start
from service.telemetry.open_request import decode_open
from service.telemetry.record import RequestRecord
from service.telemetry.requests import Telemetry
from service.tenants.caller import Caller
from tests.service.preparation.bodies import RESPONSES, USER
from tests.service.preparation.prepared import engine
from tests.service.serving.by_hand import client, loaded, record, services
from tests.service.telemetry.successors import worker
from tests.service.wire.chat.test_answer import Desk


def made(asking: Client, step: Any = CHAT, body: Any = None, **fields: Any) -> Any:
    chat = {"messages": USER} if body is None else body
    return asyncio.run(prepare(step, json.dumps(chat).encode(), asking, **fields))


def refuse() -> None:
    raise OverloadedError("full")


def test_the_job_bears_the_request_s_id_and_its_time() -> None:
    asking = client(services(loaded()))
    generation = made(asking).generation
    assert generation.request_id == asking.exchange.record.request_id
    assert generation.arrival_time == asking.exchange.record.received_time


def test_a_job_s_own_fields_reach_it() -> None:
    found = made(client(services(loaded())), RESPONSES_STEP, {"input": "Hi"}, **RESPONSES)
    [item] = json.loads(found.items)
    assert item["id"].startswith("msg_" + RESPONSES["response_id"].removeprefix("resp_"))


def test_who_may_not_enter_is_refused_before_there_is_work_and_noted() -> None:
    asking = client(services(loaded()))
    unsound = {"chat_template_kwargs": {"moon": 1}}  # as its rendering would show
    body = {"messages": USER, "stream": True, "user_name": 1, **unsound}
    with pytest.raises(OverloadedError):
        made(asking, body=body, admit=refuse)
    record = asking.exchange.record
    assert (record.model, record.stream) == ("pocket", True)
    assert asking.exchange.ignored.names == ["user_name"]


@pytest.mark.parametrize(("named", "noted"), [("pocket", "pocket"), ("their text", "")])
def test_a_large_request_that_is_not_admitted_still_has_its_model(named: str, noted: str) -> None:
    asking = client(services(loaded()))
    with pytest.raises(OverloadedError):
        made(asking, body={"messages": USER, "user": "x" * 10_000, "model": named}, admit=refuse)
    assert asking.exchange.record.model == noted


def test_time_of_preparing_is_noted_whatever_comes_of_it() -> None:
    asking = client(services(loaded()))
    tokens = len(made(asking).generation.prompts[0])
    record = asking.exchange.record
    assert [one.phase for one in record.intervals] == ["render", "tokenize"]
    assert record.prompt_tokens == tokens
    assert record.prepared_time is not None
    assert record.intervals[-1].end <= record.prepared_time
    refused = client(services(loaded(engine(max_model_len=4))))
    with pytest.raises(ContextTooLongError):
        made(refused)
    assert refused.exchange.record.prompt_tokens == tokens
    assert len(refused.exchange.record.intervals) == 2


def test_a_body_that_cannot_be_read_is_refused_first() -> None:
    with pytest.raises(InvalidRequestError):
        made(client(services(loaded())), body={"messages": []}, admit=refuse)


def test_what_is_noted_does_not_undo_what_was_known() -> None:
    asking = client(services(loaded()))
    asking.exchange.record.client_request_id = "of the header"
    made(asking, body={"messages": USER, "request_id": "of the body"})
    assert asking.exchange.record.client_request_id == "of the header"


def test_an_error_is_raised_with_its_field() -> None:
    small = client(services(loaded(engine(max_model_len=4))))
    with pytest.raises(ContextTooLongError) as refused:
        made(small)
    assert refused.value.param == "messages"
    assert made(small, TOKENIZE, {"messages": USER}).body  # which runs no model


def test_limits_are_the_settings() -> None:
    limits = services(loaded(), max_choices=3, unknown_fields="refuse").limits
    assert (limits.names, limits.max_choices, limits.refuse_unknown) == (("pocket",), 3, True)
    assert not services(loaded()).limits.refuse_unknown


class LastMoments(Desk):
    """Keeps what the next worker would find if this one died as it submits a request."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(answers=True)
        self.state = loaded().state
        self.telemetry = telemetry
        self.found: list[RequestRecord] = []

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        self.found += [decode_open(text) for _, text in self.telemetry.open_requests]
        return super().submit(submission, waker, beside=beside)


async def test_a_request_that_dies_as_it_is_submitted_leaves_its_key_and_its_model(
    tmp_path: Path,
) -> None:
    telemetry = worker(tmp_path / "ledger")
    desk = LastMoments(telemetry)
    asking = Client(services(desk), Exchange(record(), telemetry), None)
    telemetry.request_started(asking.exchange.record)
    asking.exchange.identify(Caller("0a" * 32, alias="alice"))
    [identified] = [decode_open(text) for _, text in telemetry.open_requests]
    assert (identified.key, identified.model) == ("alice", "")
    body = {"messages": USER, "stream": True, "max_tokens": 9, "top_p": 0.5, "n": 2}
    await start(await prepare(CHAT, json.dumps(body).encode(), asking), asking)
    [found] = desk.found
    assert (found.key, found.model, found.stream) == ("alice", "pocket", True)
    assert (found.choices, found.max_tokens, found.top_p) == (2, 9, 0.5)


async def test_a_generation_that_is_started_is_the_exchange_s() -> None:
    desk = loaded()
    asking = client(services(desk))
    prepared = await prepare(CHAT, b'{"messages":[{"role":"user","content":"Hi"}],"n":2}', asking)
    assert desk.sequences == []
    generation = await start(prepared, asking)
    assert asking.exchange.generation is generation
    assert asking.exchange.record.choices == 2
    assert [one.prompt_tokens for one in desk.sequences] == [len(generation.request.prompts[0])] * 2
