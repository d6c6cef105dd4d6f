"""Input items: their ids when they are listed, their paths in errors, their bound."""

from __future__ import annotations

from typing import Any

import pytest

from service.errors import ContextTooLongError, InvalidRequestError
from service.wire.responses.input import MessageWriter, additional_tools, placed, with_ids
from service.wire.responses.seal import SealError
from service.wire.responses.tools import Toolbox


def unseal(content: str) -> str:
    """Stands for a key: only what says that it was sealed with it can be opened."""
    if not content.startswith("ours:"):
        raise SealError("it was sealed elsewhere")
    return content.removeprefix("ours:")


def write(
    items: list[dict[str, Any]], most_chars: int | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    ignored: list[str] = []
    writer = MessageWriter(Toolbox((), []), unseal, ignored, most_chars=most_chars)
    for item in placed(items, "input"):
        writer.write(item)
    return writer.finished(), ignored


def test_listed_items_keep_their_ids_or_get_new_ones() -> None:
    items = [
        {"role": "user", "content": "a"},
        {"type": "message", "id": "mine", "role": "assistant", "content": "b"},
        {"type": "function_call_output", "call_id": "c", "output": "d"},
        {"type": "web_search_call"},
    ]
    listed = with_ids(items, "resp_abc")
    assert [item["id"] for item in listed] == ["msg_abc_i0", "mine", "fco_abc_i2", "item_abc_i3"]
    assert listed[0]["content"] == [{"type": "input_text", "text": "a"}]
    assert listed[1]["content"] == [{"type": "output_text", "text": "b", "annotations": []}]
    assert listed[0]["status"] == "completed"
    assert "id" not in items[0]
    assert with_ids(listed, "resp_abc") == listed


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"role": "user"}, "message"),
        ({"id": "x"}, "item_reference"),
        ({"type": "reasoning", "id": "x"}, "reasoning"),
    ],
)
def test_a_type_may_be_left_out_where_it_is_plain(item: dict[str, Any], kind: str) -> None:
    assert placed([{}, item], "input")[1].kind == kind


def test_an_item_without_a_type_is_refused_by_its_place() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _ = placed([{}], "input")[0].kind
    assert caught.value.param == "input[0].type"


def test_tools_among_the_items_come_with_their_path() -> None:
    items = placed([{"role": "user"}, {"type": "additional_tools", "tools": [{"a": 1}]}], "input")
    assert additional_tools(items) == [("input[1].tools", [{"a": 1}])]


def test_a_compaction_of_ours_is_a_summary_and_another_servers_is_reported() -> None:
    ours = {"type": "compaction", "encrypted_content": "ours:all of it"}
    made, ignored = write([ours, {"type": "compaction", "encrypted_content": "x"}])
    assert [message["role"] for message in made] == ["user"]
    assert made[0]["content"].endswith("all of it")
    assert ignored == ["input[1].compaction"]


@pytest.mark.parametrize(
    ("plain", "read"),
    [
        ({"summary": []}, None),
        ({"summary": [{"text": "in short"}]}, "in short"),
        ({"summary": [{"text": "in short"}], "content": [{"text": "in full"}]}, "in full"),
    ],
    ids=["nothing", "a summary", "content"],
)
def test_of_reasoning_that_was_sealed_elsewhere_the_plain_text_is_read(
    plain: dict[str, Any], read: str | None
) -> None:
    foreign = {"type": "reasoning", "encrypted_content": "theirs:why", **plain}
    made, ignored = write([foreign, {"role": "assistant", "content": "So."}])
    assert [message.get("reasoning_content") for message in made] == [read]
    assert made[0]["content"] == "So."
    assert ignored == ["input[0].encrypted_content"]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "abcd"},
        {"role": "assistant", "content": "abcd"},
        {"type": "reasoning", "content": [{"text": "abcd"}]},
        {"type": "reasoning", "encrypted_content": "ours:abcd"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "abcd"},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "abcd"},
        {"type": "function_call_output", "call_id": "c", "output": "abcd"},
    ],
    ids=lambda item: item.get("type", item.get("role")),
)
def test_every_text_counts_towards_the_bound(item: dict[str, Any]) -> None:
    assert len(write([{"role": "user", "content": "ab"}, item], most_chars=6)[0]) == 2
    with pytest.raises(ContextTooLongError) as caught:
        write([{"role": "user", "content": "abc"}, item], most_chars=6)
    assert caught.value.param == "input[1]"
