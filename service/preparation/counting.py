"""Tokenizes texts and conversations without running the model."""

from __future__ import annotations

from service.conversation import Conversation
from service.preparation.prompts import check_counted, rendered, tokenizing
from service.preparation.work import Work


def counted(conversation: Conversation, work: Work, *, special: bool | None = None) -> list[int]:
    text = rendered(conversation, work)
    add = conversation.add_special_tokens if special is None else special
    return encode_counted(text, work, conversation.param, add_special_tokens=add)


def encode_counted(text: str, work: Work, param: str, *, add_special_tokens: bool) -> list[int]:
    check_counted(text, work.context, param)
    with tokenizing(work, param):
        return work.checkpoint.tokenizer.encode(text, add_special_tokens=add_special_tokens)
