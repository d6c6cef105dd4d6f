"""OpenAI's agents SDK over a WebSocket: two turns of one session, the second on the first."""

from __future__ import annotations

import asyncio
import sys

from agents import Agent, function_tool, responses_websocket_session, set_tracing_disabled

URL, MODEL = sys.argv[1:]


@function_tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return "18"


async def main() -> None:
    set_tracing_disabled(True)
    agent = Agent(name="a", instructions="Help.", model=MODEL, tools=[get_weather])
    async with responses_websocket_session(base_url=f"{URL}/v1", api_key="unused") as session:
        result = session.run_streamed(agent, "LOOK-UP the weather in Paris.")
        async for _ in result.stream_events():
            pass
    assert result.final_output == "Paris has 18.", result


asyncio.run(main())
