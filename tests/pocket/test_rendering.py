"""The trainer's rendering is the chat template's, and its tokens are the tokenizer's."""

from itertools import islice

import pytest
from tokenizers import Tokenizer

from pocket import MODEL_DIR, render
from pocket.gates import as_messages
from pocket.text import mix
from pocket.text.dice import Dice
from pocket.text.document import Document


def conversation(document: Document) -> list[dict]:
    messages = as_messages(document.turns)
    for message, turn in zip(messages, document.turns, strict=True):
        if document.thinking and turn.reasoning:
            message["reasoning_content"] = turn.reasoning
    return messages


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    source = mix.stream(Dice("rendering"), lambda: False, mix.SHARES)
    return [document for document in islice(source, 250) if not document.plain]


def test_the_template_renders_what_the_trainer_renders(tokenizer, documents):
    for document in documents:
        rendered = tokenizer.apply_chat_template(
            conversation(document), tools=document.tools or None, tokenize=False
        )
        assert rendered == render.text(document)


def test_a_prompt_is_the_beginning_of_the_training_text(tokenizer, documents):
    for document in documents:
        prompt = tokenizer.apply_chat_template(
            conversation(document)[:-1],
            tools=document.tools or None,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=document.thinking,
        )
        assert render.text(document).startswith(prompt)


def test_tokens_of_the_pieces_are_tokens_of_the_whole(tokenizer, documents):
    own = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    encoded = render.encode(own, documents)
    for document, (ids, _) in zip(documents, encoded, strict=True):
        assert ids == tokenizer(render.text(document), add_special_tokens=False)["input_ids"]


def test_thinking_is_off_unless_requested(tokenizer):
    messages = [{"role": "user", "content": "Hello!"}]
    default, on = (
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **extra)
        for extra in ({}, {"enable_thinking": True})
    )
    assert default == on + render.NO_THOUGHT


def test_content_parts_and_argument_objects_render_like_strings(tokenizer):
    def rendered(content, arguments) -> str:
        return tokenizer.apply_chat_template(
            [
                {"role": "user", "content": content},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"type": "function", "function": {"name": "f", "arguments": arguments}}
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": content},
            ],
            tokenize=False,
        )

    parts = [{"type": "text", "text": "<b>"}, {"type": "text", "text": "é"}]
    assert rendered(parts, {"x": "<é>"}) == rendered("<b>é", '{"x": "<é>"}')


@pytest.mark.parametrize(
    "text", ["Hello, world!", "你好，世界 👋🏽", "naïve Ωμέγα", 'a\n\n b\t\\ "q"', "12:30 0.5 🐢🇫🇷"]
)
def test_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_marks_survive_skipping_special_tokens_and_control_tokens_do_not(tokenizer):
    ids = tokenizer.encode("<think>a</think><tool_call>b</tool_call><|im_end|>")
    shown = tokenizer.decode(ids, skip_special_tokens=True)
    assert shown == "<think>a</think><tool_call>b</tool_call>"
