"""The token with which a message begins is the one that encodes its first byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.checkpoint.checkpoint import load_checkpoint
from service.checkpoint.message_offsets import MessageOffsets
from service.checkpoint.template import ChatTemplate
from service.checkpoint.tokenizer import Tokenizer
from service.conversation import Conversation, JsonObject
from service.preparation.message_starts import continued_from, offsets_of, prompt_messages
from tests.service.tiny_model import write_tiny_model

BEGIN = "<|im_start|>"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_checkpoint(write_tiny_model(tmp_path_factory.mktemp("tiny"))).tokenizer


def observed(contents: list[str]) -> tuple[MessageOffsets, str]:
    """What a simple template writes, and what was observed of it."""
    messages = [{"role": role(index), "content": one} for index, one in enumerate(contents)]
    offsets = MessageOffsets()

    def pieces() -> Iterator[str]:
        for message in offsets.watched(messages):
            content = message["content"]
            yield BEGIN
            yield content

    return offsets, "".join(offsets.follow(pieces()))


def role(index: int) -> str:
    return ("user", "assistant", "a role of the client's")[index % 3]


@settings(deadline=None)
@given(contents=st.lists(st.text("ab <ü🚀", min_size=1), min_size=1, max_size=5))
def test_messages_begin_with_the_token_of_their_first_byte(
    tokenizer: Tokenizer, contents: list[str]
) -> None:
    offsets, text = observed(contents)
    ids = tokenizer.encode(text, add_special_tokens=False)
    found = prompt_messages(offsets, text, ids, tokenizer)
    assert found is not None
    for index, start in enumerate(found.starts):
        # Special tokens are never merged with the text around them.
        before = "".join(BEGIN + content for content in contents[:index])
        assert ids[:start] == tokenizer.encode(before, add_special_tokens=False)
        place = found.place_of(start)
        known = (role(index), "other")[index % 3 == 2]
        assert place == (index + 1, len(contents), known, None)


def test_nothing_is_said_of_a_prompt_that_was_cut_or_has_other_tokens(tokenizer: Tokenizer) -> None:
    offsets, text = observed(["Hello", "Bye"])
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert prompt_messages(offsets, text, ids[1:], tokenizer) is None
    assert prompt_messages(offsets, text, [*ids, 100_000], tokenizer) is None
    assert prompt_messages(None, text, ids, tokenizer) is None
    assert prompt_messages(offsets, text, [], tokenizer) is None


def test_a_very_long_conversation_is_not_observed() -> None:
    messages = [{"role": "user", "content": "a"}]
    assert offsets_of(Conversation(messages=messages)) is not None
    assert offsets_of(Conversation(messages=messages * 5000)) is None


IN_TURN = "{%- for m in messages %}{{- '<|' + m.role + '|>' + m.content }}{%- endfor %}"
AT_ONCE = (
    "{%- set all = namespace(text='') %}{%- for m in messages %}"
    "{%- set all.text = all.text + '<|' + m.role + '|>' + m.content %}{%- endfor %}{{- all.text }}"
)


@pytest.mark.parametrize("source", [IN_TURN, AT_ONCE])
@pytest.mark.parametrize("begun", ["Well, ", "<think>so", "What?"])
def test_the_message_that_goes_on_begins_after_the_text_of_the_one_before(
    source: str, begun: str
) -> None:
    asked = {"role": "user", "content": "What?"}
    messages = [asked, {"role": "assistant", "content": begun}]
    conversation = Conversation(messages=messages, continue_final_message=True)
    offsets = offsets_of(conversation)
    text = ChatTemplate(source).render(messages, continue_final_message=True, offsets=offsets)
    assert text[continued_from(conversation, offsets, text) :] == f"<|assistant|>{begun}"
    assert text[continued_from(conversation, None, text) :] == f"<|assistant|>{begun}"


def test_where_it_begins_is_not_guessed_at() -> None:
    begun = {"role": "assistant", "content": "Well"}
    user = {"role": "user", "content": "What?"}
    text = "<|user|>…<|assistant|>Well"
    silent: JsonObject = {"role": "user", "content": None}
    for messages in ([begun], [user, begun], [silent, begun]):
        one = Conversation(messages=messages, continue_final_message=True)
        assert continued_from(one, None, text) == 0
    assert continued_from(Conversation(messages=[user]), None, "What?") == 0
