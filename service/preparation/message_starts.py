"""Where in the prompt each message of a conversation begins."""

from __future__ import annotations

from itertools import accumulate, pairwise

from service.checkpoint.message_offsets import MessageOffsets
from service.checkpoint.tokenizer import Tokenizer
from service.conversation import Conversation, JsonObject
from service.generation.request import PromptMessages

# More of either would take too long to find.
_MOST_MESSAGES = 4096
_MOST_TOKENS = 1 << 18

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def offsets_of(conversation: Conversation) -> MessageOffsets | None:
    """Return what observes the template; None if there are too many messages."""
    return MessageOffsets() if len(conversation.messages) <= _MOST_MESSAGES else None


def continued_from(conversation: Conversation, offsets: MessageOffsets | None, text: str) -> int:
    """Return where the final message begins in a prompt that continues it, or a place before that:
    if the template does not show it, after the text of the message before; 0 if all else fails."""
    if not conversation.continue_final_message:
        return 0
    starts = None if offsets is None else offsets.starts()
    if starts:
        return starts[-1]
    *_, before, final = [{}, *conversation.messages]
    said, begun = (_said(message).strip() for message in (before, final))
    found = text.rfind(said, 0, len(text) - len(begun)) if said else -1
    return found + len(said) if found >= 0 else 0


def _said(message: JsonObject) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def prompt_messages(
    offsets: MessageOffsets | None, text: str, ids: list[int], tokenizer: Tokenizer
) -> PromptMessages | None:
    """Return where the messages begin in the prompt; None if that cannot be said exactly, or the
    prompt is not all of the text."""
    starts = None if offsets is None or len(ids) > _MOST_TOKENS else offsets.starts()
    if offsets is None or not starts:
        return None
    size = len(text)
    if not text.isascii():
        bounds = [*starts, size]
        sizes = [len(text[begin:end].encode()) for begin, end in pairwise(bounds)]
        *starts, size = accumulate(sizes, initial=0)
    tokens = tokenizer.tokens_at(ids, starts, size)
    if tokens is None:
        return None
    roles = [str(dict.get(message, "role")) for message in offsets.messages]
    return PromptMessages(
        tuple(tokens), tuple(role if role in _ROLES else "other" for role in roles)
    )
