"""The routes of each port, a row for each."""

from __future__ import annotations

from typing import Final

from observability.admin_api import AdminScope
from service.routes.route import (
    ANY_PATH,
    LEAD,
    RPC,
    WEBSOCKET,
    Anyone,
    BodyBound,
    Limit,
    Port,
    RouteRow,
    RouteTable,
)
from service.tenants.caller import KeyScope

_NONE: frozenset[Limit] = frozenset()
_ENGINE = frozenset({Limit.KEY, Limit.QUEUE})
_STREAMED = _ENGINE | {Limit.RUNS}


def _open(path: str, does: str, scope: Anyone = Anyone.ALWAYS) -> RouteRow:
    return RouteRow(Port.PUBLIC, "GET", path, scope, does)


def _reading(path: str, does: str, counted: str) -> RouteRow:
    return RouteRow(Port.PUBLIC, "GET", path, KeyScope.READ, does, counted)


def _text(path: str, does: str, counted: str, limits: frozenset[Limit] = _NONE) -> RouteRow:
    """A route that takes a JSON body."""
    scope = KeyScope.INFERENCE
    return RouteRow(Port.PUBLIC, "POST", path, scope, does, counted, BodyBound.REQUEST, limits)


def _stored(
    method: str,
    path: str,
    does: str,
    counted: str = "responses_stored",
    limits: frozenset[Limit] = _NONE,
) -> RouteRow:
    live_id = path[path.index("{") + 1 : path.index("}")]
    return RouteRow(
        Port.PUBLIC,
        method,
        path,
        KeyScope.INFERENCE,
        does,
        counted,
        limits=limits,
        live_id=live_id,
    )


PUBLIC: Final = RouteTable(
    Port.PUBLIC,
    (
        _text("/v1/chat/completions", "Create a chat completion", "chat_completions", _STREAMED),
        _text("/v1/completions", "Create a completion", "completions", _STREAMED),
        _text("/v1/messages", "Create a message (Anthropic's API)", "messages", _STREAMED),
        _text(
            "/v1/messages/count_tokens",
            "Count a conversation's tokens (Anthropic's API)",
            "count_tokens",
        ),
        _text("/v1/responses", "Create a response (Responses API)", "responses", _STREAMED),
        RouteRow(
            Port.PUBLIC,
            WEBSOCKET,
            "/v1/responses",
            KeyScope.INFERENCE,
            "Create responses one after another; each is also a `POST /v1/responses`",
            body=BodyBound.REQUEST,
            limits=frozenset({Limit.SOCKETS}),
        ),
        _text(
            "/v1/responses/compact",
            "Compact a conversation into its user messages and a sealed summary",
            "responses",
            _ENGINE,
        ),
        _text(
            "/v1/responses/input_tokens",
            "Count the input's tokens (Responses API)",
            "count_tokens",
        ),
        _stored(
            "GET",
            "/v1/responses/{response_id}",
            "Retrieve a response, as an object or as a stream",
        ),
        _stored("DELETE", "/v1/responses/{response_id}", "Delete a response"),
        _stored("POST", "/v1/responses/{response_id}/cancel", "Cancel a background response"),
        _stored(
            "GET",
            "/v1/responses/{response_id}/input_items",
            "List the input items of a response",
        ),
        _stored(
            "GET",
            "/v1/streams/{stream_id}",
            "The rest of a resumable stream, after Last-Event-ID",
            "streams",
        ),
        _text("/v1/embeddings", "Create embeddings", "embeddings", _ENGINE),
        _text("/v1/rerank", "Rank documents by relevance to a query", "rerank", _ENGINE),
        _text("/v2/rerank", "Rank documents by relevance to a query", "rerank", _ENGINE),
        _text("/v1/score", "Score pairs of texts", "score", _ENGINE),
        _text("/tokenize", "Convert text or messages to token ids", "tokenize"),
        _text("/detokenize", "Convert token ids to text", "detokenize"),
        _reading("/tokenizer_info", "Special tokens and chat template", "tokenize"),
        _reading("/v1/models", "List the models served", "models"),
        # Names may contain slashes, hence the type.
        _reading("/v1/models/{model_id:path}", "Describe a model", "models"),
        _open("/health", "Status, model and engine"),
        _open("/health/ready", "200 while requests are accepted"),
        _open("/health/live", "503 only when a restart would help"),
        _open("/metrics", "Prometheus metrics", Anyone.KEYLESS),
        _open("/", "About this server"),
        _open("/docs", "The OpenAPI document as HTML"),
        _open("/openapi.json", "The OpenAPI document"),
        RouteRow(Port.PUBLIC, "OPTIONS", ANY_PATH, KeyScope.READ, "The methods of a path"),
    ),
)


def _shown(path: str, does: str, limits: frozenset[Limit] = _NONE, live_id: str = "") -> RouteRow:
    return RouteRow(Port.ADMIN, "GET", path, AdminScope.READ, does, limits=limits, live_id=live_id)


def _order(
    method: str,
    path: str,
    does: str,
    *,
    body: BodyBound = BodyBound.SMALL,
    limits: frozenset[Limit] = _NONE,
    live_id: str = "",
) -> RouteRow:
    scope = AdminScope.OPERATE
    return RouteRow(
        Port.ADMIN, method, path, scope, does, body=body, limits=limits, live_id=live_id
    )


