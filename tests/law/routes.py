"""Which struct each route reads, and a small valid request to vary.

If a route reads parts of its body one by one (Responses' items and tools), each kind of part has a
separate row, with its place in the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import msgspec

import service.wire
from service.http import application
from service.wire.chat.request import ChatRequest
from service.wire.completions.request import CompletionRequest
from service.wire.messages import request as messages
from service.wire.messages.request import MessagesRequest
from service.wire.responses import input as responses_input
from service.wire.responses import tools as responses_tools
from service.wire.responses.request import CreateMessage, ResponsesRequest
from service.wire.texts.embeddings import EmbeddingRequest
from service.wire.texts.rerank import RerankRequest, ScoreRequest
from service.wire.texts.tokenize import DetokenizeRequest, TokenizeRequest
from tests.law.measuring import WEBSOCKET

Body = dict[str, Any]


POOLING = (EmbeddingRequest, RerankRequest, ScoreRequest)


def _whole(part: Body) -> Body:
    return part


@dataclass(frozen=True)
class Route:
    """``place`` puts a value of ``struct`` into a request's body. ``only``: the paths that ``base``
    is made for; all of them without it. ``limits``: bounds that are this server's settings.
    ``alike``: another route reads the same struct by the same steps, so the ordinary run leaves
    this one out."""

    path: str
    struct: type[msgspec.Struct]
    base: Body
    place: Callable[[Body], Body] = _whole
    name: str = ""
    only: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    alike: bool = False

    @property
    def valid(self) -> Body:
        return self.place(self.base)

    @property
    def pools(self) -> bool:
        """Whether it requests vectors."""
        return self.struct in POOLING

    @property
    def id(self) -> str:
        return self.name or self.path.removeprefix("/v1/").strip("/").replace("/", "-")


_MESSAGES = [{"role": "user", "content": "hi"}]
_CALLING = [{"role": "assistant", "content": "hi"}]
_CALLED = [{"role": "tool", "content": "hi", "tool_call_id": "c"}]
_FEW = {"max_tokens": 2, "temperature": 0}


class ItemReference(msgspec.Struct, frozen=True):
    """Read by hand, since an item without a type may be one too."""

    id: responses_input.Identifier


_CALL = {"call_id": "c", "name": "f"}
_ITEMS: dict[str, tuple[type[msgspec.Struct], Body]] = {
    "message": (
        responses_input.MessageItem,
        {"type": "message", "role": "assistant", "content": "hi"},
    ),
    "reasoning": (responses_input.ReasoningItem, {"type": "reasoning"}),
    "function_call": (
        responses_input.FunctionCallItem,
        {"type": "function_call", **_CALL, "arguments": "{}"},
    ),
    "custom_tool_call": (
        responses_input.CustomCallItem,
        {"type": "custom_tool_call", **_CALL, "input": "x"},
    ),
    "function_call_output": (
        responses_input.CallOutputItem,
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ),
    "additional_tools": (
        responses_input.AdditionalTools,
        {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]},
    ),
    "item_reference": (
        ItemReference,
        {"type": "item_reference", "id": "msg_unknown"},
    ),
}
_TOOLS: dict[str, tuple[type[msgspec.Struct], Body]] = {
    "function": (responses_tools.FunctionTool, {"type": "function", "name": "f"}),
    "custom": (responses_tools.CustomTool, {"type": "custom", "name": "f"}),
    "namespace": (
        responses_tools.Namespace,
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
    ),
}


def _as_item(part: Body) -> Body:
    return {"input": [{"role": "user", "content": "hi"}, part], "max_output_tokens": 2}


def _as_tool(part: Body) -> Body:
    return {"input": "hi", "tools": [part], "max_output_tokens": 2}


ROUTES: tuple[Route, ...] = (
    Route("/v1/chat/completions", ChatRequest, {"messages": _MESSAGES, **_FEW}, limits={"n": 16}),
    Route(
        "/v1/chat/completions",
        ChatRequest,
        {"messages": _CALLING, **_FEW},
        name="chat-assistant",
        only="messages[]",
    ),
    Route(
        "/v1/chat/completions",
        ChatRequest,
        {"messages": _CALLED, **_FEW},
        name="chat-tool",
        only="messages[]",
    ),
    Route("/v1/completions", CompletionRequest, {"prompt": "hi", **_FEW}, limits={"n": 16}),
    Route(
        "/v1/responses",
        ResponsesRequest,
        {"input": "hi", "max_output_tokens": 2, "store": False},
        limits={"n": 1},
    ),
    Route(
        WEBSOCKET + "/v1/responses",
        CreateMessage,
        {"type": "response.create", "input": "hi", "max_output_tokens": 2, "store": False},
        name="websocket",
        limits={"n": 1},
    ),
    Route(
        "/v1/messages", MessagesRequest, {"model": "tiny", "messages": _MESSAGES, "max_tokens": 2}
    ),
    Route(
        "/v1/messages/count_tokens",
        messages.CountRequest,
        {"model": "tiny", "messages": _MESSAGES},
    ),
    Route(
        "/v1/responses/compact",
        ResponsesRequest,
        {"input": "hi", "max_output_tokens": 2},
        limits={"n": 1},
        alike=True,
    ),
    Route(
        "/v1/responses/input_tokens",
        ResponsesRequest,
        {"input": "hi"},
        limits={"n": 1},
        alike=True,
    ),
    Route("/v1/embeddings", EmbeddingRequest, {"input": "hi"}),
    Route("/v1/rerank", RerankRequest, {"query": "hi", "documents": ["hi"]}),
    Route("/v2/rerank", RerankRequest, {"query": "hi", "documents": ["hi"]}, alike=True),
    Route("/v1/score", ScoreRequest, {"text_1": "hi", "text_2": "hi"}),
    Route("/tokenize", TokenizeRequest, {"prompt": "hi"}),
    Route("/tokenize", TokenizeRequest, {"messages": _MESSAGES}, name="tokenize-messages"),
    Route("/detokenize", DetokenizeRequest, {"tokens": [1]}),
    *(
        Route("/v1/responses", struct, base, _as_item, f"responses-item-{kind}")
        for kind, (struct, base) in _ITEMS.items()
    ),
    *(
        Route("/v1/responses", struct, base, _as_tool, f"responses-tool-{kind}")
        for kind, (struct, base) in _TOOLS.items()
    ),
)


# Paths of stored responses, which tests/law/test_stored.py covers, and of requests without a body.
STORED = (
    "/v1/responses/{response_id:str}",
    "/v1/responses/{response_id:str}/cancel",
    "/v1/responses/{response_id:str}/input_items",
    "/v1/streams/{stream_id:str}",
)
WITHOUT_BODY = tuple(
    path
    for route in application.HANDLERS
    for path in sorted(route.paths)
    if "GET" in route.http_methods and path not in STORED
)


def uncovered_paths() -> set[str]:
    """Return the application's routes that no row covers."""
    paths = {path for route in application.HANDLERS for path in route.paths}
    return paths - {route.path for route in ROUTES} - set(STORED) - set(WITHOUT_BODY)


def decoded_structs() -> Iterator[type[msgspec.Struct]]:
    """Every struct for which a module of ``service.wire`` holds a JSON decoder, except the one that
    finds the model in bodies of all the others."""
    for module in iter_modules(service.wire.__path__, "service.wire."):
        for value in vars(import_module(module.name)).values():
            kind = value.type if isinstance(value, msgspec.json.Decoder) else None
            is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
            if is_struct and kind.__name__ != "_Naming":
                yield kind
