"""The embedded model answers the same through each API: chat, thinking, calls, results, forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import jsonschema
import openai
import pytest

from tests.e2e.quire_server import QuireServer

NAME, DESCRIPTION = "get_weather", "Get the current weather in a city."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
FUNCTION: dict[str, Any] = {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS}
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
DEGREES = {"Paris": 18, "London": 11}


@dataclass
class Answer:
    """What a client received, for any API. ``ended`` is the API's own term."""

    ended: str | None
    reasoning: str = ""
    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    call_ids: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Question:
    text: str
    thinking: bool = False
    tools: bool = False
    form: dict[str, Any] | None = None
    results: bool = False  # of the two calls that were made first

    def degrees(self) -> list[tuple[str, str, str]]:
        """Call id, city, result, of each call made first."""
        if not self.results:
            return []
        return [
            (f"call_{number}", city, json.dumps({"temperature": degrees}))
            for number, (city, degrees) in enumerate(DEGREES.items())
        ]


Ask = Callable[[QuireServer, Question, bool], Answer]


def by_chat(server: QuireServer, question: Question, stream: bool) -> Answer:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": question.text}]
    if question.results:
        calls = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": NAME, "arguments": json.dumps({"city": city})},
            }
            for call_id, city, _ in question.degrees()
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += (
            {"role": "tool", "tool_call_id": call_id, "content": result}
            for call_id, _, result in question.degrees()
        )
    asked: dict[str, Any] = {"model": "pocket", "messages": messages, "temperature": 0}
    if question.thinking:
        asked["reasoning_effort"] = "medium"
    if question.tools:
        asked["tools"] = [{"type": "function", "function": FUNCTION}]
    if question.form is not None:
        form = {"name": "answer", "schema": question.form}
        asked["response_format"] = {"type": "json_schema", "json_schema": form}
    reply: Any
    if stream:
        asked["stream_options"] = {"include_usage": True}
        with client.chat.completions.stream(**asked) as events:
            reply = events.get_final_completion()
    else:
        reply = client.chat.completions.create(**asked)
    message = reply.choices[0].message
    return Answer(
        reply.choices[0].finish_reason,
        getattr(message, "reasoning", None) or "",
        message.content or "",
        [
            (call.function.name, json.loads(call.function.arguments))
            for call in message.tool_calls or ()
        ],
        [call.id for call in message.tool_calls or ()],
        reply.usage.prompt_tokens,
        reply.usage.prompt_tokens_details.cached_tokens,
        reply.usage.completion_tokens,
    )


def by_responses(server: QuireServer, question: Question, stream: bool) -> Answer:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
    items: list[Any] = [{"role": "user", "content": question.text}]
    for call_id, city, _ in question.degrees():
        arguments = json.dumps({"city": city})
        items.append(
            {"type": "function_call", "call_id": call_id, "name": NAME, "arguments": arguments}
        )
    items += (
        {"type": "function_call_output", "call_id": call_id, "output": result}
        for call_id, _, result in question.degrees()
    )
    asked: dict[str, Any] = {"model": "pocket", "input": items, "temperature": 0}
    if question.thinking:
        asked["reasoning"] = {"effort": "medium"}
    if question.tools:
        asked["tools"] = [{"type": "function", "strict": False, **FUNCTION}]
    if question.form is not None:
        form = {"type": "json_schema", "name": "answer", "schema": question.form}
        asked["text"] = {"format": form}
    reply: Any
    if stream:
        with client.responses.stream(**asked) as events:
            for _ in events:
                pass
            reply = events.get_final_response()
    else:
        reply = client.responses.create(**asked)
    answer = Answer(reply.status, text=reply.output_text)
    for item in reply.output:
        if item.type == "reasoning":
            answer.reasoning += "".join(part.text for part in item.content)
        elif item.type == "function_call":
            answer.calls.append((item.name, json.loads(item.arguments)))
            answer.call_ids.append(item.call_id)
    answer.prompt_tokens = reply.usage.input_tokens
    answer.cached_tokens = reply.usage.input_tokens_details.cached_tokens
    answer.output_tokens = reply.usage.output_tokens
    return answer


