"""Reflection against the real worker."""

from __future__ import annotations

from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.grpc.clients import GrpcService


def test_reflection_lists_every_service_and_its_messages(service: GrpcService) -> None:
    ask = [
        ServerReflectionRequest(list_services=""),
        ServerReflectionRequest(file_containing_symbol="quire.v1.Quire"),
    ]
    listed, file = ServerReflectionStub(service.channel).ServerReflectionInfo(iter(ask))
    assert {entry.name for entry in listed.list_services_response.service} == {
        "quire.v1.Quire",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    described = file.file_descriptor_response.file_descriptor_proto
    assert pb.DESCRIPTOR.serialized_pb in described
