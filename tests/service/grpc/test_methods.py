"""All methods of the proto file are served and counted."""

from __future__ import annotations

from observability.outcomes import ROUTES
from service.grpc.methods import METHODS, SERVICE
from service.proto.quire.v1 import quire_pb2 as pb
from service.routes.tables import GRPC


def test_every_method_of_the_service_is_served_and_counted() -> None:
    service = pb.DESCRIPTOR.services_by_name["Quire"]
    assert service.full_name == SERVICE
    assert {method.name for method in service.methods} == METHODS.keys()
    assert {route.counted for route in GRPC if route.counted} <= set(ROUTES)
