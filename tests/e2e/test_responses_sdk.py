"""The Responses API by the official OpenAI SDK, against the product as a user starts it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.e2e.quire_server import QuireServer, until

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather in a city.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
TWO_CITIES = "What's the weather in Paris and London?"
THINK: dict[str, Any] = {"reasoning": {"effort": "medium"}}
LONG: dict[str, Any] = {
    "input": "Tell me a story.",
    "max_output_tokens": 2000,
    "extra_body": {"ignore_eos": True},
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "hello": {"input": "Hello!", "instructions": "Be kind."},
    "thinking": {"input": "Hello!", **THINK},
    "parallel calls": {"input": TWO_CITIES, "tools": [WEATHER]},
    "thinking and calls": {
        "input": TWO_CITIES,
        "tools": [WEATHER],
        **THINK,
        "include": ["reasoning.encrypted_content"],
    },
    "cut": {"input": "Tell me a story.", "max_output_tokens": 16},
    "logprobs": {
        "input": "Hello!",
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    },
}

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class Person(BaseModel):
    name: str
    age: int


def ask(client: openai.OpenAI, **more: Any) -> Response:
    response: Response = client.responses.create(model="pocket", **more)
    return response


def raw_events(server: QuireServer, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The stream's events, read without any SDK."""
    extra = body.get("extra_body", {})
    asked = {key: value for key, value in body.items() if key != "extra_body"} | extra
    with httpx2.stream(
        "POST",
        f"{server.url}/v1/responses",
        json={"model": "pocket", "stream": True, **asked},
        timeout=60,
    ) as reply:
        text = "".join(reply.iter_text())
        assert reply.status_code == 200, text
    return events_in(text)


def events_in(text: str) -> list[dict[str, Any]]:
    found = []
    for event in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.split("\n"))
        found.append(json.loads(fields["data"]))
        assert fields["event"] == found[-1]["type"]
    return found


def lasting(response: Any) -> dict[str, Any]:
    """What two answers to one question share; the second finds the prompt cached."""
    members = response if isinstance(response, dict) else response.model_dump(exclude_unset=True)
    found = []
    for item in members["output"]:
        kept = {key: value for key, value in item.items() if key not in ("id", "call_id")}
        kept.pop("encrypted_content", None)
        found.append(kept)
    usage = members["usage"]
    return {
        "output": found,
        "status": members["status"],
        "tokens": (usage["input_tokens"], usage["output_tokens"]),
        "incomplete": members["incomplete_details"],
    }


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_every_streamed_event_is_the_sdk_s_own_and_they_add_up_to_the_final_object(
    client: openai.OpenAI, server: QuireServer, question: dict[str, Any]
) -> None:
    events = raw_events(server, question)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        _EVENT.validate_python(event)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    final = events[-1]["response"]
    assert kinds[-1] == f"response.{final['status']}"
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["item"] for event in done] == final["output"]
    assert [event["output_index"] for event in done] == list(range(len(done)))
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["item"]["id"] for event in added] == [item["id"] for item in final["output"]]
    for item in final["output"]:
        deltas = [
            event["delta"]
            for event in events
            if event.get("item_id") == item["id"] and event["type"].endswith(".delta")
        ]
        shown = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        assert "".join(deltas) == shown
    assert lasting(ask(client, **question)) == lasting(final)
    assert json.loads(server.get(f"/v1/responses/{final['id']}")[1]) == final


def test_the_sdk_s_stream_helper_builds_the_same_response(client: openai.OpenAI) -> None:
    with client.responses.stream(
        model="pocket", input=TWO_CITIES, tools=[WEATHER], **THINK
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "function_call", "function_call"]
    whole = ask(client, input=TWO_CITIES, tools=[WEATHER], **THINK)
    helped = lasting(final)
    for item in helped["output"]:
        item.pop("parsed_arguments", None)
    assert helped == lasting(whole)


def test_parse_gives_an_object_of_the_wanted_class(client: openai.OpenAI) -> None:
    reply = client.responses.parse(model="pocket", input="Invent a person.", text_format=Person)
    assert isinstance(reply.output_parsed, Person)
    with client.responses.stream(
        model="pocket", input="Invent a person.", text_format=Person
    ) as stream:
        assert stream.get_final_response().output_parsed == reply.output_parsed


def results_of(response: Response) -> list[Any]:
    calls = [item for item in response.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in calls] == [{"city": "Paris"}, {"city": "London"}]
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": json.dumps({"temperature": degrees}),
        }
        for call, degrees in zip(calls, (18, 11), strict=True)
    ]


