"""Requests that end in each way, over HTTP and gRPC, driven from outside."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import httpx

from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub
from tests.e2e.quire_server import QuireServer, engine_of, free_port, until

# Steps of 5 ms, and a KV cache in which one long answer and a little more fit.
MODEL = "simulated:step=5ms,output=64"
ARGUMENTS = ("--num-kv-blocks", "40", "--max-model-len", "512", "--max-waiting-requests", "4")
PROMPT = "Tell me a story about traces."


class Driven:
    """A server and a client of each kind. ``begun``: how many requests were sent."""

    def __init__(self, server: QuireServer, stub: QuireStub) -> None:
        self.server = server
        self.stub = stub
        self.begun = 0

    def chat(self, **fields: Any) -> int:
        """Return the status."""
        return self.ask(**fields)[0]

    def ask(self, **fields: Any) -> tuple[int, dict[str, str]]:
        """Return the status and the headers."""
        body = {"messages": [{"role": "user", "content": PROMPT}], "ignore_eos": True, **fields}
        reply = httpx.post(f"{self.server.url}/v1/chat/completions", json=body, timeout=120)
        return reply.status_code, dict(reply.headers)

    def call(self, **fields: Any) -> Iterator[Any]:
        message = pb.Message(role="user", content=PROMPT)
        return iter(self.stub.Chat(pb.ChatRequest(messages=[message], **fields)))

    def leave(self) -> None:
        """Disconnect from a stream once it has begun."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        body = {"messages": [{"role": "user", "content": PROMPT}], "stream": True}
        body |= {"max_tokens": 400, "ignore_eos": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        reply = connection.getresponse()
        for _ in range(10):  # five events
            reply.readline()
        connection.close()

    def cancel_call(self) -> None:
        """Cancel a gRPC call once it has begun."""
        call: Any = self.stub.Chat(
            pb.ChatRequest(messages=[pb.Message(role="user", content=PROMPT)], max_tokens=400)
        )
        for _ in zip(call, range(5), strict=False):
            pass
        call.cancel()

    def refuse_call(self) -> None:
        """Make a call with a field that is wrong."""
        try:
            list(self.call(sampling=pb.Sampling(top_p=7)))
        except grpc.RpcError:
            return
        raise AssertionError("the call was not refused")

    def preempt(self) -> None:
        """Let several answers need more blocks than there are."""
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: self.chat(max_tokens=300), range(3)))
        assert self.server.total("quire_preemptions_total") > 0

    def overload(self) -> None:
        """Fill the queue until it refuses and says when to return, which it knows only after
        others have waited."""
        # Each needs two blocks to begin: some twenty begin, and four may wait.
        for _ in range(5):
            self.begun += 32
            with ThreadPoolExecutor(32) as pool:
                replies = list(pool.map(lambda _: self.ask(max_tokens=100), range(32)))
            if any(status == 429 and "retry-after" in headers for status, headers in replies):
                return
        raise AssertionError("nothing was refused")

    def hand_over(self) -> None:
        """Kill the engine while it has an answer over each API. On a busy machine one may have
        ended before the other began: then both are asked again."""
        for _ in range(5):
            before = self.server.total("quire_handovers_total")
            self._answers_while_the_engine_dies()
            if self.server.total("quire_handovers_total") >= before + 2:
                return
        raise AssertionError("in five rounds, one answer always ended before the other had begun")

    def _answers_while_the_engine_dies(self) -> None:
        self.begun += 2
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(self.chat, max_tokens=400),
                pool.submit(lambda: list(self.call(max_tokens=400))),
            ]
            until(
                lambda: (
                    self.server.total("quire_sequences_running") >= 2
                    or any(one.done() for one in asked)
                ),
                30,
                "two running sequences",
            )
            os.kill(engine_of(self.server), signal.SIGKILL)
            for one in asked:
                one.result(60)

    def every_fate(self) -> None:
        """Let requests finish, leave, be refused, be preempted and be handed over."""
        assert self.chat(max_tokens=20) == 200
        list(self.call(max_tokens=20))
        self.leave()
        self.cancel_call()
        assert self.chat(top_p=7) == 400
        self.refuse_call()
        self.preempt()
        self.overload()
        self.hand_over()
        self.begun += 2 + 2 + 2 + 3


@contextmanager
def driven(*arguments: str) -> Iterator[Driven]:
    port = free_port()
    extra = ("--grpc-port", str(port), *ARGUMENTS, *arguments)
    with (
        QuireServer(MODEL, *extra) as server,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield Driven(server, QuireStub(channel))
