"""What the tests of gRPC do with the client's side of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.service.running import RunningService, free_port

HELLO = pb.Message(role="user", content="Hello, how are you?")
LONG = pb.Sampling(ignore_eos=True, n=4)


def chat(**fields: Any) -> pb.ChatRequest:
    return pb.ChatRequest(messages=[HELLO], **{"max_tokens": 40, **fields})


def long_chat() -> pb.ChatRequest:
    return chat(max_tokens=480, sampling=LONG)


class GrpcService(RunningService):
    """A service that answers gRPC too. ``stub`` is a client of it."""

    def __init__(
        self, model: Path, folder: Path, *worker_args: str, engine_args: tuple[str, ...] = ()
    ) -> None:
        self.grpc_port = free_port()
        arguments = ("--grpc-port", str(self.grpc_port), *worker_args)
        super().__init__(model, folder, engine_args=engine_args, worker_args=arguments)
        self.channel = grpc.insecure_channel(self.target)
        self.stub = QuireStub(self.channel)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        super().__exit__()

    def outcomes(self, route: str) -> dict[str, float]:
        """How many requests of a route ended how."""
        found: dict[str, float] = {}
        for line in self.metrics_page().splitlines():
            if line.startswith("quire_requests_total{") and f'route="{route}"' in line:
                outcome = line.split('outcome="')[1].split('"')[0]
                found[outcome] = found.get(outcome, 0) + float(line.rsplit(" ", 1)[1])
        return {outcome: count for outcome, count in found.items() if count}


@dataclass
class Said:
    """What a stream's events come to for one choice, put together as any client would."""

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, str]] = field(default_factory=list)
    ended_calls: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[pb.TokenLogprob] = field(default_factory=list)
    shown: int = 0  # tokens covered
    finished: pb.Finished | None = None


@dataclass
class Answer:
    started: pb.Started
    choices: list[Said]
    usage: pb.Usage


def put_together(responses: Iterable[Any]) -> Answer:
    """All of a stream that must be whole: Started first, Completed last, all finished between."""
    events = [event for response in responses for event in response.events]
    assert events[0].WhichOneof("event") == "started"
    assert events[-1].WhichOneof("event") == "completed"
    choices: dict[int, Said] = {}
    for event in events[1:-1]:
        said = choices.setdefault(event.choice, Said())
        assert said.finished is None, "nothing comes after a choice has finished"
        _take(said, event)
    assert all(said.finished for said in choices.values())
    ordered = [choices[index] for index in range(len(choices))]
    return Answer(events[0].started, ordered, events[-1].completed.usage)


def _take(said: Said, event: Any) -> None:
    kind = event.WhichOneof("event")
    part = getattr(event, kind)
    if kind.endswith("_delta") or kind.startswith("tool_call_"):
        assert part.start >= said.shown, "spans are in order"
        said.shown = part.end
    match kind:
        case "text_delta":
            said.text += part.text
        case "reasoning_delta":
            said.reasoning += part.text
        case "tool_call_begin":
            assert part.index == len(said.calls)
            said.calls.append({"name": part.name, "arguments": ""})
        case "tool_arguments_delta":
            said.calls[part.index]["arguments"] += part.text
        case "tool_call_end":
            said.ended_calls += 1
        case "logprobs":
            assert part.start == len(said.logprobs)
            said.logprobs += part.tokens
        case "tokens":
            said.text += part.text
            said.tokens += part.token_ids
            said.logprobs += part.logprobs
        case "finished":
            said.finished = part


def trailing(error: grpc.RpcError) -> dict[str, str]:
    return {key: str(value) for key, value in error.trailing_metadata()}
