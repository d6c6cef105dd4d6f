"""Checks pocket through the whole product: its table of gates, over HTTP.

``python -m bench.gates`` starts the server, sends every held-out question with the official OpenAI
SDK and greedy sampling, and judges the parsed answers (reasoning, content, tool calls).
``--base-url`` uses a server that is already running.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import openai

from bench.report import write_result
from pocket.answer import Answer, tool_call
from pocket.gates import MAX_TOKENS, Case, gates, table
from tests.e2e.quire_server import QuireServer

IN_FLIGHT = 32


async def ask(client: openai.AsyncOpenAI, model: str, case: Case) -> Answer:
    request: dict[str, Any] = {"tools": case.tools} if case.tools else {}
    reply = await client.chat.completions.create(
        model=model,
        messages=case.messages,  # type: ignore[arg-type]  # the gates' own messages
        temperature=0,
        max_tokens=MAX_TOKENS,
        extra_body={"chat_template_kwargs": {"enable_thinking": case.enable_thinking}},
        **request,
    )
    choice = reply.choices[0]
    calls = tuple(
        tool_call(call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or ()
        if call.type == "function"
    )
    reasoning = getattr(choice.message, "reasoning", None) or ""
    reason = choice.finish_reason
    assert reason in ("stop", "length", "tool_calls")
    return Answer(choice.message.content or "", reasoning, calls, reason)


async def ask_all(base_url: str, model: str, cases: list[Case]) -> list[Answer]:
    client = openai.AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=600)
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(case: Case) -> Answer:
        async with free:
            return await ask(client, model, case)

    return await asyncio.gather(*map(one, cases))


@contextlib.contextmanager
def served(base_url: str | None) -> Iterator[str]:
    if base_url:
        yield base_url
        return
    with QuireServer() as server:
        yield f"{server.url}/v1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", help="ends in /v1; default: start a server")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--samples", type=int, default=300, help="questions per gate")
    args = parser.parse_args()
    chosen = gates(args.samples)
    with served(args.base_url) as base_url:
        cases = [case for gate in chosen for case in gate.cases]
        answers = iter(asyncio.run(ask_all(base_url, args.model, cases)))
    rows = []
    for gate in chosen:
        right = sum(case.score(next(answers)) for case in gate.cases)
        rows.append((gate.name, right / len(gate.cases), gate.must, len(gate.cases), gate.blocking))
    print(table(rows))
    facts = [
        {"gate": name, "score": score, "must": must, "cases": cases, "blocking": blocking}
        for name, score, must, cases, blocking in rows
    ]
    print(write_result("gates_http", facts, decoding="greedy", path="HTTP, openai SDK"))
    return int(any(blocking and score < must for _, score, must, _, blocking in rows))


if __name__ == "__main__":
    raise SystemExit(main())