def test_a_tool_loop_by_previous_response_and_one_by_items_end_in_the_same_answer(
    client: openai.OpenAI,
) -> None:
    more: dict[str, Any] = {"tools": [WEATHER], **THINK}
    first = ask(client, input=TWO_CITIES, include=["reasoning.encrypted_content"], **more)
    results = results_of(first)
    stored = ask(client, previous_response_id=first.id, input=results, **more)
    carried = ask(
        client,
        input=[
            {"role": "user", "content": TWO_CITIES},
            *[item.model_dump(exclude_none=True) for item in first.output],
            *results,
        ],
        store=False,
        **more,
    )
    assert "18" in stored.output_text
    assert "11" in stored.output_text
    assert lasting(carried) == lasting(stored)
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    referred = ask(
        client,
        input=[{"role": "user", "content": TWO_CITIES}, *references, *results],  # type: ignore[list-item]
        **more,
    )
    assert lasting(referred) == lasting(stored)


def test_reasoning_comes_back_sealed_and_an_altered_seal_is_reported(client: openai.OpenAI) -> None:
    more: dict[str, Any] = {"tools": [WEATHER], "store": False, **THINK}
    first = ask(client, input=TWO_CITIES, include=["reasoning.encrypted_content"], **more)
    thought = first.output[0]
    assert thought.type == "reasoning"
    assert thought.encrypted_content
    calls = [item.model_dump(exclude_none=True) for item in first.output[1:]]

    def go_on(sealed: str) -> Response:
        bare = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
        before = [{"role": "user", "content": TWO_CITIES}, bare, *calls]
        return ask(client, input=[*before, *results_of(first)], **more)

    plain: Any = thought.model_dump(exclude={"encrypted_content"}, exclude_none=True)
    shown = ask(
        client,
        input=[{"role": "user", "content": TWO_CITIES}, plain, *calls, *results_of(first)],
        **more,
    )
    assert lasting(go_on(thought.encrypted_content)) == lasting(shown)
    altered = thought.encrypted_content[:-6] + "AAAA" + thought.encrypted_content[-2:]
    assert (go_on(altered).model_extra or {})["ignored"] == ["input[1].encrypted_content"]


def test_stored_responses_can_be_listed_and_deleted(client: openai.OpenAI) -> None:
    first = ask(client, input="Hello!")
    second = ask(client, previous_response_id=first.id, input="Thanks!")
    listed = list(client.responses.input_items.list(second.id, order="asc", limit=1))
    assert [item.type for item in listed] == ["message"] * 3  # by as many pages
    assert [item.id for item in client.responses.input_items.list(second.id)] == [
        item.id for item in reversed(listed)
    ]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(first.id)
    assert client.responses.retrieve(second.id).id == second.id


def test_a_response_with_store_false_is_not_stored(client: openai.OpenAI) -> None:
    response = ask(client, input="Hello!", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_background_response_is_polled_to_its_end_and_read_as_a_stream(
    client: openai.OpenAI,
) -> None:
    started = ask(client, input=TWO_CITIES, tools=[WEATHER], background=True)
    assert started.status in ("queued", "in_progress")

    def ended() -> Response | None:
        found: Response = client.responses.retrieve(started.id)
        return None if found.status in ("queued", "in_progress") else found

    final = until(ended, 30, "the background response to end")
    assert final.status == "completed"
    whole = list(client.responses.retrieve(started.id, stream=True))
    assert [event.sequence_number for event in whole] == list(range(len(whole)))
    assert whole[-1].type == "response.completed"
    assert lasting(whole[-1].response) == lasting(final)
    for after in (0, 5, len(whole) - 2):
        tail = list(client.responses.retrieve(started.id, stream=True, starting_after=after))
        assert tail == whole[after + 1 :]


def test_a_background_response_can_be_cancelled(client: openai.OpenAI, server: QuireServer) -> None:
    started = ask(client, background=True, **LONG)
    cancelled = client.responses.cancel(started.id)
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(started.id).status == "cancelled"
    until(lambda: server.total("quire_sequences_running") == 0, 10, "the engine to be idle")
    assert client.responses.cancel(started.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(ask(client, input="Hello!").id)


def test_a_stored_stream_that_broke_is_read_on_from_where_it_broke(client: openai.OpenAI) -> None:
    stream = client.responses.create(model="pocket", stream=True, store=True, **LONG)
    head = [next(stream) for _ in range(20)]
    stream.close()
    first = head[0]
    assert first.type == "response.created"
    rest = client.responses.retrieve(
        first.response.id, stream=True, starting_after=head[-1].sequence_number
    )
    events = [*head, *rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.incomplete"
    assert client.responses.retrieve(first.response.id) == last.response


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"input": "x", "previous_response_id": "resp_none"}, 400, "previous_response_id"),
        ({"input": [{"type": "message", "role": "king", "content": ""}]}, 400, None),
        ({"input": "x", "tools": [{"type": "function"}]}, 400, None),
        ({"input": "x", "tool_choice": {"type": "function", "name": "none"}}, 400, "tool_choice"),
        (
            {
                "input": "x",
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": {"type": "nothing"}}
                },
            },
            400,
            "text.format.schema",
        ),
        ({"input": "x", "conversation": "conv_1"}, 400, "conversation"),
        ({"input": [{"type": "item_reference", "id": "msg_none"}]}, 404, "input[0].id"),
    ],
)
def test_an_invalid_request_is_refused_in_openai_s_format(
    server: QuireServer, body: dict[str, Any], status: int, param: str | None
) -> None:
    got, reply = server.post("/v1/responses", {"model": "pocket", **body})
    assert got == status, reply
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    if param is not None:
        assert reply["error"]["param"] == param


