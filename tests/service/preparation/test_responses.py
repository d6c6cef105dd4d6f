"""Responses: what a request refers to, what of a long conversation is left, what is listed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from service.errors import ContextTooLongError
from service.preparation.jobs import History, Needs, PreparedResponse
from tests.service.preparation.bodies import CREATE, RESPONSES
from tests.service.preparation.prepared import engine, prepared, tokenizer

FORGOTTEN = [{"role": "user", "content": f"turn {number} " + "word " * 60} for number in range(8)]


def history(*ids: str) -> History:
    items = [{"role": "user", "content": name, "id": name} for name in ids]
    return History(context=b"[]", input=json.dumps(items).encode(), body=b'{"output":[]}')


def response(
    input_: Any, *, context: int = 4096, job: dict[str, Any] | None = None, **fields: Any
) -> Any:
    loaded = engine(max_model_len=context)
    return prepared(
        "responses", {"input": input_, **fields}, loaded=loaded, **RESPONSES, **(job or {})
    )


def prompt_of(made: PreparedResponse) -> str:
    return tokenizer().decode(made.generation.prompts[0])


def said(items: list[dict[str, Any]]) -> list[str]:
    return ["".join(part["text"] for part in item["content"]) for item in items]


def test_stored_responses_are_asked_for_first_and_then_come_before_the_request() -> None:
    needs = response("and now", previous_response_id="resp_p")
    assert isinstance(needs, Needs)
    assert needs.previous == "resp_p"
    job = {"stored": True, "previous": history("before")}
    made = response("and now", previous_response_id="resp_p", job=job)
    text = prompt_of(made)
    assert text.index("before") < text.index("and now")
    assert [item["id"] for item in json.loads(made.context)] == ["before"]
    assert said(json.loads(made.items)) == ["and now"]


def test_what_is_not_stored_is_not_kept() -> None:
    made = response("Hi", store=False)
    assert (made.items, made.context) == (b"[]", b"[]")
    remembered = response("Hi", store=False, job={"remembered": True})
    assert len(json.loads(remembered.items)) == 1


def test_truncation_leaves_as_many_of_the_last_turns_as_fit() -> None:
    with pytest.raises(ContextTooLongError):
        response(FORGOTTEN, context=512)
    made = response(FORGOTTEN, context=512, truncation="auto", max_output_tokens=64)
    text = prompt_of(made)
    kept = [number for number in range(8) if f"turn {number} " in text]
    assert kept == list(range(kept[0], 8))
    [prompt] = made.generation.prompts
    assert len(prompt) + 64 <= 512
    one_more = response(FORGOTTEN[kept[0] - 1 :], max_output_tokens=64)
    assert len(one_more.generation.prompts[0]) + 64 > 512


def test_a_summary_is_asked_for_at_the_end_and_is_no_item() -> None:
    made = response(
        [{"role": "user", "content": "the past"}, {"type": "compaction_trigger"}],
        tools=[{"type": "function", "name": "f", "parameters": {}}],
        tool_choice="required",
    )
    assert made.compacts
    assert made.asked is None  # a summary is plain text, whatever was demanded
    assert prompt_of(made).index("the past") < prompt_of(made).index("Write that summary")
    assert said(json.loads(made.items)) == ["the past"]


def test_a_compaction_tells_back_what_the_user_said_and_is_neither_stored_nor_streamed() -> None:
    spoken = [
        {"role": "user", "content": "the past"},
        {"role": "assistant", "content": "the answer"},
    ]
    made = response(spoken, stream=True, job={"compacts": True})
    assert made.compacts
    assert said(json.loads(made.said)) == ["the past"]
    assert not made.request.stream
    assert not made.request.store
    assert response(spoken).said == b"[]"


@pytest.mark.parametrize(("given", "limit"), [(None, 1024), (7, 7)])
def test_the_limit_of_a_summary_is_the_clients_only_if_it_set_one(
    given: int | None, limit: int
) -> None:
    made = response("the past", job={"compacts": True}, max_output_tokens=given)
    assert made.generation.params.max_tokens == limit
    assert made.generation.sets_limit == (given is not None)


def test_a_count_is_that_of_the_prompt() -> None:
    [prompt] = response("Hi there").generation.prompts
    answer = prepared("input_tokens", {"input": "Hi there"}, **RESPONSES)
    assert json.loads(answer.body) == {
        "object": "response.input_tokens",
        "input_tokens": len(prompt),
    }


def test_a_warm_up_says_what_the_next_message_goes_on_with() -> None:
    job = {**RESPONSES, "created": 7, "stored": True, "previous": history("before")}
    made = prepared("warm_up", {**CREATE, "generate": False}, **job)
    assert [item["id"] for item in json.loads(made.history.context)] == ["before"]
    assert said(json.loads(made.history.input)) == ["Hi"]
    told = [json.loads(line[5:]) for line in made.events.splitlines() if line.startswith(b"data:")]
    assert [event["response"]["id"] for event in told] == [RESPONSES["response_id"]] * len(told)
    assert told[-1]["response"]["status"] == "completed"
    assert told[-1]["response"]["created_at"] == 7


def test_a_warm_up_shows_the_same_fields_as_any_response() -> None:
    fields = {"stream": True, "text": {"verbosity": "low"}, "unknown": 1}
    made = prepared("warm_up", {**CREATE, **fields, "generate": False}, **RESPONSES, created=7)
    data = made.events.rpartition(b"data:")[2]
    params = response("Hi").generation.params
    told = json.loads(data)["response"]
    assert (told["temperature"], told["top_p"]) == (params.temperature, params.top_p)
    assert params.temperature == 0  # the checkpoint's default
    assert told["ignored"] == ["unknown", "text.verbosity"]


@pytest.mark.parametrize(
    ("newest_first", "after", "listed"),
    [(True, None, ["c", "b"]), (False, None, ["a", "b"]), (True, "b", ["a"])],
)
def test_stored_items_are_listed_in_either_order(
    newest_first: bool, after: str | None, listed: list[str]
) -> None:
    fields = {"limit": 2, "newest_first": newest_first, "after": after}
    page = msgspec.json.decode(prepared("items", stored=history("a", "b", "c"), **fields).body)
    assert [item["id"] for item in page["data"]] == listed
    assert page["has_more"] == (after is None)
