"""Tokenizes texts and conversations without running the model."""

from __future__ import annotations

from observability.phases import TOKENIZING
from service.conversation import Conversation
from service.errors import InvalidRequestError
from service.preparation.prompts import check_counted, rendered
from service.preparation.work import Work


def counted(conversation: Conversation, work: Work, *, special: bool | None = None) -> list[int]:
    text = rendered(conversation, work)
    add = conversation.add_special_tokens if special is None else special
    return encode_counted(text, work, conversation.param, add_special_tokens=add)


def encode_counted(text: str, work: Work, param: str, *, add_special_tokens: bool) -> list[int]:
    check_counted(text, work.context, param)
    try:
        with work.noted.timing(TOKENIZING):
            return work.checkpoint.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    except UnicodeEncodeError as error:
        raise InvalidRequestError("The prompt is not Unicode text.", param=param) from error
