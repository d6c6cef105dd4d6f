"""``quire serve simulated:…``: the whole product without a model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.quire_server import ROOT, QuireServer
from tests.service.tiny_checkpoint import write_tiny_checkpoint

CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "{{word}}"}}\n</tool_call>'
LOOK_UP = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {}}}},
}
RULES: tuple[dict[str, Any], ...] = (
    {"when": "What is your name", "reply": "I am nobody."},
    {"when": "Go on", "reply": "And", "end": False},
    {
        "when": r"look up (?P<word>\w+)",
        "count": "<tool_response>",
        "replies": [CALL, "It means {{word}}."],
    },
    {"when": "Think", "reply": "<think>\nLet me see.\n</think>\n\nSeen."},
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    script = tmp_path_factory.mktemp("scripts") / "replies.jsonl"
    script.write_text("\n".join(json.dumps(rule) for rule in RULES))
    model = f"simulated:instant,script={script},context=1000000"
    with QuireServer(model, "--num-kv-blocks", "100000") as running:
        yield running


def chat(server: QuireServer, text: str, **fields: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    status, reply = server.post("/v1/chat/completions", {"messages": messages, **fields})
    assert status == 200, reply
    return reply["choices"][0]


def test_it_says_what_it_is(simulated: QuireServer) -> None:
    assert "This is a SIMULATION" in simulated.output()
    health = json.loads(simulated.get("/health")[1])
    assert health["model"] == "simulated:instant"
    assert health["engine"]["architecture"] == "simulated"
    (card,) = json.loads(simulated.get("/v1/models")[1])["data"]
    assert (card["id"], card["architecture"]) == ("simulated:instant", "simulated")
    assert card["max_model_len"] == 1_000_000


def test_chat_answers_by_the_script_and_stops(simulated: QuireServer) -> None:
    choice = chat(simulated, "What is your name?")
    assert choice["message"]["content"] == "I am nobody."
    assert choice["finish_reason"] == "stop"


def test_messages_answers_by_the_same_script(simulated: QuireServer) -> None:
    body = {"max_tokens": 50, "messages": [{"role": "user", "content": "What is your name?"}]}
    status, reply = simulated.post("/v1/messages", {"model": "simulated:instant", **body})
    assert status == 200, reply
    assert reply["content"] == [{"type": "text", "text": "I am nobody."}]
    assert reply["stop_reason"] == "end_turn"


def test_a_reply_without_an_end_runs_to_the_limit(simulated: QuireServer) -> None:
    choice = chat(simulated, "Go on", max_tokens=40)
    assert choice["message"]["content"].startswith("And")
    assert choice["finish_reason"] == "length"


def test_reasoning_and_calls_come_out_parsed(simulated: QuireServer) -> None:
    thought = chat(simulated, "Think", chat_template_kwargs={"enable_thinking": True})["message"]
    assert (thought["reasoning"].strip(), thought["content"]) == ("Let me see.", "Seen.")
    called = chat(simulated, "Please look up dusk", tools=[LOOK_UP])
    (call,) = called["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"word": "dusk"}
    assert called["finish_reason"] == "tool_calls"


def converse(server: QuireServer, word: str) -> str:
    """A conversation with one tool call, as an agent leads it; the final answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Please look up {word}"}]
    while True:
        body = {"messages": messages, "tools": [LOOK_UP]}
        status, reply = server.post("/v1/chat/completions", body)
        assert status == 200, reply
        message = reply["choices"][0]["message"]
        if not message.get("tool_calls"):
            return str(message["content"])
        messages.append(message)
        messages += (
            {"role": "tool", "tool_call_id": call["id"], "content": "found"}
            for call in message["tool_calls"]
        )
        # An agent's other requests must not advance the script.
        assert chat(server, "What is your name?")["message"]["content"] == "I am nobody."


def test_each_conversation_gets_its_own_next_reply(simulated: QuireServer) -> None:
    words = ["dawn", "noon", "dusk", "night"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda word: converse(simulated, word), words))
    assert answers == [f"It means {word}." for word in words]


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_schema_binds_the_answer(simulated: QuireServer, temperature: int) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["red", "green"]},
            "note": {"type": "string"},
            "sizes": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        },
        "required": ["kind", "note", "sizes"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
    choice = chat(simulated, "Describe it", response_format=form, temperature=temperature)
    assert choice["finish_reason"] == "stop"
    thing = json.loads(choice["message"]["content"])
    assert thing["kind"] in ("red", "green")
    assert len(thing["sizes"]) >= 2
    assert isinstance(thing["note"], str)


def test_a_forced_call_is_made_without_a_script(simulated: QuireServer) -> None:
    called = chat(simulated, "Well?", tools=[LOOK_UP], tool_choice="required")
    assert called["finish_reason"] == "tool_calls"
    assert called["message"]["tool_calls"][0]["function"]["name"] == "look_up"


def test_metrics_move_as_with_a_model(simulated: QuireServer) -> None:
    before = simulated.total("quire_generated_tokens_total")
    choice = chat(simulated, "Go on", max_tokens=25)
    assert choice["finish_reason"] == "length"
    assert simulated.total("quire_generated_tokens_total") == before + 25


def test_another_family_s_directory_brings_its_tokens_and_its_format(tmp_path: Path) -> None:
    directory = write_tiny_checkpoint(tmp_path / "family")
    (directory / "config.json").unlink()  # shapes and weights are not needed
    fields = {
        "reasoning_content": {"open": "[THINK]", "close": "[/THINK]", "content": "text"},
        "content": {"close": "<|im_end|>", "content": "text"},
    }
    (directory / "response_template.json").write_text(json.dumps({"version": 1, "fields": fields}))
    (tmp_path / "script.jsonl").write_text(json.dumps({"reply": "[THINK]Hm.[/THINK]Yes. 🚀"}))
    model = f"simulated:instant,script={tmp_path / 'script.jsonl'},tokenizer={directory}"
    with QuireServer(model) as server:
        message = chat(server, "Well?")["message"]
    assert (message["reasoning"], message["content"]) == ("Hm.", "Yes. 🚀")


def refused(model: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.cli", "serve", "--port", "0", model],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_bad_spec_or_script_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    done = refused("simulated:warp")
    assert done.returncode == 2
    assert "no profile 'warp'; there are instant" in done.stderr
    missing = refused(f"simulated:tokenizer={tmp_path / 'none'}")
    assert missing.returncode == 1
    assert "no such model directory" in missing.stderr
    (tmp_path / "bad.jsonl").write_text('{"reply": 7}\n')
    done = refused(f"simulated:script={tmp_path / 'bad.jsonl'}")
    assert done.returncode == 1
    assert "bad.jsonl, line 1:" in done.stderr + done.stdout
