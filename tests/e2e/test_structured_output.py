"""Answers in the requested form, from the product as a user starts it, with the SDK."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.quire_server import QuireServer
from tests.engine.constraint.random_schemas import SchemaMaker

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"zone": {"enum": ["UTC", "CET"]}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}


def ask(client: openai.OpenAI, text: str = "Tell me about Ada.", **fields: Any) -> Any:
    extra = {"chat_template_kwargs": {"enable_thinking": fields.pop("thinking", False)}}
    return client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": text}],
        extra_body=extra | fields.pop("extra", {}),
        **{"max_tokens": 400, "temperature": 0.7, "seed": 1, **fields},
    )


def json_schema(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **fields}}


@pytest.mark.parametrize("thinking", [False, True], ids=["at once", "after thinking"])
def test_an_answer_matches_its_json_schema(client: openai.OpenAI, thinking: bool) -> None:
    answer = ask(client, response_format=json_schema(PERSON), thinking=thinking)
    [choice] = answer.choices
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content), PERSON)
    assert bool(getattr(choice.message, "reasoning", None)) == thinking


def test_the_sdk_parses_an_answer_into_a_type_of_its_own(client: openai.OpenAI) -> None:
    class Person(BaseModel):
        name: str
        age: int

    parsed = client.chat.completions.parse(
        model="pocket",
        messages=[{"role": "user", "content": "Ada is 36 years old."}],
        response_format=Person,
        max_tokens=200,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    assert isinstance(parsed.choices[0].message.parsed, Person)


def test_streamed_and_whole_answers_are_one_json_object(client: openai.OpenAI) -> None:
    whole = ask(client, response_format={"type": "json_object"}, max_tokens=300)
    stream = ask(client, response_format={"type": "json_object"}, max_tokens=300, stream=True)
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == whole.choices[0].message.content
    if whole.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("spelling", ["structured_outputs", "guided"])
def test_the_extension_s_forms_are_kept(client: openai.OpenAI, spelling: str) -> None:
    def form(kind: str, value: Any) -> str:
        guided, wrapped = {f"guided_{kind}": value}, {"structured_outputs": {kind: value}}
        answer = ask(client, extra=guided if spelling == "guided" else wrapped)
        assert answer.choices[0].finish_reason == "stop"
        text: str = answer.choices[0].message.content
        return text

    assert form("choice", ["red", "green"]) in ("red", "green")
    assert len(form("regex", "[a-f0-9]{8}")) == 8
    assert form("grammar", 'root ::= "a" ("b" | "c") "d"') in ("abd", "acd")
    jsonschema.validate(json.loads(form("json", PERSON)), PERSON)
    jsonschema.validate(json.loads(form("json", json.dumps(PERSON))), PERSON)


def test_a_completion_takes_a_form_too(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="pocket",
        prompt="The date is ",
        max_tokens=40,
        extra_body={"structured_outputs": {"regex": r"\d{4}-\d{2}-\d{2}"}},
    )
    assert answer.choices[0].finish_reason == "stop"
    assert [len(part) for part in answer.choices[0].text.split("-")] == [4, 2, 2]


@pytest.mark.parametrize("thinking", [False, True], ids=["at once", "after thinking"])
def test_a_required_call_is_made_regardless_of_the_conversation(
    client: openai.OpenAI, thinking: bool
) -> None:
    answer = ask(
        client, "Hello!", tools=[WEATHER, CLOCK], tool_choice="required", thinking=thinking
    )
    [choice] = answer.choices
    assert choice.finish_reason in ("tool_calls", "length")
    assert not choice.message.content
    assert choice.message.tool_calls
    schemas = {
        tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, CLOCK)
    }
    for call in choice.message.tool_calls[: None if choice.finish_reason != "length" else -1]:
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])


def test_a_named_tool_is_called_once(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "get_time"}}
    answer = ask(client, "Hello!", tools=[WEATHER, CLOCK], tool_choice=named)
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "get_time"
    assert json.loads(call.function.arguments)["zone"] in ("UTC", "CET")


def test_without_parallel_calls_there_is_one(client: openai.OpenAI) -> None:
    for seed in range(3):
        answer = ask(
            client,
            "What is the weather in Oslo and in Rome?",
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
            seed=seed,
        )
        assert len(answer.choices[0].message.tool_calls) == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": json_schema({"type": "strin"})},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": json_schema({"properties": {"a": {"not": {}}}}, strict=True)},
            "response_format.json_schema.schema.properties.a.not",
        ),
        ({"extra": {"guided_regex": "("}}, "guided_regex"),
        (
            {"extra": {"structured_outputs": {"grammar": "start: missing"}}},
            "structured_outputs.grammar",
        ),
        ({"extra": {"structured_outputs": {}}}, "structured_outputs"),
        (
            {"extra": {"guided_regex": "a", "guided_choice": ["a"]}},
            "guided_choice",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "nobody"}},
            },
            "tool_choice",
        ),
    ],
)
def test_a_form_that_cannot_be_had_is_a_400_that_names_the_field(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert refused.value.param == param


def test_keywords_next_to_a_recursive_reference_are_refused_in_a_sentence(
    client: openai.OpenAI,
) -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#", "minProperties": 1}}}
    with pytest.raises(openai.BadRequestError, match=r"next to a recursive '\$ref'"):
        ask(client, response_format=json_schema(tree, strict=True))


def test_random_schemas_are_matched_over_http(client: openai.OpenAI) -> None:
    stopped = 0
    for seed in range(6):
        schema = SchemaMaker(seed).make()
        answer = ask(client, response_format=json_schema(schema), seed=seed)
        if answer.choices[0].finish_reason == "stop":
            jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
            stopped += 1
    assert stopped >= 4


@pytest.mark.slow  # judged by the clock
def test_hostile_schemas_over_http_hold_up_no_other_stream(
    server: QuireServer, client: openai.OpenAI
) -> None:
    hostile: list[dict[str, Any]] = [
        {"guided_regex": "(a|b)*a(a|b){30}"},
        {"guided_regex": r"(.|\n)*a(.|\n){200}b"},
        {"guided_grammar": "start: e\ne: e e e | e e | /[a-z]/ |\n"},
        {"guided_grammar": "start: e\ne: /[a-z]/ e | /[a-z]/ e e | /[a-z]/\n"},
        {"guided_json": {"type": "object", "properties": {f"p{i}": {} for i in range(6_000)}}},
        {"guided_json": {"enum": [f"value {i}" for i in range(20_000)]}},
        {"guided_json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
        {"guided_json": "[" * 50_000},
    ]
    statuses: list[int] = []

    def send(fields: dict[str, Any]) -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, **fields}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        statuses.append(answer.status_code)

    gaps = []
    threads = [threading.Thread(target=send, args=(fields,)) for fields in hostile]
    last = None
    for _ in range(4):
        stream = ask(client, "Tell me a story.", stream=True, extra={"ignore_eos": True})
        for number, _chunk in enumerate(stream):
            now = time.monotonic()
            if last is not None:
                gaps.append(now - last)
            last = now
            if number == 20 and threads and not threads[0].is_alive() and not statuses:
                for thread in threads:
                    thread.start()
                threads, started = [], threads
        last = None
    for thread in started:
        thread.join(60)
    assert len(statuses) == len(hostile)
    assert set(statuses) <= {200, 400, 500}
    assert max(gaps) < 2  # of a client that shares its processor with all of them
    assert ask(client, extra={"guided_choice": ["yes"]}).choices[0].message.content == "yes"


SHORT = {
    "type": "object",
    "properties": {"reply": {"type": "string", "maxLength": 12}, "n": {"enum": [1, 2]}},
    "required": ["reply", "n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "form",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": json_schema(SHORT)},
        {"extra_body": {"guided_choice": ["yes", "no"]}},
        {"extra_body": {"guided_grammar": 'root ::= "[" [0-9] "]"'}},
        {"extra_body": {"regex": "[0-9]{3}"}},
    ],
    ids=["json_object", "json_schema", "choice", "grammar", "regex"],
)
def test_behind_thinking_that_the_template_closed_the_answer_comes_at_once(
    client: openai.OpenAI, form: dict[str, Any], seed: int
) -> None:
    """Nobody said a word of thinking: pocket's own template closes it."""
    answer = client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": "Hello"}],
        temperature=1,
        seed=seed,
        max_tokens=60,
        **form,
    )
    [choice] = answer.choices
    assert choice.message.content
    assert getattr(choice.message, "reasoning", None) is None
    if form == {"response_format": {"type": "json_object"}}:
        # Nothing bounds how much a small model puts into one.
        assert choice.message.content.startswith("{")
        assert choice.finish_reason == "length" or json.loads(choice.message.content) is not None
        return
    assert choice.finish_reason == "stop"
    if "response_format" in form:
        jsonschema.validate(json.loads(choice.message.content), SHORT)