_EXPORTS = frozenset({Limit.EXPORTS})

ADMIN: Final = RouteTable(
    Port.ADMIN,
    (
        _shown("/admin/v1/overview", "State, verdict and figures of the last minutes"),
        _shown(
            "/admin/v1/feed",
            "The overview, the newest sample and live requests each second, as a stream",
            frozenset({Limit.FEED}),
        ),
        _shown("/admin/v1/series", "The last hour by the second"),
        _shown("/admin/v1/requests", "A page of live or ended requests"),
        _shown("/admin/v1/requests/{request_id}", "The record of a request"),
        _order("POST", "/admin/v1/requests/{request_id}/cancel", "Cancel a live request"),
        _shown("/admin/v1/requests.csv", "Stored requests as CSV", _EXPORTS),
        _shown("/admin/v1/requests.parquet", "Stored requests as Parquet", _EXPORTS),
        _shown("/admin/v1/kv", "The block pool by owner", live_id=LEAD),
        _shown(
            "/admin/v1/kv/times",
            "The times of the maps of it that are kept",
            live_id=LEAD,
        ),
        _shown("/admin/v1/kv/prefixes", "The tree of shared prefixes"),
        _shown("/admin/v1/usage", "Requests and tokens by key, model or route"),
        _shown("/admin/v1/usage.csv", "The same as CSV", _EXPORTS),
        _shown("/admin/v1/usage.parquet", "The same as Parquet", _EXPORTS),
        _shown("/admin/v1/settings", "The settings that can be changed while the server runs"),
        _order("PATCH", "/admin/v1/settings", "Change them", live_id=LEAD),
        _order("POST", "/admin/v1/drain", "Accept no new requests"),
        _order("POST", "/admin/v1/resume", "Undo a drain"),
        _order("POST", "/admin/v1/loglevel", "Log at another level for some seconds"),
        _order("POST", "/admin/v1/tracing", "Trace another share of requests for some seconds"),
        _shown("/admin/v1/keys", "The API keys of the store and of the keys file"),
        _order("POST", "/admin/v1/keys", "Make an API key"),
        _order("POST", "/admin/v1/keys/{name}/rotate", "Make the next key of an id or alias"),
        _order("POST", "/admin/v1/keys/{name}/revoke", "End the key of an id, or all of an alias"),
        _shown("/admin/v1/load", "The current or last load run", live_id=LEAD),
        _order(
            "POST",
            "/admin/v1/load",
            "Start a load run against this server",
            limits=frozenset({Limit.LOAD}),
            live_id=LEAD,
        ),
        _order("DELETE", "/admin/v1/load", "Stop the load run", body=BodyBound.NONE, live_id=LEAD),
        _shown("/admin/v1/loadtrace", "The recorded load trace", _EXPORTS, live_id=LEAD),
        _order(
            "POST",
            "/admin/v1/loadtrace",
            "Record a load trace for some seconds",
            live_id=LEAD,
        ),
        _order(
            "DELETE",
            "/admin/v1/loadtrace",
            "End the recording",
            body=BodyBound.NONE,
            live_id=LEAD,
        ),
        _shown("/admin/v1/faults", "The faults that this server was started to inject"),
        _order("POST", "/admin/v1/faults/{name}", "Inject one of them"),
        _shown("/admin/v1/audit", "What operators changed or tried to"),
        _shown(
            "/admin/v1/bundle",
            "The last hour in one file, without content and secrets",
            frozenset({Limit.BUNDLE}),
        ),
        _shown("/metrics", "Prometheus metrics"),
        _order("OPTIONS", ANY_PATH, "The methods of a path", body=BodyBound.NONE),
    ),
)


def _rpc(
    name: str,
    does: str,
    counted: str,
    scope: KeyScope = KeyScope.INFERENCE,
    limits: frozenset[Limit] = _NONE,
) -> RouteRow:
    path = f"/quire.v1.Quire/{name}"
    return RouteRow(Port.GRPC, RPC, path, scope, does, counted, BodyBound.REQUEST, limits)


def _health(name: str, does: str, limits: frozenset[Limit] = _NONE) -> RouteRow:
    path, scope = f"/grpc.health.v1.Health/{name}", Anyone.ALWAYS
    return RouteRow(Port.GRPC, RPC, path, scope, does, body=BodyBound.SMALL, limits=limits)


_LONG = frozenset({Limit.STANDARD})

GRPC: Final = RouteTable(
    Port.GRPC,
    (
        _rpc("Chat", "Stream a chat's answer", "grpc_chat", limits=_ENGINE),
        _rpc(
            "Generate",
            "Stream the continuation of a prompt",
            "grpc_generate",
            limits=_ENGINE,
        ),
        _rpc("Embed", "Create embeddings", "grpc_embed", limits=_ENGINE),
        _rpc("ListModels", "List the models served", "grpc_models", KeyScope.READ),
        _rpc("Abort", "End a call of the same key", "grpc_abort"),
        _health("Check", "Whether requests are accepted"),
        _health("List", "The same for all services"),
        _health("Watch", "The same, at each change", _LONG),
        RouteRow(
            Port.GRPC,
            RPC,
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            KeyScope.READ,
            "The services and their messages",
            body=BodyBound.REQUEST,
            limits=_LONG,
        ),
    ),
)

TABLES: Final = (PUBLIC, ADMIN, GRPC)
