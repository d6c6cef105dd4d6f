"""Fields beyond the vendors' own, against the real worker and engine."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers

from pocket import MODEL_DIR
from service.checkpoint.checkpoint import load_checkpoint
from tests.service.running import RunningService, until

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "Tell me of the sea"}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [USER], "max_tokens": 6, "temperature": 0, **fields}


# --- the prompt ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "kept"), [("left", slice(-5, None)), ("right", slice(5))])
def test_a_prompt_is_cut_to_the_requested_number_of_tokens(
    service: RunningService, side: str, kept: slice
) -> None:
    ids = load_checkpoint(service.model).tokenizer.encode("one two three", add_special_tokens=True)
    ask = {"prompt": ids, "max_tokens": 4, "temperature": 0, "return_token_ids": True}
    _, cut = service.post(TEXT, {**ask, "truncate_prompt_tokens": 5, "truncation_side": side})
    _, short = service.post(TEXT, {**ask, "prompt": ids[kept]})
    assert cut["choices"][0]["prompt_token_ids"] == ids[kept]
    assert cut["choices"][0]["text"] == short["choices"][0]["text"]
    assert cut["usage"]["prompt_tokens"] == 5


def test_a_cut_prompt_is_echoed_as_it_was_cut(service: RunningService) -> None:
    ask = {"prompt": "one two three", "max_tokens": 0, "echo": True, "truncate_prompt_tokens": 5}
    _, answer = service.post(TEXT, ask)
    tokenizer = load_checkpoint(service.model).tokenizer
    ids = tokenizer.encode(ask["prompt"], add_special_tokens=True)
    assert answer["choices"][0]["text"] == tokenizer.decode(ids[-5:])


def test_minus_one_cuts_a_conversation_to_the_context(service: RunningService) -> None:
    long = {**chat(max_tokens=1), "messages": [{"role": "user", "content": "sea " * 5000}]}
    assert service.post(CHAT, long)[0] == 400
    status, answer = service.post(CHAT, {**long, "truncate_prompt_tokens": -1})
    assert status == 200
    card = json.loads(service.get("/v1/models/tiny")[1])
    assert answer["usage"]["prompt_tokens"] == card["max_model_len"] - 1


def test_truncation_that_leaves_nothing_of_a_prompt_is_refused(service: RunningService) -> None:
    status, answer = service.post(CHAT, chat(truncate_prompt_tokens=0))
    assert (status, answer["error"]["param"]) == (400, "truncate_prompt_tokens")


def test_an_echoed_chat_answer_begins_with_the_message_it_continues(
    service: RunningService,
) -> None:
    begun = {"role": "assistant", "content": "It is"}
    ask = chat(messages=[USER, begun], continue_final_message=True)
    _, plain = service.post(CHAT, ask)
    _, whole = service.post(CHAT, {**ask, "echo": True})
    text = whole["choices"][0]["message"]["content"]
    assert text == "It is" + plain["choices"][0]["message"]["content"]
    chunks = service.stream(CHAT, {**ask, "echo": True, "stream": True})
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text


# --- the answer ----------------------------------------------------------------------------------


def test_timings_are_sent_on_request_and_in_order(service: RunningService) -> None:
    _, answer = service.post(CHAT, chat(timings=True))
    timings = answer["timings"]
    assert 0 <= timings["queue_ms"] <= timings["time_to_first_token_ms"] <= timings["total_ms"]
    assert timings["mean_itl_ms"] > 0
    assert timings["output_tokens_per_second"] > 0
    assert "timings" not in service.post(CHAT, chat())[1]


def _events(service: RunningService, path: str, body: Any) -> list[dict[str, Any]]:
    _, _, reply = service.exchange("POST", path, json.dumps(body).encode())
    data = [line.removeprefix("data: ") for line in reply.decode().splitlines() if "data: " in line]
    return [json.loads(event) for event in data if event != "[DONE]"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat()),
        (TEXT, {"prompt": "Once", "max_tokens": 4}),
        ("/v1/messages", {"model": "tiny", "messages": [USER], "max_tokens": 4}),
        ("/v1/responses", {"model": "tiny", "input": "Once", "max_output_tokens": 4}),
    ],
)
def test_every_api_reports_the_same_timings_whole_and_streamed(
    service: RunningService, path: str, body: dict[str, Any]
) -> None:
    _, answer = service.post(path, {**body, "timings": True})
    said = set(answer["timings"])
    last = [
        found
        for event in _events(service, path, {**body, "timings": True, "stream": True})
        for found in [event.get("timings") or event.get("response", {}).get("timings")]
        if found
    ]
    assert [set(timings) for timings in last] == [said]


def test_a_request_id_in_the_body_reaches_the_log(service: RunningService) -> None:
    service.post(CHAT, chat(request_id="mine-77"))
    until(lambda: '"client_request_id":"mine-77"' in service.worker.output(), 5, "the log line")


def test_hints_that_do_nothing_here_are_named(service: RunningService) -> None:
    prediction = {"type": "content", "content": "x"}
    body = json.dumps(chat(prediction=prediction, verbosity="low")).encode()
    _, headers, _ = service.exchange("POST", CHAT, body)
    assert headers["x-quire-ignored"] == "prediction, verbosity"


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready", "/"])
def test_head_is_answered_without_a_body(service: RunningService, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    connection.request("HEAD", path)
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"")


# --- the best of several -------------------------------------------------------------------------


def test_the_best_of_several_are_the_most_likely_ones(service: RunningService) -> None:
    ask = {"prompt": "Once", "max_tokens": 8, "temperature": 1.5, "seed": 3, "logprobs": 0}
    _, made = service.post(TEXT, {**ask, "n": 5})
    _, best = service.post(TEXT, {**ask, "n": 2, "best_of": 5})

    def mean(choice: Any) -> float:
        values = choice["logprobs"]["token_logprobs"]
        return sum(values) / len(values)

    expected = sorted(made["choices"], key=mean, reverse=True)[:2]
    assert [choice["text"] for choice in best["choices"]] == [c["text"] for c in expected]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize(
    "fields", [{"n": 3, "best_of": 2}, {"best_of": 3, "stream": True}, {"best_of": 10_000}]
)
def test_a_best_of_that_cannot_be_is_refused(
    service: RunningService, fields: dict[str, Any]
) -> None:
    status, answer = service.post(TEXT, {"prompt": "Once", **fields})
    assert (status, answer["error"]["param"]) == (400, "best_of")


# --- beam search ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weighted_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """pocket, whose weights transformers can load too."""
    folder = tmp_path_factory.mktemp("weighted")
    with RunningService(MODEL_DIR, folder, engine_args=("--load-format", "auto")) as running:
        yield running


def _beams_of(
    service: RunningService, ids: list[int], *, width: int, steps: int, penalty: float
) -> list[list[int]]:
    """Return what transformers finds, without padding."""
    model = transformers.AutoModelForCausalLM.from_pretrained(service.model, dtype=torch.float32)
    ends = model.generation_config.eos_token_id
    outputs = model.generate(
        torch.tensor([ids]),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=steps,
        length_penalty=penalty,
        do_sample=False,
    )
    found = []
    for output in outputs[:, len(ids) :].tolist():
        length = next((place for place, token in enumerate(output, 1) if token in ends), steps)
        found.append(output[:length])
    return found


HELLO = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.mark.parametrize("penalty", [1.0, 0.0, -1.0, 2.0])
@pytest.mark.parametrize(("text", "steps"), [("the sea", 6), (HELLO, 40)])
def test_a_beam_search_finds_what_transformers_finds(
    weighted_service: RunningService, text: str, steps: int, penalty: float
) -> None:
    service = weighted_service
    ids = load_checkpoint(service.model).tokenizer.encode(text, add_special_tokens=True)
    ask = {
        **{"prompt": ids, "max_tokens": steps, "n": 3, "use_beam_search": True},
        **{"length_penalty": penalty, "return_token_ids": True, "logprobs": 2},
    }
    status, answer = service.post(TEXT, ask)
    assert status == 200, answer
    found = [choice["token_ids"] for choice in answer["choices"]]
    assert found == _beams_of(service, ids, width=3, steps=steps, penalty=penalty)
    assert answer["usage"]["completion_tokens"] == sum(map(len, found))
    for choice in answer["choices"]:
        assert len(choice["logprobs"]["token_logprobs"]) == len(choice["logprobs"]["tokens"])
        # The two likeliest, and the one that was taken.
        assert all(2 <= len(top) <= 3 for top in choice["logprobs"]["top_logprobs"])


def test_a_beam_search_streams_its_answer_at_the_end(service: RunningService) -> None:
    ask = chat(n=2, use_beam_search=True)
    _, whole = service.post(CHAT, ask)
    said = ["", ""]
    for chunk in service.stream(CHAT, {**ask, "stream": True}):
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["delta"].get("content") or ""
    assert said == [choice["message"]["content"] for choice in whole["choices"]]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 11}, "n"),
        ({"logit_bias": {"5": 3}}, "logit_bias"),
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"response_format": {"type": "json_object"}}, "use_beam_search"),
    ],
)
def test_fields_that_beam_search_does_not_support_are_refused_by_name(
    service: RunningService, fields: dict[str, Any], param: str
) -> None:
    status, answer = service.post(CHAT, chat(use_beam_search=True, **fields))
    assert (status, answer["error"]["param"]) == (400, param), answer


# --- functions, before they were tools -----------------------------------------------------------

FUNCTION = {
    "name": "look_up",
    "parameters": {
        "type": "object",
        "properties": {"word": {"enum": ["sea", "sky"]}},
        "required": ["word"],
        "additionalProperties": False,
    },
}


def test_a_function_is_called_as_it_was_before_tools(service: RunningService) -> None:
    named = {"function_call": {"name": "look_up"}, "max_tokens": 400, "temperature": 1, "seed": 1}
    ask = chat(functions=[FUNCTION], **named)
    _, answer = service.post(CHAT, ask)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "function_call", answer
    call = choice["message"]["function_call"]
    assert choice["finish_reason"] == "function_call"
    assert call["name"] == "look_up"
    assert json.loads(call["arguments"])["word"] in ("sea", "sky")
    assert "tool_calls" not in choice["message"]
    chunks = service.stream(CHAT, {**ask, "stream": True})
    deltas = [chunk["choices"][0]["delta"].get("function_call", {}) for chunk in chunks]
    assert "".join(delta.get("name", "") for delta in deltas) == "look_up"
    assert "".join(delta.get("arguments", "") for delta in deltas) == call["arguments"]
    result = {"role": "function", "name": "look_up", "content": "wet"}
    said = {"role": "assistant", "content": None, "function_call": call}
    again = chat(functions=[FUNCTION], messages=[USER, said, result])
    assert service.post(CHAT, again)[0] == 200


def test_functions_and_tools_exclude_each_other(service: RunningService) -> None:
    tool = {"type": "function", "function": FUNCTION}
    status, answer = service.post(CHAT, chat(functions=[FUNCTION], tools=[tool]))
    assert (status, answer["error"]["param"]) == (400, "functions")


# --- what clients of other servers send -----------------------------------------------------------


def ignored_by(service: RunningService, path: str, body: Any) -> tuple[int, str, Any]:
    status, headers, reply = service.exchange("POST", path, json.dumps(body).encode())
    return status, headers.get("x-quire-ignored", ""), json.loads(reply)


def test_unknown_fields_change_nothing_and_are_named_in_header_and_log(
    service: RunningService,
) -> None:
    messages = [USER, {"role": "assistant", "content": "b", "parsed": {"mirostat-value": 1}}, USER]
    without = [USER, {"role": "assistant", "content": "b"}, USER]
    _, plain = service.post(CHAT, chat(messages=without))
    strange = chat(messages=messages, mirostat="mirostat-value", max_tokens=6.0, ignore_eos=None)
    status, ignored, answer = ignored_by(service, CHAT, strange)
    assert (status, ignored) == (200, "mirostat, messages[1].parsed")
    assert answer["choices"][0]["message"] == plain["choices"][0]["message"]
    assert answer["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    # The line is written when the response has been sent.
    until(lambda: f'"ignored":"{ignored}"' in service.worker.output(), 30, "the log line")
    assert "mirostat-value" not in service.worker.output()


LOOSE = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"enum": [1]}, "uniqueItems": True}},
    "required": ["a"],
    "additionalProperties": False,
}
SETS = "properties.a.uniqueItems"


def test_unenforceable_parts_of_a_schema_are_reported_or_if_strict_refused(
    service: RunningService,
) -> None:
    def form(**strict: Any) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"name": "n", "schema": LOOSE, **strict}}

    path = f"response_format.json_schema.schema.{SETS}"
    for asked in (form(), form(strict=False)):
        status, ignored, _ = ignored_by(service, CHAT, chat(response_format=asked))
        assert (status, ignored) == (200, path)
    status, _, answer = ignored_by(service, CHAT, chat(response_format=form(strict=True)))
    assert (status, answer["error"]["param"]) == (400, path)
    text = {"format": {"type": "json_schema", "name": "n", "schema": LOOSE}}
    status, ignored, answer = ignored_by(
        service, "/v1/responses", {"input": "a", "text": text, "max_output_tokens": 20}
    )
    assert (status, ignored) == (200, f"text.format.schema.{SETS}")
    completion = {"model": "tiny", "prompt": "a", "guided_json": LOOSE, "max_tokens": 5}
    assert ignored_by(service, TEXT, completion)[:2] == (200, f"guided_json.{SETS}")


def test_a_schema_whose_grammar_is_impossible_is_eased_unless_it_is_strict(
    service: RunningService,
) -> None:
    schema = {"oneOf": [{"type": "integer"}, {"type": "number"}]}

    def form(**strict: Any) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **strict}}

    status, ignored, _ = ignored_by(service, CHAT, chat(response_format=form()))
    assert (status, ignored) == (200, "response_format.json_schema.schema.oneOf")
    status, _, answer = ignored_by(service, CHAT, chat(response_format=form(strict=True)))
    assert (status, answer["error"]["param"]) == (400, "response_format.json_schema.schema")


def test_tokens_may_be_shown_by_their_ids(service: RunningService) -> None:
    ask = {"logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    _, answer = service.post(CHAT, chat(**ask, return_tokens_as_token_ids=True))
    [choice] = answer["choices"]
    tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert tokens == [f"token_id:{token}" for token in choice["token_ids"]][: len(tokens)]
    assert tokens
    ask = {"model": "tiny", "prompt": "a", "max_tokens": 3, "logprobs": 2, "temperature": 0}
    _, answer = service.post(TEXT, {**ask, "return_tokens_as_token_ids": True})
    logprobs = answer["choices"][0]["logprobs"]
    assert all(token.startswith("token_id:") for token in logprobs["tokens"])
    assert all(len(best) >= 2 for best in logprobs["top_logprobs"])  # no two fall together


def test_parts_of_a_character_are_also_shown_by_their_ids(service: RunningService) -> None:
    ids = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    asked = {"model": "tiny", "prompt": "é漢", "echo": True, "max_tokens": 1, "logprobs": 1}
    _, answer = service.post(TEXT, {**asked, **ids})
    [choice] = answer["choices"]
    tokens = [*choice["prompt_token_ids"], *choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in tokens]
    shown = {key for best in choice["logprobs"]["top_logprobs"] if best for key in best}
    assert all(key.startswith("token_id:") for key in shown)


# --- the tier ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "used"),
    [(None, "default"), ("auto", "default"), ("flex", "flex"), ("priority", "priority")],
)
def test_every_response_says_which_tier_was_used(
    service: RunningService, tier: str | None, used: str
) -> None:
    asked = {"input": "Hi", "max_output_tokens": 4, "store": False, "service_tier": tier}
    status, answer = service.post("/v1/responses", asked)
    assert (status, answer["service_tier"]) == (200, used)