def test_tools_that_nothing_here_runs_are_reported(
    client: openai.OpenAI, server: QuireServer
) -> None:
    reply = client.responses.with_raw_response.create(
        model="pocket",
        input="Hello!",
        tools=[{"type": "web_search"}, WEATHER],  # type: ignore[list-item]
    )
    assert reply.headers["x-quire-ignored"] == "tools[0].web_search"
    assert (reply.parse().model_extra or {})["ignored"] == ["tools[0].web_search"]


# --- Codex CLI: the shape of its requests, reduced ------------------------------------------------

SHELL = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}, "yield_time_ms": {"type": "number"}},
        "required": ["cmd"],
        "additionalProperties": False,
    },
}
AGENTS = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Sub-agents",
    "tools": [
        {
            "type": "function",
            "name": "close_agent",
            "description": "Ends one.",
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": {"target": {"type": "string"}},
                "required": ["target"],
                "additionalProperties": False,
            },
        }
    ],
}
# A typical tool of this kind: a grammar, and nothing that requires a call.
EXEC = {
    "type": "custom",
    "name": "exec",
    "description": "Runs JavaScript.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"},
}


def message(role: str, *texts: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_00000000-0000-7000-8000-00000000000{len(texts)}",
        "role": role,
        "content": [{"type": "input_text", "text": text} for text in texts],
    }


CODEX: dict[str, Any] = {
    "stream": True,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "00000000-0000-7000-8000-000000000001",
    "client_metadata": {"session_id": "00000000-0000-7000-8000-000000000001"},
}
TURN = [
    message("developer", "You may run commands."),
    message("developer", "Be brief.", "Be right."),
    message("user", "The folder is /demo."),
    message("user", "Run echo ok and tell me the output."),
]


@pytest.mark.parametrize(
    "more",
    [
        {"input": TURN, "tools": [SHELL, AGENTS, {"type": "web_search"}]},
        {
            "input": [
                *TURN,
                {
                    "type": "function_call",
                    "status": "completed",
                    "id": "fc_1",
                    "name": "exec_command",
                    "arguments": '{"cmd": "echo ok"}',
                    "call_id": "call_1",
                },
                {
                    "type": "function_call_output",
                    "id": "fco_1",
                    "call_id": "call_1",
                    "output": "Process exited with code 0\nOutput:\nok\n",
                },
            ],
            "tools": [SHELL, AGENTS, {"type": "web_search"}],
        },
        {
            "input": [
                {
                    "type": "additional_tools",
                    "id": "at_1",
                    "role": "developer",
                    "tools": [
                        {
                            "type": "namespace",
                            "name": "functions",
                            "description": "",
                            "tools": [EXEC, {**SHELL, "name": "wait"}],
                        },
                        AGENTS,
                    ],
                },
                *TURN,
            ],
            "text": {"verbosity": "low"},
        },
    ],
    ids=["first turn", "after a call", "tools among the items"],
)
def test_requests_as_codex_sends_them_are_answered(
    server: QuireServer, more: dict[str, Any]
) -> None:
    events = raw_events(server, {**CODEX, **more})
    for event in events:
        _EVENT.validate_python(event)
    assert events[-1]["type"] in ("response.completed", "response.incomplete")
    final = events[-1]["response"]
    assert final["output"]
    assert final["store"] is False
    assert "reasoning.summary" not in final.get("ignored", ())


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [("regex", "ls( -[a-z]){1,2}"), ("lark", 'start: "ls" (" -" /[a-z]/)~1..2')],
)
def test_a_custom_tool_is_called_with_text_of_its_grammar(
    client: openai.OpenAI, server: QuireServer, syntax: str, definition: str
) -> None:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool = {"type": "custom", "name": "exec", "description": "Runs a command.", "format": form}
    body = {
        "input": "List the files.",
        "tools": [tool],
        "tool_choice": {"type": "custom", "name": "exec"},
    }
    events = raw_events(server, body)
    for event in events:
        _EVENT.validate_python(event)
    [call] = events[-1]["response"]["output"]
    assert (call["type"], call["name"]) == ("custom_tool_call", "exec")
    assert re.fullmatch(r"ls( -[a-z]){1,2}", call["input"])
    kind = "response.custom_tool_call_input"
    deltas = [event["delta"] for event in events if event["type"] == f"{kind}.delta"]
    assert "".join(deltas) == call["input"]
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "a.txt"}
    after = ask(
        client,
        previous_response_id=events[-1]["response"]["id"],
        input=[result],
        tools=[tool],
    )
    assert after.status == "completed"


def test_the_example_in_the_docs_runs_as_typed(
    server: QuireServer, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "responses.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert examples
    for example in examples:
        exec(example.replace("http://127.0.0.1:8000", server.url), {})  # noqa: S102  our own page
        assert capsys.readouterr().out.strip()
