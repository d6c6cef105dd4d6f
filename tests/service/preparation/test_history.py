"""What a request refers to among stored responses is found, or named as missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError, NotFoundError
from service.preparation.history import NO_STORE, conversation_of, needs_of, resolved
from service.preparation.jobs import History, Noted
from service.wire.responses.request import decode_responses

STORED = "1" * 32
OTHER = "2" * 32


def reference(item_id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": item_id}


def item(item_id: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": "said", "id": item_id}


def history(*, context: Any = (), input_: Any = (), output: Any = ()) -> History:
    return History(
        context=json.dumps(context).encode(),
        input=json.dumps(input_).encode(),
        body=json.dumps({"id": "resp", "output": output}).encode(),
    )


def needs(input_: Any, **fields: Any) -> tuple[str | None, list[str]] | None:
    request = decode_responses(json.dumps({"input": input_, **fields}).encode())
    found = needs_of(request, Noted())
    return None if found is None else (found.previous, found.referred)


def test_a_request_that_stands_for_itself_needs_nothing() -> None:
    assert needs("Hi") is None
    assert needs([item("msg_1")]) is None
    assert needs([reference("msg_of_nobody")]) is None  # no response of ours has such an item


def test_each_response_that_is_referred_to_is_needed_once() -> None:
    references = [reference(f"msg_{STORED}_0"), reference(f"fc_{STORED}_i12")]
    assert needs([*references, reference(f"msg_{OTHER}_1")], previous_response_id="resp_p") == (
        "resp_p",
        [f"resp_{STORED}", f"resp_{OTHER}"],
    )
    # The type may be left out of a reference, but not out of a message.
    assert needs([{"id": f"msg_{STORED}_0"}]) == (None, [f"resp_{STORED}"])


def test_a_conversation_is_context_input_and_answer_in_this_order() -> None:
    stored = history(context=[item("a")], input_=[item("b")], output=[item("c")])
    assert [one["id"] for one in conversation_of(stored)] == ["a", "b", "c"]


def test_references_give_way_to_items_of_the_history_or_of_other_responses() -> None:
    kept = item(f"msg_{STORED}_0")
    referred = {f"resp_{STORED}": history(output=[kept])}
    asked = [reference("msg_a"), {"role": "user", "content": "new"}, reference(kept["id"])]
    found = resolved(asked, [item("msg_a")], referred)
    assert found == [item("msg_a"), {"role": "user", "content": "new"}, kept]


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"type": "item_reference"}, InvalidRequestError, "Missing required parameter"),
        (reference("msg_x"), NotFoundError, "Item with id 'msg_x'"),
        (reference(f"msg_{OTHER}_0"), NotFoundError, f"Item with id 'msg_{OTHER}_0'"),
        (reference(f"msg_{STORED}_7"), NotFoundError, f"Item with id 'msg_{STORED}_7'"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(
    wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    referred = {f"resp_{STORED}": history(output=[item(f"msg_{STORED}_0")])}
    with pytest.raises(error, match=said) as refused:
        resolved([item("msg_1"), wrong], [], referred)
    assert refused.value.param == "input[1].id"  # type: ignore[attr-defined]


@pytest.mark.parametrize("item_id", ["msg_x", f"msg_{OTHER}_0"])
def test_without_a_store_a_missing_item_s_error_says_what_to_send(item_id: str) -> None:
    with pytest.raises(NotFoundError, match="not found") as stored:
        resolved([reference(item_id)], [], {})
    assert NO_STORE not in stored.value.message
    with pytest.raises(NotFoundError, match=f"Item with id '{item_id}'") as unstored:
        resolved([reference(item_id)], [], {}, has_store=False)
    assert unstored.value.message.endswith(NO_STORE)
