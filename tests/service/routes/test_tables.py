"""What holds for every row."""

from __future__ import annotations

from observability.aliases import HTTP_HANDLERS
from observability.outcomes import NO_ROUTE, ROUTE_TABLE, Trait
from service.admin.feed import MOST_FEED_READERS
from service.grpc.standard import MOST_OPEN, MOST_OPEN_OF_A_CONNECTION
from service.routes.route import WEBSOCKET, Anyone, BodyBound, Limit, Port
from service.routes.tables import PUBLIC, TABLES
from service.tenants.caller import KeyScope

ROWS = [route for table in TABLES for route in table]
TRAITS = {each.name: each.traits for each in ROUTE_TABLE}


def test_what_is_open_is_named_here_too() -> None:
    """So that a route is opened to everyone by two edits, not by one."""
    assert {route.path for route in ROWS if isinstance(route.scope, Anyone)} == {
        *("/", "/docs", "/openapi.json", "/health", "/health/ready", "/health/live", "/metrics"),
        *(f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch")),
    }


def test_a_key_that_may_only_read_reaches_nothing_that_generates() -> None:
    readable = {route.path for route in ROWS if route.scope is KeyScope.READ}
    assert readable == {
        *("/v1/models", "/v1/models/{model_id:path}", "/tokenizer_info", "*"),
        "/quire.v1.Quire/ListModels",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }


def test_nothing_that_changes_the_server_is_for_readers() -> None:
    for route in ROWS:
        if route.port is Port.ADMIN:
            assert (route.method == "GET") == (route.scope == "read"), route.name


def test_every_counted_route_has_a_row_and_every_row_of_clients_is_counted() -> None:
    assert {route.counted for route in ROWS} - {""} == set(TRAITS) - {NO_ROUTE}
    for route in ROWS:
        is_for_clients = isinstance(route.scope, KeyScope)
        uncounted = (WEBSOCKET, "OPTIONS")
        if is_for_clients and route.method not in uncounted and "reflection" not in route.path:
            assert route.counted, route.name


def test_limits_and_bodies_are_those_of_what_a_route_does() -> None:
    for route in ROWS:
        if not route.counted:
            continue
        traits = TRAITS[route.counted]
        in_engine = Trait.ENGINE in traits
        assert (Limit.QUEUE in route.limits) == in_engine, route.name
        assert (Limit.KEY in route.limits) == in_engine, route.name
        if Trait.BODY in traits and route.method == "POST":
            assert route.body is BodyBound.REQUEST, route.name


def test_the_page_says_how_many_the_limits_are() -> None:
    assert (
        Limit.STANDARD.value
        == f"{MOST_OPEN} calls of the kind, or a quarter of gRPC's connections if that is fewer; "
        f"{MOST_OPEN_OF_A_CONNECTION} per connection"
    )
    assert Limit.FEED.value.startswith(f"{MOST_FEED_READERS} readers")


def test_the_names_of_another_server_have_the_first_path_of_each_route() -> None:
    for counted, (method, path) in HTTP_HANDLERS.items():
        found = PUBLIC.find(method, path)
        assert found is not None
        assert found.counted == counted
