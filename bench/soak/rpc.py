"""gRPC in the soak."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import grpc

from bench.soak.answers import FailedError, Said
from bench.soak.http_client import CutError
from bench.soak.questions import LEFT, SOAKED
from service.proto.quire.v1 import quire_pb2 as pb
from service.proto.quire.v1.quire_pb2_grpc import QuireStub

_MESSAGE = pb.Message(role="user", content="Tell me a story.")
CALLS: dict[str, tuple[str, Any]] = {
    "grpc chat": (
        "grpc_chat",
        pb.ChatRequest(
            model=SOAKED,
            messages=[_MESSAGE],
            sampling=pb.Sampling(temperature=0),
            max_tokens=60,
        ),
    ),
    "grpc generate, seeded": (
        "grpc_generate",
        pb.GenerateRequest(
            model=SOAKED,
            text="Once upon a time",
            sampling=pb.Sampling(seed=5, temperature=1.0),
            max_tokens=60,
        ),
    ),
}
# What says that the request was not begun.
_REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)


class RefusedCallError(Exception):
    """The server did not begin the call."""


class RpcClient:
    """Use within an event loop."""

    def __init__(self, port: int, key: str) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._stub: Any = QuireStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("x-api-key", key),)

    def _begin(self, name: str, model: str = "") -> Any:
        request = type(CALLS[name][1])()
        request.CopyFrom(CALLS[name][1])
        if model:
            request.model = model
        method = self._stub.Chat if isinstance(request, pb.ChatRequest) else self._stub.Generate
        return method(request, metadata=self._metadata)

    async def ask(self, name: str) -> Said:
        """Raises RefusedCallError, FailedError or CutError."""
        texts: list[str] = []
        ends: list[str] = []
        usage = None
        try:
            async for event in _events(self._begin(name)):
                kind = event.WhichOneof("event")
                part = getattr(event, kind)
                if kind in ("text_delta", "tokens"):
                    texts.append(part.text)
                elif kind == "finished":
                    ends.append(part.reason)
                elif kind == "completed":
                    usage = part.usage
        except grpc.aio.AioRpcError as error:
            if not texts and error.code() in _REFUSED:
                raise RefusedCallError(error.details()) from error
            failed = FailedError if error.code() is grpc.StatusCode.INTERNAL else CutError
            raise failed(f"{error.code()}: {error.details()}") from error
        if usage is None:
            raise CutError("half a stream")
        return Said("".join(texts), ends[0], usage.completion_tokens)

    async def leave(self, name: str, dice: random.Random) -> None:
        """Begin a call and cancel it after some messages."""
        call = self._begin(name, LEFT)
        left = dice.randrange(20)
        try:
            async for _ in call:
                left -= 1
                if left < 0:
                    break
        except grpc.aio.AioRpcError:
            return
        finally:
            call.cancel()

    async def close(self) -> None:
        await self._channel.close()


async def _events(call: Any) -> AsyncIterator[Any]:
    async for response in call:
        for event in response.events:
            yield event
