"""What an operator sees while a request is under way, and after."""

from __future__ import annotations

import re

import openai

from tests.e2e.quire_server import QuireServer, until


def test_token_counters_move_during_a_request(server: QuireServer, client: openai.OpenAI) -> None:
    before = server.total("quire_generated_tokens_total")
    stream = client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": "Tell me a story."}],
        stream=True,
        max_tokens=1500,
        extra_body={"ignore_eos": True},
    )
    next(iter(stream))
    first = until(
        lambda: max(0, server.total("quire_generated_tokens_total") - before), 10, "tokens counted"
    )
    until(
        lambda: server.total("quire_generated_tokens_total") - before > first,
        10,
        "the counter to move while the request runs",
    )
    assert server.total("quire_sequences_running") == 1
    assert server.total("quire_kv_usage_ratio") > 0
    stream.close()
    until(lambda: server.total("quire_sequences_running") == 0, 5, "the abort")


def test_each_request_leaves_one_log_line_with_its_ids_and_no_content(
    server: QuireServer, client: openai.OpenAI
) -> None:
    canary = "zanzibarcanary"
    raw = client.chat.completions.with_raw_response.create(
        model="pocket", messages=[{"role": "user", "content": canary}], max_tokens=5
    )
    request_id, trace_id = raw.headers["x-request-id"], raw.headers["x-trace-id"]
    assert re.fullmatch(r"[0-9a-f]{32}", trace_id)

    def lines() -> list[dict[str, object]]:
        return [line for line in server.log_lines() if line.get("request_id") == request_id]

    until(lines, 5, "the canonical log line")
    assert len(lines()) == 1
    line = lines()[0]
    usage = raw.parse().usage
    assert usage is not None
    assert line["trace_id"] == trace_id
    assert line["outcome"] == "length"
    assert line["output_tokens"] == usage.completion_tokens == 5
    assert line["prompt_tokens"] == usage.prompt_tokens
    assert canary not in server.output()
    assert canary not in server.get("/metrics")[1].decode()


def test_a_repeated_prompt_is_reported_as_cached(
    server: QuireServer, client: openai.OpenAI
) -> None:
    messages = [{"role": "user", "content": "Please remember this sentence about a river. " * 8}]
    for _ in range(2):
        reply = client.chat.completions.create(
            model="pocket",
            messages=messages,  # type: ignore[arg-type]
            max_tokens=2,
        )
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    cached = reply.usage.prompt_tokens_details.cached_tokens or 0
    assert reply.usage.prompt_tokens - 32 <= cached < reply.usage.prompt_tokens
