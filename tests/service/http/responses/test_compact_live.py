"""Compacting a conversation and counting its tokens, with OpenAI's SDK."""

from __future__ import annotations

import openai

from tests.service.running import RunningService


def test_the_sdk_compacts_and_counts(service: RunningService) -> None:
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0)
    counted = client.responses.input_tokens.count(model="tiny", input="Hi")
    whole = client.responses.create(model="tiny", input="Hi", max_output_tokens=4)
    assert whole.usage is not None
    assert counted.input_tokens == whole.usage.input_tokens
    compacted = client.responses.compact(
        model="tiny",
        input=[
            {"role": "user", "content": "First"},
            {"role": "assistant", "content": "Yes"},
            {"role": "user", "content": "Second"},
        ],
    )
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    follow = client.responses.create(
        model="tiny",
        input=[*(item.to_dict() for item in compacted.output), {"role": "user", "content": "?"}],
        max_output_tokens=4,
    )
    assert follow.status in ("completed", "incomplete")
