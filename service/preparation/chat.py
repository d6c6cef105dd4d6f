"""``/v1/chat/completions`` and gRPC's Chat."""

from __future__ import annotations

from service.preparation.generation import generation_of
from service.preparation.jobs import Limits, PreparedChat
from service.preparation.work import Step, Work
from service.wire.chat.request import ChatRequest, chat_task, decode_chat
from service.wire.decode import Ignored


def _decode(body: bytes, limits: Limits, ignored: Ignored) -> ChatRequest:
    return decode_chat(body, max_choices=limits.max_choices, ignored=ignored)


def _decode_grpc(body: bytes, limits: Limits, ignored: Ignored) -> ChatRequest:
    from service.wire.protobuf.decode import read_chat  # imported only if gRPC is installed

    return read_chat(body, max_choices=limits.max_choices, ignored=ignored)


def _finish(request: ChatRequest, work: Work) -> PreparedChat:
    generation, asked = generation_of(chat_task(request), work)
    return PreparedChat(noted=work.noted, request=request, generation=generation, asked=asked)


CHAT = Step("chat", _decode, _finish, PreparedChat, uses_template=True)
GRPC_CHAT = Step("grpc_chat", _decode_grpc, _finish, PreparedChat, uses_template=True)
