"""``/v1/chat/completions`` and gRPC's Chat."""

from __future__ import annotations

from service.preparation.generation import generation_of
from service.preparation.jobs import Limits, PreparedChat
from service.preparation.work import Step, Work
from service.wire.chat.request import ChatRequest, chat_task, decode_chat_task
from service.wire.decode import Ignored
from service.wire.task import Task


def _decode(body: bytes, limits: Limits, ignored: Ignored) -> Task:
    return decode_chat_task(body, max_choices=limits.max_choices, ignored=ignored)


def _decode_grpc(body: bytes, limits: Limits, ignored: Ignored) -> Task:
    from service.wire.protobuf.decode import read_chat  # imported only if gRPC is installed

    return chat_task(read_chat(body, max_choices=limits.max_choices, ignored=ignored))


def _finish(task: Task, work: Work) -> PreparedChat:
    request = task.sampling
    assert isinstance(request, ChatRequest)
    generation, asked = generation_of(task, work)
    return PreparedChat(noted=work.noted, request=request, generation=generation, asked=asked)


CHAT = Step("chat", _decode, _finish, PreparedChat, uses_template=True)
GRPC_CHAT = Step("grpc_chat", _decode_grpc, _finish, PreparedChat, uses_template=True)
