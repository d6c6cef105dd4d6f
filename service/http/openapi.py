"""Builds the OpenAPI document from a table of operations and the structs used for
(de)serialization.

Bodies are decoded by hand, so the framework cannot see their types; here each operation names them,
and a test compares the table with the actual routes.
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
from service.wire.chat.answer import ChatCompletion
from service.wire.chat.request import ChatRequest
from service.wire.completions.answer import Completion
from service.wire.completions.request import CompletionRequest
from service.wire.error_shapes import AnthropicErrorBody
from service.wire.messages.answer import AnsweredMessage, TokenCount
from service.wire.messages.request import CountRequest, MessagesRequest
from service.wire.models import ModelCard, ModelList
from service.wire.responses.answer import ResponseObject
from service.wire.responses.compaction import CompactedResponse, InputTokens
from service.wire.responses.list import ItemList
from service.wire.responses.request import ResponsesRequest
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
    """``answer``: a struct, or the media type of a response that is not JSON."""

    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct] | str
    request: type[msgspec.Struct] | None = None
    streams: bool = False
    open: bool = False
    query: tuple[Query, ...] = ()
    failures: tuple[int, ...] = ()
    error: type[msgspec.Struct] = ErrorBody


_ABOUT = (
    "Paths under /v1 are served without it too, and HEAD wherever GET is. Request bodies are JSON, "
    "as they are or compressed with gzip or deflate. GET /v1/responses with an upgrade to "
    "WebSocket runs a response for each response.create message."
)

_GENERATION_FAILURES = (400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503)

_STORED_FAILURES = (400, 401, 404, 503)

_STARTING_AFTER = Query("starting_after", {"type": "integer", "minimum": 0})

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Create a chat completion",
        ChatCompletion,
        ChatRequest,
        streams=True,
        failures=_GENERATION_FAILURES,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Create a completion",
        Completion,
        CompletionRequest,
        streams=True,
        failures=_GENERATION_FAILURES,
    ),
    Operation(
        "post",
        "/v1/messages",
        "Create a message (Anthropic's API)",
        AnsweredMessage,
        MessagesRequest,
        streams=True,
        failures=_GENERATION_FAILURES,
        error=AnthropicErrorBody,
    ),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "Count a conversation's tokens (Anthropic's API)",
        TokenCount,
        CountRequest,
        failures=(400, 401, 403, 404, 408, 413, 415, 500, 503),
        error=AnthropicErrorBody,
    ),
    Operation(
        "post",
        "/v1/responses",
        "Create a response (Responses API)",
        ResponseObject,
        ResponsesRequest,
        streams=True,
        failures=_GENERATION_FAILURES,
    ),
    Operation(
        "post",
        "/v1/responses/compact",
        "Compact a conversation into its user messages and a sealed summary",
        CompactedResponse,
        ResponsesRequest,
        failures=_GENERATION_FAILURES,
    ),
    Operation(
        "post",
        "/v1/responses/input_tokens",
        "Count the input's tokens (Responses API)",
        InputTokens,
        ResponsesRequest,
        failures=(400, 401, 403, 404, 408, 413, 415, 500, 503),
    ),
    Operation(
        "get",
        "/v1/responses/{response_id}",
        "Retrieve a response, as an object or as a stream",
        ResponseObject,
        streams=True,
        query=(Query("stream", {"type": "boolean"}), _STARTING_AFTER),
        failures=_STORED_FAILURES,
    ),
    Operation(
        "delete",
        "/v1/responses/{response_id}",
        "Delete a response",
        DeletedResponse,
        failures=_STORED_FAILURES,
    ),
    Operation(
        "post",
        "/v1/responses/{response_id}/cancel",
        "Cancel a background response",
        ResponseObject,
        failures=_STORED_FAILURES,
    ),
    Operation(
        "get",
        "/v1/responses/{response_id}/input_items",
        "List the input items of a response",
        ItemList,
        query=(
            Query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
            Query("order", {"enum": ["asc", "desc"]}),
            Query("after", {"type": "string"}),
        ),
        failures=_STORED_FAILURES,
    ),
    Operation(
        "get",
        "/v1/streams/{stream_id}",
        "The rest of a resumable stream, after Last-Event-ID",
        "text/event-stream",
        query=(_STARTING_AFTER,),
        failures=(400, 401, 404),
    ),
    *(
        Operation("post", path, summary, answer, request, failures=_GENERATION_FAILURES)
        for paths, summary, answer, request in (
            (
                ("/v1/embeddings",),
                "Create embeddings",
                EmbeddingList,
                EmbeddingRequest,
            ),
            (
                ("/v1/rerank", "/v2/rerank"),
                "Rank documents by relevance to a query",
                RerankAnswer,
                RerankRequest,
            ),
            (("/v1/score",), "Score pairs of texts", ScoreList, ScoreRequest),
        )
        for path in paths
    ),
    Operation("get", "/v1/models", "List the models served", ModelList, failures=(401,)),
    Operation("get", "/v1/models/{model_id}", "Describe a model", ModelCard, failures=(401, 404)),
    Operation(
        "post",
        "/tokenize",
        "Convert text or messages to token ids",
        TokenizeResponse,
        TokenizeRequest,
        failures=(400, 401, 403, 404, 408, 413, 415, 503),
    ),
    Operation(
        "post",
        "/detokenize",
        "Convert token ids to text",
        DetokenizeResponse,
        DetokenizeRequest,
        failures=(400, 401, 403, 404, 408, 413, 415, 503),
    ),
    Operation(
        "get",
        "/tokenizer_info",
        "Special tokens and chat template",
        "application/json",
        failures=(401, 503),
    ),
    Operation("get", "/health", "Status, model and engine", Health, open=True),
    Operation("get", "/health/ready", "200 while requests are accepted", Health, open=True),
    Operation("get", "/health/live", "503 only when a restart would help", Health, open=True),
    Operation("get", "/metrics", "Prometheus metrics", "text/plain", open=True),
    Operation("get", "/", "About this server", Landing, open=True),
    Operation("get", "/docs", "This document as HTML", "text/html", open=True),
    Operation("get", "/openapi.json", "This document", "application/json", open=True),
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
        "summary": operation.summary,
        "operationId": f"{operation.method} {operation.path}",
        "responses": {"200": {"description": "OK", "content": content}},
    }
    for status in operation.failures:
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
    if needs_key and not operation.open:
        result["security"] = [{"key": []}]
    return result
