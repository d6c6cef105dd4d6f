"""Every route of every port with every kind of key: what comes is what the table promises. What
another tenant owns is answered as what does not exist."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from service.proto.quire.v1 import quire_pb2 as pb
from service.routes.route import ANY_PATH, WEBSOCKET, Anyone, BodyBound, Limit, Port, RouteRow
from service.routes.tables import ADMIN, GRPC, PUBLIC, TABLES
from tests.service.grpc.clients import chat, trailing
from tests.service.routes.senders import (
    LIMITED,
    NARROW,
    OWNER,
    SENDERS,
    MatrixService,
    Sender,
    codes,
    expected,
    matrix,
    sample,
)
from tests.service.running import until

OWNED = [route for route in PUBLIC if sample(route).others is not None]
_ANY = {Port.PUBLIC: "/v1/models", Port.ADMIN: "/admin/v1/overview"}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Matrix:
    """Sends requests to a server."""

    def __init__(self, service: MatrixService) -> None:
        self.service = service

    def send(
        self,
        route: RouteRow,
        sender: Sender,
        body: Any = None,
        *,
        path: str = "",
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One HTTP request. Of a stream, only the beginning is read."""
        is_admin = route.port is Port.ADMIN
        port = self.service.admin_port if is_admin else self.service.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        data = None if body is None else json.dumps(body)
        try:
            given = {"content-type": "application/json", **sender.headers, **(headers or {})}
            connection.request(route.method, path or self.path(route), data, given)
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            whole = b"" if route.path == "/admin/v1/feed" else reply.read()
            return Reply(reply.status, names, whole)
        finally:
            connection.close()

    def path(self, route: RouteRow) -> str:
        """A path of the route; what it names is the owner's, and new."""
        if route.path == ANY_PATH:
            return _ANY[route.port]
        path = route.template.replace("{model_id}", "tiny").replace("{request_id}", "req_none")
        if "{stream_id}" in path:
            return path.replace("{stream_id}", self.stream())
        if "{response_id}" in path:
            response = self.response(background=path.endswith("/cancel"))
            return path.replace("{response_id}", response)
        return path + sample(route).query

    def response(self, **fields: Any) -> str:
        """A stored response of the owner."""
        body = {"input": "hi", "max_output_tokens": 2, **fields}
        reply = self.send(PUBLIC.named("POST /v1/responses"), SENDERS["owner"], body)
        assert reply.status == 200
        return str(reply.json()["id"])

    def stream(self) -> str:
        """A resumable stream of the owner."""
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
        resumable = {"x-quire-resumable": "true"}
        chats = PUBLIC.named("POST /v1/chat/completions")
        return self.send(chats, SENDERS["owner"], body, headers=resumable).headers[
            "x-quire-stream-id"
        ]

    def handshake(self, sender: Sender, path: str) -> int:
        """The status of a WebSocket's handshake; 200 if it is accepted."""
        url = f"ws://127.0.0.1:{self.service.port}{path}"
        try:
            with connect(url, additional_headers=sender.headers):
                return 200
        except InvalidStatus as refused:
            return refused.response.status_code

    def call(self, path: str, sender: Sender, message: Any) -> grpc.StatusCode:
        """The status of a call, OK as soon as it has an answer."""
        data = b"" if message is None else message.SerializeToString()
        call = self.service.channel.stream_stream(path)(
            iter([data]), metadata=tuple(sender.headers.items()), timeout=60
        )
        try:
            next(call)
        except grpc.RpcError as refused:
            return refused.code()
        finally:
            call.cancel()
        return grpc.StatusCode.OK


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with MatrixService(tiny_model, tmp_path_factory.mktemp("matrix")) as running:
        sending = Matrix(running)
        models = PUBLIC.named("GET /v1/models")
        # Until the keys of the store have been read, one that is unknown may be one of them: 503.
        until(lambda: sending.send(models, SENDERS["wrong"]).status == 401, 30, "the keys")
        for name in ("POST /admin/v1/load", "POST /admin/v1/loadtrace"):  # that there is one
            route = ADMIN.named(name)
            sending.send(route, SENDERS["operator"], sample(route).body)
        yield sending


