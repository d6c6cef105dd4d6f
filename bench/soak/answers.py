"""Reads each API's answers, streamed or whole, into what the soak compares and counts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.soak.http_client import CutError, Reply


class FailedError(Exception):
    """The server reported an error after its answer had begun."""


@dataclass(frozen=True)
class Said:
    """``words``: all that must be the same each time; ``outcome``: as the server counts it."""

    words: Any
    outcome: str
    output_tokens: int


Read = Callable[[Reply], Said]


def whole_choices(reply: Reply) -> Said:
    """Of chat completions and completions."""
    answer = reply.json()
    choices = [_choice(choice, choice.get("message") or choice) for choice in answer["choices"]]
    return _of_choices(choices, answer["usage"])


def streamed_choices(reply: Reply) -> Said:
    """The stream must include its usage."""
    texts: dict[int, str] = defaultdict(str)
    calls: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(lambda: ["", ""]))
    ends: dict[int, str] = {}
    usage = None
    for event in reply.events():
        if "error" in event:
            raise FailedError(event["error"])
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            index, delta = choice["index"], choice.get("delta") or choice
            texts[index] += delta.get("content") or delta.get("text") or ""
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                calls[index][call["index"]][0] += function.get("name") or ""
                calls[index][call["index"]][1] += function.get("arguments") or ""
            if choice.get("finish_reason"):
                ends[index] = choice["finish_reason"]
    if usage is None or not reply.body.rstrip().endswith(b"[DONE]"):
        raise CutError("half a stream")
    choices = [
        (texts[index], tuple((n, _parsed(a)) for n, a in calls[index].values()), ends[index])
        for index in sorted(ends)
    ]
    return _of_choices(choices, usage)


def _choice(choice: Any, said: Any) -> tuple[str, Any, str]:
    calls = said.get("tool_calls") or ()
    functions = (call["function"] for call in calls)
    read = tuple((one["name"], _parsed(one["arguments"])) for one in functions)
    return said.get("content") or said.get("text") or "", read, choice["finish_reason"]


def _parsed(arguments: str) -> str:
    """Their JSON without the spaces that a model may write."""
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return arguments


def _of_choices(choices: list[tuple[str, Any, str]], usage: Any) -> Said:
    # The outcome of several choices is that of the first.
    return Said(choices, choices[0][-1], usage["completion_tokens"])


_MESSAGE_ENDS = {
    **{"end_turn": "stop", "stop_sequence": "stop"},
    **{"max_tokens": "length", "tool_use": "tool_calls"},
}


def whole_message(reply: Reply) -> Said:
    answer = reply.json()
    words = [
        (block["type"], block.get("text") or block.get("thinking") or block.get("input"))
        for block in answer["content"]
    ]
    return Said(words, _MESSAGE_ENDS[answer["stop_reason"]], answer["usage"]["output_tokens"])


def streamed_message(reply: Reply) -> Said:
    blocks: dict[int, list[str]] = {}
    end, usage, is_over = "", 0, False
    for event in reply.events():
        match event["type"]:
            case "error":
                raise FailedError(event["error"])
            case "content_block_start":
                blocks[event["index"]] = [event["content_block"]["type"], ""]
            case "content_block_delta":
                delta = event["delta"]
                blocks[event["index"]][1] += (
                    delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
                )
            case "message_delta":
                end, usage = event["delta"]["stop_reason"], event["usage"]["output_tokens"]
            case "message_stop":
                is_over = True
    if not is_over:
        raise CutError("half a stream")
    words = [
        (kind, json.loads(said or "{}") if kind == "tool_use" else said)
        for kind, said in blocks.values()
    ]
    return Said(words, _MESSAGE_ENDS[end], usage)


def whole_response(reply: Reply) -> Said:
    return said_by_response(reply.json())


def streamed_response(reply: Reply) -> Said:
    for event in reply.events():
        if event["type"] in ("response.completed", "response.incomplete"):
            return said_by_response(event["response"])
        if event["type"] in ("response.failed", "error"):
            raise FailedError(event)
    raise CutError("half a stream")


def said_by_response(response: Any) -> Said:
    """Raises FailedError for one that has failed."""
    if response["status"] == "failed":
        raise FailedError(response["error"])
    words: list[Any] = []
    has_calls = False
    for item in response["output"]:
        if item["type"] == "function_call":
            has_calls = True
            words.append((item["name"], _parsed(item["arguments"])))
        else:
            words += [part.get("text") for part in item.get("content") or ()]
    outcome = "length" if response["status"] == "incomplete" else "stop"
    if has_calls and outcome == "stop":
        outcome = "tool_calls"
    return Said(words, outcome, response["usage"]["output_tokens"])


def embeddings(reply: Reply) -> Said:
    """Rounded: the last bits depend on the batch."""
    rows = [[round(value, 3) for value in row["embedding"]] for row in reply.json()["data"]]
    return Said(rows, "stop", 0)