def by_messages(server: QuireServer, question: Question, stream: bool) -> Answer:
    client = anthropic.Anthropic(base_url=server.url, api_key="unused", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": question.text}]
    if question.results:
        used = [
            {"type": "tool_use", "id": call_id, "name": NAME, "input": {"city": city}}
            for call_id, city, _ in question.degrees()
        ]
        told = [
            {"type": "tool_result", "tool_use_id": call_id, "content": result}
            for call_id, _, result in question.degrees()
        ]
        messages += [{"role": "assistant", "content": used}, {"role": "user", "content": told}]
    # This SDK has no word for the temperature any more; the API has.
    greedy = {"temperature": 0}
    asked: dict[str, Any] = {"messages": messages, "max_tokens": 1500, "extra_body": greedy}
    if question.thinking:
        asked["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    if question.tools:
        tool = {"name": NAME, "description": DESCRIPTION, "input_schema": PARAMETERS}
        asked["tools"] = [tool]
    if question.form is not None:
        form = {"type": "json_schema", "schema": question.form}
        asked["output_config"] = {"format": form}
    reply: Any
    if stream:
        with client.messages.stream(model="pocket", **asked) as events:
            reply = events.get_final_message()
    else:
        reply = client.messages.create(model="pocket", **asked)
    answer = Answer(reply.stop_reason)
    for block in reply.content:
        if block.type == "thinking":
            answer.reasoning += block.thinking
        elif block.type == "text":
            answer.text += block.text
        else:
            answer.calls.append((block.name, block.input))
            answer.call_ids.append(block.id)
    usage = reply.usage
    answer.cached_tokens = usage.cache_read_input_tokens
    answer.prompt_tokens = usage.input_tokens + answer.cached_tokens
    answer.output_tokens = usage.output_tokens
    return answer


APIS: dict[str, Ask] = {"chat": by_chat, "responses": by_responses, "messages": by_messages}
EACH_API = pytest.mark.parametrize("ask", APIS.values(), ids=APIS)
EITHER = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
SAID = ("stop", "completed", "end_turn")
CALLED = ("tool_calls", "completed", "tool_use")
TWO_CITIES = "What's the weather in Paris and London?"


@EACH_API
@EITHER
def test_a_chat(server: QuireServer, ask: Ask, stream: bool) -> None:
    answer = ask(server, Question("Hello!"), stream)
    assert answer.ended in SAID
    assert answer.text
    assert (answer.reasoning, answer.calls) == ("", [])


@EACH_API
@EITHER
def test_thinking(server: QuireServer, ask: Ask, stream: bool) -> None:
    answer = ask(server, Question("Hello!", thinking=True), stream)
    assert answer.ended in SAID
    assert answer.reasoning
    assert answer.text
    assert "think>" not in answer.reasoning + answer.text


@EACH_API
@EITHER
@pytest.mark.parametrize("thinking", [False, True], ids=["at once", "after thinking"])
def test_one_call(server: QuireServer, ask: Ask, stream: bool, thinking: bool) -> None:
    question = Question("What is the weather in Paris?", thinking=thinking, tools=True)
    answer = ask(server, question, stream)
    assert answer.ended in CALLED
    assert answer.calls == [(NAME, {"city": "Paris"})]
    assert not answer.text
    assert bool(answer.reasoning) == thinking


@EACH_API
@EITHER
def test_parallel_calls(server: QuireServer, ask: Ask, stream: bool) -> None:
    answer = ask(server, Question(TWO_CITIES, tools=True), stream)
    assert answer.ended in CALLED
    assert answer.calls == [(NAME, {"city": city}) for city in DEGREES]
    assert len(set(answer.call_ids)) == 2


@EACH_API
@EITHER
def test_results_of_tools(server: QuireServer, ask: Ask, stream: bool) -> None:
    answer = ask(server, Question(TWO_CITIES, tools=True, results=True), stream)
    assert answer.ended in SAID
    assert not answer.calls
    assert all(str(degrees) in answer.text for degrees in DEGREES.values())


@EACH_API
@EITHER
@pytest.mark.parametrize("thinking", [False, True], ids=["at once", "after thinking"])
def test_structured_output(server: QuireServer, ask: Ask, stream: bool, thinking: bool) -> None:
    answer = ask(server, Question("Invent a person.", form=PERSON, thinking=thinking), stream)
    assert answer.ended in SAID
    jsonschema.validate(json.loads(answer.text), PERSON)
    assert bool(answer.reasoning) == thinking


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(Question("Hello!"), id="chat"),
        pytest.param(Question("Hello!", thinking=True), id="thinking"),
        pytest.param(Question(TWO_CITIES, tools=True), id="calls"),
        pytest.param(Question(TWO_CITIES, tools=True, thinking=True), id="thinking and calls"),
        pytest.param(Question(TWO_CITIES, tools=True, results=True), id="results"),
        pytest.param(Question("Invent a person.", form=PERSON), id="structured"),
    ],
)
def test_one_question_has_one_answer_in_every_api(server: QuireServer, question: Question) -> None:
    """One prompt, one parser: also the tokens counted are the same."""
    found = [ask(server, question, stream) for ask in APIS.values() for stream in (False, True)]
    for answer in found[1:]:
        assert (answer.reasoning, answer.text) == (found[0].reasoning, found[0].text)
        assert answer.calls == found[0].calls
        assert answer.prompt_tokens == found[0].prompt_tokens
        assert answer.output_tokens == found[0].output_tokens