@pytest.mark.parametrize(("route", "sender"), matrix(iter(PUBLIC)))
def test_the_public_port_answers_each_key_as_declared(
    server: Matrix, route: RouteRow, sender: Sender
) -> None:
    asked = sample(route)
    if route.method == WEBSOCKET:
        assert server.handshake(sender, route.path) == expected(route, sender, asked)
        return
    reply = server.send(route, sender, asked.body)
    assert reply.status == expected(route, sender, asked), reply.body
    if reply.status in (401, 403):
        error = reply.json()["error"]
        is_anthropic = route.path.startswith("/v1/messages")
        unknown = "authentication_error" if is_anthropic else "invalid_request_error"
        assert error["type"] == {401: unknown, 403: "permission_error"}[reply.status]
        assert ("www-authenticate" in reply.headers) == (reply.status == 401)


@pytest.mark.parametrize(("route", "sender"), matrix(iter(ADMIN)))
def test_the_admin_port_answers_each_key_as_declared(
    server: Matrix, route: RouteRow, sender: Sender
) -> None:
    asked = sample(route)
    reply = server.send(route, sender, asked.body)
    if route.path == "/admin/v1/drain":
        server.send(ADMIN.named("POST /admin/v1/resume"), SENDERS["operator"], {})
    assert reply.status == expected(route, sender, asked), reply.body


@pytest.mark.parametrize(("route", "sender"), matrix(iter(GRPC)))
def test_grpc_answers_each_key_as_declared(server: Matrix, route: RouteRow, sender: Sender) -> None:
    asked = sample(route)
    assert server.call(route.path, sender, asked.body) is codes(expected(route, sender, asked))


@pytest.mark.parametrize("sender", SENDERS.values(), ids=SENDERS)
def test_what_is_not_in_a_table_is_served_to_nobody(server: Matrix, sender: Sender) -> None:
    for path in ("/v1/nothing", "/admin/v1/overview", "/v1/chat"):
        nothing = RouteRow(Port.PUBLIC, "GET", path, Anyone.ALWAYS, "")
        assert server.send(nothing, sender).status == 404
    assert server.call("/quire.v1.Quire/Nothing", sender, None) is grpc.StatusCode.UNIMPLEMENTED
    assert server.handshake(sender, "/v1/chat/completions") == 404
    unknown = RouteRow(
        Port.ADMIN, "POST", "/admin/v1/nothing", ADMIN.named("GET /metrics").scope, ""
    )
    assert server.send(unknown, sender, {}).status == (401 if sender.admin is None else 404)


@pytest.mark.parametrize(
    "route",
    [route for table in TABLES[:2] for route in table if route.method != WEBSOCKET],
    ids=lambda route: f"{route.port}-{route.name}",
)
def test_a_body_beyond_the_bound_of_its_route_is_refused_before_it_is_read(
    server: Matrix, route: RouteRow
) -> None:
    sender = SENDERS["operator" if route.port is Port.ADMIN else "owner"]
    most = route.body.most_bytes(8 << 20)
    asked = sample(route)
    if route.body is BodyBound.NONE:
        if "{" not in route.path:
            assert server.send(route, sender, "x" * 100).status == expected(route, sender, asked)
        return
    path = server.path(route)
    refused = server.send(route, sender, path=path, headers={"content-length": str(most + 1)})
    assert refused.status == 413
    allowed = {**(asked.body or {})}
    assert server.send(route, sender, allowed, path=path).status != 413
    if route.path == "/admin/v1/drain":
        server.send(ADMIN.named("POST /admin/v1/resume"), sender, {})


# --- limits -----------------------------------------------------------------------------------


