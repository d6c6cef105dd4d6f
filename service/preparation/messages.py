"""``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

import msgspec

from service.preparation.counting import counted
from service.preparation.generation import generation_of
from service.preparation.jobs import Answered, Limits, PreparedMessages
from service.preparation.work import Step, Work
from service.wire.decode import Ignored
from service.wire.messages.answer import TokenCount
from service.wire.messages.request import (
    CountRequest,
    MessagesRequest,
    decode_count,
    decode_messages,
    messages_conversation,
    messages_task,
)


def _decode(body: bytes, _limits: Limits, ignored: Ignored) -> MessagesRequest:
    return decode_messages(body, ignored)


def _finish(request: MessagesRequest, work: Work) -> PreparedMessages:
    generation, asked = generation_of(messages_task(request, work.model.signer), work)
    return PreparedMessages(
        noted=work.noted,
        request=request,
        # Quotes inside a text would be escaped.
        speaks_of_caching=b'"cache_control"' in work.job.body,
        generation=generation,
        asked=asked,
    )


def _decode_count(body: bytes, _limits: Limits, ignored: Ignored) -> CountRequest:
    return decode_count(body, ignored)


def _finish_count(request: CountRequest, work: Work) -> Answered:
    conversation = messages_conversation(request, work.model.signer)
    ids = counted(conversation, work)
    return Answered(noted=work.noted, body=msgspec.json.encode(TokenCount(len(ids))))


MESSAGES = Step("messages", _decode, _finish, PreparedMessages, uses_template=True)
COUNT_TOKENS = Step("count_tokens", _decode_count, _finish_count, Answered, uses_template=True)