@EACH_API
@EITHER
def test_a_repeated_prompt_is_reported_as_cached(
    server: QuireServer, ask: Ask, stream: bool
) -> None:
    question = Question(f"Say hello, {ask.__name__} {stream}! " * 6)
    first, again = ask(server, question, stream), ask(server, question, stream)
    assert again.prompt_tokens == first.prompt_tokens
    assert first.cached_tokens < again.cached_tokens < again.prompt_tokens


def test_reasoning_is_counted_in_the_same_way_by_both_openai_apis(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": "Hello!"}],
        reasoning_effort="medium",
        temperature=0,
    )
    response = client.responses.create(
        model="pocket", input="Hello!", reasoning={"effort": "medium"}, temperature=0
    )
    assert chat.usage is not None
    assert chat.usage.completion_tokens_details is not None
    assert response.usage is not None
    told = chat.usage.completion_tokens_details.reasoning_tokens
    assert told == response.usage.output_tokens_details.reasoning_tokens
    assert told is not None
    assert 0 < told < chat.usage.completion_tokens


# --- completions: the same model, without a template or a parser --------------------------------


@pytest.mark.parametrize("thinking", [False, True], ids=["at once", "after thinking"])
def test_a_completion_of_the_rendered_chat_says_it_in_the_model_s_own_words(
    server: QuireServer, client: openai.OpenAI, thinking: bool
) -> None:
    question = Question(TWO_CITIES, tools=True, thinking=thinking)
    answer = by_chat(server, question, stream=False)
    _, rendered = server.post(
        "/tokenize",
        {
            "messages": [{"role": "user", "content": question.text}],
            "tools": [{"type": "function", "function": FUNCTION}],
            "chat_template_kwargs": {"enable_thinking": thinking},
        },
    )
    asked: dict[str, Any] = {"model": "pocket", "prompt": rendered["tokens"], "temperature": 0}
    whole = client.completions.create(**asked, max_tokens=300)
    text = whole.choices[0].text
    assert whole.choices[0].finish_reason == "stop"
    assert text.count("<tool_call>") == len(answer.calls) == 2
    assert answer.reasoning in text
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == answer.prompt_tokens
    assert whole.usage.completion_tokens == answer.output_tokens
    chunks = client.completions.create(**asked, max_tokens=300, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == text


@EITHER
def test_a_completion_of_a_schema(client: openai.OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": "pocket",
        "prompt": "A person as JSON: ",
        "max_tokens": 300,
        "temperature": 0.7,
        "seed": 1,
        "extra_body": {"structured_outputs": {"json": PERSON}},
    }
    if stream:
        chunks = client.completions.create(**asked, stream=True)
        text = "".join(chunk.choices[0].text for chunk in chunks)
    else:
        text = client.completions.create(**asked).choices[0].text
    jsonschema.validate(json.loads(text), PERSON)
