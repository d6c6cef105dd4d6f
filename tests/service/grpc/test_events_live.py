"""Long streams of events against the real worker."""

from __future__ import annotations

import itertools

from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.grpc.clients import GrpcService, chat, put_together
from tests.service.running import until


def test_many_choices_and_logprobs_come_in_messages_that_clients_take(
    service: GrpcService,
) -> None:
    sampling = pb.Sampling(ignore_eos=True, n=8)
    call = service.stub.Chat(
        chat(max_tokens=400, sampling=sampling, logprobs=True, top_logprobs=20)
    )
    first = next(call)
    until(lambda: not any(service.engine_counts().values()), 30, "all to be generated unread")
    rest = list(call)
    answer = put_together(itertools.chain([first], rest))
    assert sum(len(said.logprobs) for said in answer.choices) > 1000
    assert max(response.ByteSize() for response in rest) < 512 * 1024
