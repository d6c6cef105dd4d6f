"""The official OpenAI SDK (2.x): ``parse`` with tools, its message sent back in each of the ways
that programs use."""

from __future__ import annotations

import sys

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

URL, MODEL = sys.argv[1:]


class GetWeather(BaseModel):
    city: str


client = OpenAI(base_url=f"{URL}/v1", api_key="unused")
tool = pydantic_function_tool(GetWeather, name="get_weather")
WAYS = {
    "object": lambda message: message,
    "model_dump": lambda message: message.model_dump(),
    "without unset": lambda message: message.model_dump(exclude_unset=True),
    "to_dict": lambda message: message.to_dict(),
    "json": lambda message: message.model_dump(mode="json"),
}
for way, dump in WAYS.items():
    question = {"role": "user", "content": "LOOK-UP the weather in Paris."}
    first = client.chat.completions.parse(model=MODEL, messages=[question], tools=[tool])
    message = first.choices[0].message
    [call] = message.tool_calls
    assert call.function.parsed_arguments == GetWeather(city="Paris"), call
    answer = {"role": "tool", "tool_call_id": call.id, "content": "18"}
    second = client.chat.completions.parse(
        model=MODEL, messages=[question, dump(message), answer], tools=[tool]
    )
    assert second.choices[0].message.content == "Paris has 18.", (way, second)
