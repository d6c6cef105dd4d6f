"""A prompt's text and token ids are within what the model can take, or refused by their field."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import OutputConfigParam
from openai.types import ReasoningEffort

from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.conversation import EFFORTS, Conversation, JsonObject
from service.errors import ContextTooLongError, InvalidRequestError
from service.pooling.inputs import Input
from service.preparation.jobs import Noted
from service.preparation.prompts import (
    MAX_PROMPT_TOKENS,
    check_inputs,
    check_together,
    check_token_ids,
    encoded,
    most_conversation_chars,
    prompt_ids,
    rendered,
    room,
)
from service.preparation.work import Announce, Work, no_stage
from service.wire.sampling import SamplingFields
from tests.service.preparation.bodies import USER
from tests.service.preparation.prepared import engine, model, tokenizer, work_of
from tests.service.tiny_model import write_tiny_model

TEXT = " ".join(f"word{number}" for number in range(40))
CHECKPOINT = model().checkpoint


def work(
    checkpoint: Checkpoint = CHECKPOINT,
    *,
    context: int = 4096,
    noted: Noted | None = None,
    stage: Announce = no_stage,
) -> Work:
    made = work_of("chat", loaded=engine(max_model_len=context), noted=noted)
    own = dataclasses.replace(made.model, checkpoint=checkpoint)
    return dataclasses.replace(made, model=own, stage=stage)


def test_template_and_tokenizer_are_announced_before_they_run() -> None:
    told: list[tuple[str, str | None]] = []
    conversation = Conversation(messages=USER, param="input")
    text = rendered(conversation, announcing := work(stage=lambda *stage: told.append(stage)))
    assert told == [("template", "input")]
    encoded(text, announcing, param="input", add_special_tokens=False)
    assert told == [("template", "input"), ("tokenizer", "input")]


@pytest.mark.parametrize("name", ["moon", "messages", "tools", "add_generation_prompt"])
def test_a_variable_that_the_template_does_not_read_is_refused_by_name(name: str) -> None:
    conversation = Conversation(messages=USER, variables={name: 1})
    with pytest.raises(InvalidRequestError, match=name) as refused:
        rendered(conversation, work())
    assert refused.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize("effort", ["off", "disabled", "lo"])
def test_an_unknown_effort_is_refused_with_those_that_are_known(effort: str) -> None:
    conversation = Conversation(
        messages=USER, reasoning_effort=effort, effort_param="reasoning.effort"
    )
    with pytest.raises(InvalidRequestError, match=r"must be one of 'none', .*'max'") as refused:
        rendered(conversation, work())
    assert refused.value.param == "reasoning.effort"
    assert f"'reasoning.effort': '{effort}'" in refused.value.message


def test_the_efforts_of_clients_and_those_of_the_template_are_known(tmp_path: Any) -> None:
    folder = write_tiny_model(tmp_path)
    (folder / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'user' and reasoning_effort == 'no_think' %}{% endif %}"
        "{{ reasoning_effort }}"
    )
    own = load_checkpoint(folder)
    for effort in (*EFFORTS, "no_think"):
        conversation = Conversation(messages=USER, reasoning_effort=effort)
        assert rendered(conversation, work(own)) == effort
    for effort in ("no", "user"):
        with pytest.raises(InvalidRequestError, match="template names"):
            rendered(Conversation(messages=USER, reasoning_effort=effort), work(own))


def test_every_level_that_the_vendors_sdks_declare_is_known() -> None:
    openai = get_args(get_args(ReasoningEffort)[0])
    anthropic = get_args(get_args(get_type_hints(OutputConfigParam)["effort"])[0])
    assert {*openai, *anthropic} <= set(EFFORTS)
    assert len(openai) > 1 < len(anthropic)


def test_what_a_template_raises_and_that_there_is_none_is_the_messages_fault(
    tmp_path: Any,
) -> None:
    folder = write_tiny_model(tmp_path)
    disliked = Conversation(messages=[{"role": "user", "content": "please raise"}])
    with pytest.raises(InvalidRequestError, match="dislikes please raise") as refused:
        rendered(disliked, work(load_checkpoint(folder)))
    assert refused.value.param == "messages"
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(InvalidRequestError, match="no chat template"):
        rendered(Conversation(messages=USER), work(load_checkpoint(folder)))


def test_a_template_that_fails_on_a_call_s_text_names_it(tmp_path: Any) -> None:
    folder = write_tiny_model(tmp_path)
    (folder / "chat_template.jinja").write_text(
        "{%- for message in messages %}{%- for call in message.tool_calls or [] %}"
        "{%- for name, value in call.function.arguments|items %}{%- endfor %}"
        "{%- endfor %}{{- 1 + message.content }}{%- endfor %}"
    )
    model = load_checkpoint(folder)
    written: tuple[Any, ...] = ({"a": 1}, "not an object")
    calls: list[JsonObject] = [
        {"type": "function", "function": {"name": "f", "arguments": each}} for each in written
    ]

    def param(calls: list[JsonObject], param: str = "messages") -> str | None:
        called: JsonObject = {"role": "assistant", "content": 1, "tool_calls": calls}
        messages: list[JsonObject] = [{"role": "user", "content": 1}, called, *USER]
        with pytest.raises(InvalidRequestError, match="failed on the messages") as refused:
            rendered(Conversation(messages=messages, param=param), work(model))
        return refused.value.param

    assert param(calls) == "messages.1.tool_calls.1.function.arguments"
    assert param(calls, "input") == "input"
    assert param(calls[:1]) == "messages"


def ids(text: str, context: int, noted: Noted | None = None, **fields: Any) -> list[int]:
    return prompt_ids(
        text,
        SamplingFields(**fields),
        work(context=context, noted=noted),
        param="prompt",
        add_special_tokens=False,
    )


@pytest.mark.parametrize("text", [TEXT, TEXT * 50, "é🚀" * 300])
@pytest.mark.parametrize("size", [1, 2, 17, -1])
def test_a_cut_prompt_is_an_end_of_the_whole_one(text: str, size: int) -> None:
    context = 64
    whole = tokenizer().encode(text, add_special_tokens=False)
    kept = context - 1 if size == -1 else size
    left = ids(text, context, truncate_prompt_tokens=size, truncation_side="left")
    right = ids(text, context, truncate_prompt_tokens=size, truncation_side="right")
    assert (left, right) == (whole[-kept:], whole[:kept])


def test_a_text_that_is_surely_too_long_is_refused_before_it_is_encoded() -> None:
    with pytest.raises(ContextTooLongError, match="more than 64 tokens") as refused:
        ids(TEXT * 50, 64)
    assert refused.value.param == "prompt"
    assert refused.value.tokens is not None
    tokens, most = refused.value.tokens
    true = len(tokenizer().encode(TEXT * 50, add_special_tokens=False))
    assert true / 2 < tokens < true * 2
    assert most == 63
    for size in (None, 3):
        with pytest.raises(InvalidRequestError, match="not Unicode"):
            ids("\ud800", 64, truncate_prompt_tokens=size)
    short = encoded("Hi", work(context=64), param="prompt", add_special_tokens=False)
    assert short == tokenizer().encode("Hi", add_special_tokens=False)


def test_time_and_tokens_of_a_prompt_are_noted_even_if_it_is_too_long() -> None:
    noted = Noted()
    with pytest.raises(ContextTooLongError):
        ids(TEXT * 50, 64, noted)
    (tokenizing,) = noted.intervals
    assert (tokenizing.phase, tokenizing.end > tokenizing.begin) == ("tokenize", True)
    # All that was counted before it was certain.
    assert (
        2 * 64 <= noted.prompt_tokens < len(tokenizer().encode(TEXT * 50, add_special_tokens=False))
    )
    noted = Noted()
    assert noted.prompt_tokens == 0 == len(noted.intervals)
    counted = len(ids(TEXT, 4096, noted)) + len(ids(TEXT, 4096, noted, truncate_prompt_tokens=3))
    assert noted.prompt_tokens == counted
    (both,) = noted.intervals
    assert both.phase == "tokenize"


def test_time_of_a_template_that_fails_is_noted(tmp_path: Any) -> None:
    noted, folder = Noted(), write_tiny_model(tmp_path)
    disliked = Conversation(messages=[{"role": "user", "content": "please raise"}])
    with pytest.raises(InvalidRequestError):
        rendered(disliked, work(load_checkpoint(folder), noted=noted))
    (rendering,) = noted.intervals
    assert (rendering.phase, rendering.end > rendering.begin) == ("render", True)


def test_a_prompt_must_leave_room_for_one_token() -> None:
    assert room(63, 64, "prompt") == 1
    with pytest.raises(ContextTooLongError, match="resulted in 64 tokens") as refused:
        room(64, 64, "prompt")
    # LiteLLM and aider look for the first, LangChain for the second.
    for known in ("This model's maximum context length is", "prompt is too long"):
        assert known in refused.value.message


def test_token_ids_are_of_the_vocabulary_and_not_too_many() -> None:
    check_token_ids([], 10, "prompt")
    check_token_ids([0, 9], 10, "prompt")
    with pytest.raises(InvalidRequestError, match="largest id is 9") as refused:
        check_token_ids([0, 10], 10, "prompt")
    assert refused.value.param == "prompt"
    check_together(MAX_PROMPT_TOKENS, "prompt")
    with pytest.raises(ContextTooLongError):
        check_together(MAX_PROMPT_TOKENS + 1, "prompt")


def test_inputs_are_bounded_each_and_together() -> None:
    check_inputs([Input([1] * 8)], ["input[0]"], 8, "input")
    with pytest.raises(ContextTooLongError) as refused:
        check_inputs([Input([1]), Input([1] * 9)], ["input[0]", "input[1]"], 8, "input")
    assert refused.value.param == "input[1]"
    half = Input(range(MAX_PROMPT_TOKENS // 2 + 1))
    with pytest.raises(ContextTooLongError, match="together") as refused:
        check_inputs([half, half], ["input[0]", "input[1]"], MAX_PROMPT_TOKENS, "input")
    assert refused.value.param == "input"


def test_no_conversation_that_fits_is_longer_than_its_bound() -> None:
    context = 1 << 20
    longest = max((CHECKPOINT.vocabulary.text_of(i) for i in range(1000)), key=len)
    assert len(longest) * context <= most_conversation_chars(CHECKPOINT, context)
