"""Builds the OpenAPI document from the table of routes and the structs used for (de)serialization.

Bodies are decoded by hand, so the framework cannot see their types; here each operation names them,
and a test compares the operations with the actual routes.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from service.conversation import JsonObject
from service.errors import ErrorBody
from service.http.operations import Health
from service.http.pages import Landing
from service.http.responses.stored import DeletedResponse
from service.routes.route import Anyone, RouteRow
from service.routes.tables import PUBLIC
from service.tenants.caller import KeyScope
from service.wire.chat.answer import ChatCompletion
from service.wire.chat.request import ChatRequest
from service.wire.completions.answer import Completion
from service.wire.completions.request import CompletionRequest
from service.wire.error_shapes import AnthropicErrorBody, anthropic_shape, shape_for
from service.wire.messages.answer import AnsweredMessage, TokenCount
from service.wire.messages.request import CountRequest, MessagesRequest
from service.wire.models import ModelCard, ModelList
from service.wire.responses.compaction import CompactedResponse, InputTokens
from service.wire.responses.list import ItemList
from service.wire.responses.request import ResponsesRequest
from service.wire.responses.response_object import ResponseObject
from service.wire.texts.embeddings import EmbeddingList, EmbeddingRequest
from service.wire.texts.rerank import RerankAnswer, RerankRequest, ScoreList, ScoreRequest
from service.wire.texts.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)

_PATH_NAMES = re.compile(r"\{(\w+)\}")


class Query(NamedTuple):
    """An optional query parameter."""

    name: str
    schema: JsonObject


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route of the table takes and answers. ``answer``: a struct, or the media type of a
    response that is not JSON. ``failures``: besides those that its key may cause."""

    route: RouteRow
    answer: type[msgspec.Struct] | str
    request: type[msgspec.Struct] | None = None
    streams: bool = False
    query: tuple[Query, ...] = ()
    failures: tuple[int, ...] = ()

    @property
    def method(self) -> str:
        return self.route.method.lower()

    @property
    def path(self) -> str:
        return self.route.template

    @property
    def error(self) -> type[msgspec.Struct]:
        is_anthropic = shape_for(self.path) is anthropic_shape
        return AnthropicErrorBody if is_anthropic else ErrorBody

    @property
    def needs_key(self) -> bool:
        return isinstance(self.route.scope, KeyScope)

    @property
    def statuses(self) -> tuple[int, ...]:
        """Return the status codes of its failures."""
        keys = (401, 403) if self.needs_key else ()
        missing = (404,) if self.route.scope is Anyone.KEYLESS else ()
        return tuple(sorted({*self.failures, *keys, *missing}))


def _of(
    name: str,
    answer: type[msgspec.Struct] | str,
    request: type[msgspec.Struct] | None = None,
    *,
    streams: bool = False,
    query: tuple[Query, ...] = (),
    failures: tuple[int, ...] = (),
) -> Operation:
    return Operation(PUBLIC.named(name), answer, request, streams, query, failures)


_ABOUT = (
    "Paths under /v1 are served without it too, and HEAD wherever GET is. Request bodies are JSON, "
    "as they are or compressed with gzip or deflate. GET /v1/responses with an upgrade to "
    "WebSocket runs a response for each response.create message."
)

_BODY_FAILURES = (400, 404, 408, 413, 415, 503)
_COUNTING_FAILURES = (*_BODY_FAILURES, 500)
_GENERATION_FAILURES = (*_COUNTING_FAILURES, 402, 422, 429)
_STORED_FAILURES = (400, 404, 503)

_STARTING_AFTER = Query("starting_after", {"type": "integer", "minimum": 0})


def _generates(name: str, answer: type[msgspec.Struct], request: type[msgspec.Struct]) -> Operation:
    return _of(name, answer, request, streams=True, failures=_GENERATION_FAILURES)


def _computes(
    name: str,
    answer: type[msgspec.Struct],
    request: type[msgspec.Struct],
    failures: tuple[int, ...] = _GENERATION_FAILURES,
) -> Operation:
    return _of(name, answer, request, failures=failures)