def test_routes_count_against_the_limits_of_a_key_as_declared(server: Matrix) -> None:
    limited = Sender(LIMITED)
    chats = PUBLIC.named("POST /v1/chat/completions")
    until(
        lambda: server.send(chats, limited, sample(chats).body).status == 429, 30, "an empty limit"
    )
    for route in PUBLIC:
        if route.method != WEBSOCKET and route.path != ANY_PATH:
            reply = server.send(route, limited, sample(route).body, path=route.template)
            assert (reply.status == 429) == (Limit.KEY in route.limits), (route.name, reply.body)
    for route in GRPC:
        code = server.call(route.path, limited, sample(route).body)
        is_refused = code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert is_refused == (Limit.KEY in route.limits), (route.name, code)


# --- what another tenant owns -----------------------------------------------------------------


def shape(reply: Reply, known: str) -> tuple[int, dict[str, str], str]:
    """A reply without what differs between any two: ids and the time."""
    varying = re.compile(rf"{re.escape(known)}|req_[0-9a-f]+|[0-9a-f]{{32}}|[0-9a-f]{{16}}")
    headers = {
        name: varying.sub("*", value) for name, value in reply.headers.items() if name != "date"
    }
    return reply.status, headers, varying.sub("*", reply.body.decode())


def never(known: str) -> str:
    """An id of the same form that was never given."""
    return known[:-32] + "0" * 32


@pytest.mark.parametrize("query", ["", "?stream=true", "?stream=maybe", "?starting_after=1"])
@pytest.mark.parametrize("route", OWNED, ids=lambda route: route.name)
def test_another_tenants_is_answered_as_what_does_not_exist(
    server: Matrix, route: RouteRow, query: str
) -> None:
    path = server.path(route)
    (known,) = re.findall(r"(?:resp_|chatcmpl-)[0-9a-f]{32}", path)
    replies = [
        shape(server.send(route, SENDERS["other"], path=path.replace(known, each) + query), each)
        for each in (known, never(known))
    ]
    assert replies[0] == replies[1]
    assert replies[0][0] in (404, 400)
    owners = server.send(route, SENDERS["owner"], path=path)  # which is still there
    assert owners.status == 200


@pytest.mark.parametrize(
    "refers",
    [
        lambda known: {"input": "more", "previous_response_id": known},
        lambda known: {"input": [{"type": "item_reference", "id": known.replace("resp", "msg")}]},
    ],
    ids=["previous", "item"],
)
def test_nothing_refers_to_what_another_tenant_stored(server: Matrix, refers: Any) -> None:
    creating = PUBLIC.named("POST /v1/responses")
    known = server.response()
    replies = [
        shape(server.send(creating, SENDERS["other"], {**refers(each), "max_output_tokens": 2}), n)
        for each, n in ((known, known[5:]), (never(known), never(known)[5:]))
    ]
    assert replies[0] == replies[1]
    assert replies[0][0] in (404, 400)


def test_a_socket_does_not_continue_what_another_tenant_stored(server: Matrix) -> None:
    known = server.response()
    url = f"ws://127.0.0.1:{server.service.port}/v1/responses"
    said = []
    with connect(url, additional_headers=SENDERS["other"].headers) as socket:
        for each in (known, never(known)):
            ask = {"type": "response.create", "input": "x", "previous_response_id": each}
            socket.send(json.dumps(ask))
            event = json.loads(socket.recv(timeout=30))
            said.append(re.sub(rf"{each}|req_[0-9a-f]+", "*", json.dumps(event)))
            assert (event["type"], event["status"]) == ("error", 400)  # as OpenAI's
    assert said[0] == said[1]


