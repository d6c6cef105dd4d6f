"""litellm's SDK: a tool loop whose history is what ``model_dump`` gives, by two providers."""

from __future__ import annotations

import sys

import litellm

URL, MODEL = sys.argv[1:]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

litellm.suppress_debug_info = True
for provider in ("openai", "hosted_vllm"):
    messages = [{"role": "user", "content": "LOOK-UP the weather in Paris."}]
    for _ in range(5):
        reply = litellm.completion(
            model=f"{provider}/{MODEL}",
            api_base=f"{URL}/v1",
            api_key="unused",
            messages=messages,
            tools=[WEATHER],
        )
        message = reply.choices[0].message
        messages.append(message.model_dump())
        if not message.tool_calls:
            break
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "18"}
            for call in message.tool_calls
        ]
    assert message.content == "Paris has 18.", (provider, message)
    assert sum(m["role"] == "tool" for m in messages) == 1, messages