OPERATIONS: tuple[Operation, ...] = (
    _generates("POST /v1/chat/completions", ChatCompletion, ChatRequest),
    _generates("POST /v1/completions", Completion, CompletionRequest),
    _generates("POST /v1/messages", AnsweredMessage, MessagesRequest),
    _computes("POST /v1/messages/count_tokens", TokenCount, CountRequest, _COUNTING_FAILURES),
    _generates("POST /v1/responses", ResponseObject, ResponsesRequest),
    _computes("POST /v1/responses/compact", CompactedResponse, ResponsesRequest),
    _computes("POST /v1/responses/input_tokens", InputTokens, ResponsesRequest, _COUNTING_FAILURES),
    _of(
        "GET /v1/responses/{response_id}",
        ResponseObject,
        streams=True,
        query=(Query("stream", {"type": "boolean"}), _STARTING_AFTER),
        failures=_STORED_FAILURES,
    ),
    _of("DELETE /v1/responses/{response_id}", DeletedResponse, failures=_STORED_FAILURES),
    _of("POST /v1/responses/{response_id}/cancel", ResponseObject, failures=_STORED_FAILURES),
    _of(
        "GET /v1/responses/{response_id}/input_items",
        ItemList,
        query=(
            Query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            Query("order", {"enum": ["asc", "desc"]}),
            Query("after", {"type": "string"}),
        ),
        failures=_STORED_FAILURES,
    ),
    _of(
        "GET /v1/streams/{stream_id}",
        "text/event-stream",
        query=(_STARTING_AFTER,),
        failures=(400, 404),
    ),
    _computes("POST /v1/embeddings", EmbeddingList, EmbeddingRequest),
    _computes("POST /v1/rerank", RerankAnswer, RerankRequest),
    _computes("POST /v2/rerank", RerankAnswer, RerankRequest),
    _computes("POST /v1/score", ScoreList, ScoreRequest),
    _of("GET /v1/models", ModelList),
    _of("GET /v1/models/{model_id:path}", ModelCard, failures=(404,)),
    _computes("POST /tokenize", TokenizeResponse, TokenizeRequest, _BODY_FAILURES),
    _computes("POST /detokenize", DetokenizeResponse, DetokenizeRequest, _BODY_FAILURES),
    _of("GET /tokenizer_info", "application/json", failures=(503,)),
    _of("GET /health", Health),
    _of("GET /health/ready", Health),
    _of("GET /health/live", Health),
    _of("GET /metrics", "text/plain"),
    _of("GET /", Landing),
    _of("GET /docs", "text/html"),
    _of("GET /openapi.json", "application/json"),
)


def build_document(*, version: str, needs_key: bool) -> JsonObject:
    """Return the whole document, OpenAPI 3.1."""
    schema_of, schemas = _schemas()
    paths: JsonObject = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _describe(
            operation, schema_of, needs_key=needs_key
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quire",
            "version": version,
            "license": {"name": "Apache-2.0"},
            "description": _ABOUT,
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


@functools.cache
def _schemas() -> tuple[dict[type, JsonObject], JsonObject]:
    """Return a reference for each type of a request or an answer, and what the references mean."""
    types: list[type] = []
    for operation in OPERATIONS:
        parts = (operation.error, operation.request, operation.answer)
        types += [t for t in parts if isinstance(t, type)]
    types = list(dict.fromkeys(types))
    references, schemas = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    requests = [operation.request for operation in OPERATIONS if operation.request is not None]
    for name in msgspec.json.schema_components(requests)[1]:
        schemas[name] = _as_taken(schemas[name])
    return dict(zip(types, references, strict=True)), schemas


_NULL = {"type": "null"}


def _as_taken(schema: JsonObject) -> JsonObject:
    """Return a request's schema as it is actually accepted: with unknown fields, and null for any
    optional field (``service.wire.leniency``)."""
    taken = {key: value for key, value in schema.items() if key != "additionalProperties"}
    if "properties" in taken:
        taken["properties"] = {
            name: {"anyOf": [part, _NULL]}
            if "default" in part and _NULL not in part.get("anyOf", ())
            else part
            for name, part in taken["properties"].items()
        }
    return taken


def _describe(
    operation: Operation, schema_of: dict[type, JsonObject], *, needs_key: bool
) -> JsonObject:
    if isinstance(operation.answer, str):
        content: JsonObject = {operation.answer: {}}
    else:
        content = {"application/json": {"schema": schema_of[operation.answer]}}
    if operation.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    result: JsonObject = {
        "summary": operation.route.does,
        "operationId": f"{operation.method} {operation.path}",
        "responses": {"200": {"description": "OK", "content": content}},
    }
    for status in operation.statuses:
        result["responses"][str(status)] = {
            "description": "The request was refused or failed",
            "content": {"application/json": {"schema": schema_of[operation.error]}},
        }
    if operation.answer is Health:
        result["responses"]["503"] = {
            "description": "Not healthy; the body says why",
            "content": content,
        }
    if operation.request is not None:
        schema = schema_of[operation.request]
        result["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    parameters: list[JsonObject] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_NAMES.findall(operation.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": form} for name, form in operation.query]
    if parameters:
        result["parameters"] = parameters
    if needs_key and operation.needs_key:
        result["security"] = [{"key": []}]
    return result