def test_another_tenants_call_is_not_aborted(server: Matrix) -> None:
    stub = server.service.stub
    metadata = tuple(SENDERS["owner"].headers.items())
    call = stub.Chat(chat(max_tokens=400), metadata=metadata)
    request_id = dict(call.initial_metadata())["x-request-id"]
    refused = []
    for each in (request_id, never(request_id)):
        with pytest.raises(grpc.RpcError) as caught:
            stub.Abort(
                pb.AbortRequest(request_id=each), metadata=tuple(SENDERS["other"].headers.items())
            )
        more = {
            name: re.sub(r"[0-9a-f]{16,}", "*", value)
            for name, value in trailing(caught.value).items()
        }
        refused.append((caught.value.code(), caught.value.details(), more))
    assert refused[0] == refused[1]
    assert refused[0][0] is grpc.StatusCode.NOT_FOUND
    assert stub.Abort(pb.AbortRequest(request_id=request_id), metadata=metadata) is not None
    with pytest.raises(grpc.RpcError):
        list(call)


# --- models -----------------------------------------------------------------------------------


def test_a_model_that_a_key_may_not_use_does_not_exist(server: Matrix) -> None:
    narrow, owner = Sender(NARROW), SENDERS["owner"]
    models, one = PUBLIC.named("GET /v1/models"), PUBLIC.named("GET /v1/models/{model_id:path}")
    listed = server.send(models, narrow).json()["data"]
    assert [(card["id"], card["root"]) for card in listed] == [("tiny-b", "tiny-b")]
    assert len(server.send(models, owner).json()["data"]) == 2
    for headers in ({}, {"anthropic-version": "2023-06-01"}):
        replies = [
            shape(server.send(one, narrow, path=f"/v1/models/{name}", headers=headers), f"'{name}'")
            for name in ("tiny", "none")
        ]
        assert replies[0] == replies[1]
        assert replies[0][0] == 404
    assert server.send(one, narrow, path="/v1/models/tiny-b").status == 200


@pytest.mark.parametrize(
    "name",
    [
        *("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens"),
        *("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens", "/tokenize"),
        *("/detokenize", "/v1/embeddings", "/v1/rerank", "/v1/score"),
    ],
)
def test_no_route_takes_a_model_that_the_key_may_not_use(server: Matrix, name: str) -> None:
    route, narrow = PUBLIC.named(f"POST {name}"), Sender(NARROW)
    body = {name: value for name, value in sample(route).body.items() if name != "model"}
    large = {"messages": [{"role": "user", "content": "x" * 8000}]} if "messages" in body else {}
    for more in ({}, large):  # the large one in a process
        refused = [
            shape(server.send(route, narrow, {**body, **more, "model": model}), f"'{model}'")
            for model in ("tiny", "nope")
        ]
        assert refused[0] == refused[1]
        assert refused[0][0] == 404
    assert server.send(route, narrow, {**body, "model": "tiny-b"}).status == 200
    if not route.path.startswith("/v1/messages"):  # where a model is required
        assert server.send(route, narrow, body).status == 200


def test_grpc_knows_the_same_models(server: Matrix) -> None:
    stub, metadata = server.service.stub, tuple(Sender(NARROW).headers.items())
    listed = stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
    assert [model.id for model in listed.models] == ["tiny-b"]
    for model in ("tiny", "none"):
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.Chat(chat(model=model), metadata=metadata))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert "this server has tiny-b." in caught.value.details()
    assert list(stub.Chat(chat(model="tiny-b", max_tokens=2), metadata=metadata))


def test_the_keys_of_the_matrix_are_different() -> None:
    assert len({OWNER, LIMITED, NARROW, *(each.key for each in SENDERS.values())}) == 11


def test_an_idle_server_is_left(server: Matrix) -> None:
    """No request of the matrix holds a sequence any more."""
    overview = ADMIN.named("GET /admin/v1/overview")

    def idle() -> bool:
        state = server.send(overview, SENDERS["operator"]).json()
        return (state["running"], state["waiting"], state["kv_blocks_active"]) == (0, 0, 0)

    until(idle, 30, "no running sequence")
