"""Converts text to token ids within the model's limits. A text that is certainly too long is not
encoded in full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from observability.phases import RENDERING, TOKENIZING
from service.checkpoint.checkpoint import Checkpoint
from service.checkpoint.message_offsets import MessageOffsets
from service.checkpoint.template import ChatTemplate, TemplateError
from service.checkpoint.tokenizer import TooManyTokensError, UntokenizableError
from service.conversation import EFFORTS, Conversation
from service.errors import ContextTooLongError, InvalidRequestError
from service.pooling.inputs import Input, check_lengths, untokenizable
from service.preparation.sampling import truncated
from service.preparation.work import Work
from service.wire.sampling import SamplingFields

# Clients may set these variables with any template, besides those that the template itself reads.
_COMMON_VARIABLES = frozenset({"enable_thinking", "thinking", "reasoning_effort", "documents"})
_RESERVED_VARIABLES = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message"}
)
# Limit for the token ids of all prompts of one request.
MAX_PROMPT_TOKENS = 1 << 22
# The most that /tokenize and count_tokens encode, unless the context is longer.
_MAX_COUNTED_CHARS = 1 << 20
_COUNTED_CHARS_PER_TOKEN = 8


def rendered(conversation: Conversation, work: Work, offsets: MessageOffsets | None = None) -> str:
    """Return the prompt's text, rendered by the checkpoint's template. ``offsets`` observes where
    each message begins.

    Raises InvalidRequestError, including for errors that the template itself raises.
    """
    template = work.checkpoint.template
    param = conversation.param
    if template is None:
        raise InvalidRequestError(
            "This model has no chat template; use /v1/completions.", param=param
        )
    work.stage("template", param)
    with work.noted.timing(RENDERING):
        try:
            variables = _template_variables(conversation, template)
            text = template.render(
                conversation.messages,
                tools=conversation.template_tools(),
                documents=conversation.documents or variables.get("documents"),
                add_generation_prompt=conversation.add_generation_prompt,
                continue_final_message=conversation.continue_final_message,
                variables=variables,
                offsets=offsets,
            )
        except TemplateError as error:
            raise InvalidRequestError(
                f"{str(error).rstrip('.')}.", param=_cause(conversation, error)
            ) from error
    return text


def _cause(conversation: Conversation, error: TemplateError) -> str:
    """Return the field that made the template fail: a call's arguments, if it failed on a type and
    these are text, not an object; else all messages."""
    if conversation.param == "messages" and isinstance(error.__cause__, TypeError):
        for place, message in enumerate(conversation.messages):
            for index, call in enumerate(message.get("tool_calls") or ()):
                if isinstance(call["function"]["arguments"], str):
                    return f"messages.{place}.tool_calls.{index}.function.arguments"
    return conversation.param


def _template_variables(conversation: Conversation, template: ChatTemplate) -> dict[str, Any]:
    """Raises InvalidRequestError for a variable that this model's template does not read and for
    an unknown effort, and TemplateError."""
    known = (_COMMON_VARIABLES | template.variables) - _RESERVED_VARIABLES
    for name in conversation.variables:
        if name not in known:
            raise InvalidRequestError(
                f"The chat template does not read '{name}'.", param=f"chat_template_kwargs.{name}"
            )
    _check_effort(conversation, template)
    return {**conversation.thinking_variables(), **conversation.variables}


def _check_effort(conversation: Conversation, template: ChatTemplate) -> None:
    """Raise InvalidRequestError for a word that means nothing: it would switch thinking on."""
    effort, param = conversation.reasoning_effort, conversation.effort_param
    if effort is None or effort in EFFORTS or effort in template.efforts:
        return
    raise InvalidRequestError(
        f"Invalid value for '{param}': '{effort[:64]}'; it must be one of "
        f"{', '.join(map(repr, EFFORTS))}, or a word that the model's chat template names.",
        param=param,
    )


@contextmanager
def tokenizing(work: Work, param: str) -> Iterator[None]:
    """Announce and time it. Raises InvalidRequestError for a text that is not Unicode, or on which
    the tokenizer gives up."""
    work.stage("tokenizer", param)
    try:
        with work.noted.timing(TOKENIZING):
            yield
    except UnicodeEncodeError as error:
        raise InvalidRequestError("The prompt is not Unicode text.", param=param) from error
    except UntokenizableError as error:
        raise untokenizable(param) from error


def encoded(text: str, work: Work, *, param: str, add_special_tokens: bool) -> list[int]:
    """Encode a text. Raises ContextTooLongError if it certainly has more tokens than the context,
    though a few more may pass; InvalidRequestError if it is not Unicode."""
    context = work.context
    try:
        with tokenizing(work, param):
            return work.checkpoint.tokenizer.encode_within(
                text, context, add_special_tokens=add_special_tokens
            )
    except TooManyTokensError as error:
        work.noted.prompt_tokens += error.counted
        counted = f"more than {context}"
        raise _too_long(counted, max(error.estimated, context + 1), context, param) from error


def prompt_ids(
    text: str, sampling: SamplingFields, work: Work, *, param: str, add_special_tokens: bool
) -> list[int]:
    """Return the token ids that remain after ``truncate_prompt_tokens``. Raises as ``encoded``
    does."""
    wanted = sampling.truncate_prompt_tokens
    size = work.context - 1 if wanted == -1 else wanted
    if size is None or size >= work.context:
        ids = encoded(text, work, param=param, add_special_tokens=add_special_tokens)
    else:
        part = _encoded_part(
            text, size, sampling, work, param=param, add_special_tokens=add_special_tokens
        )
        ids = truncated(part, sampling, work.context)
    work.noted.prompt_tokens += len(ids)
    return ids


def _encoded_part(
    text: str,
    size: int,
    sampling: SamplingFields,
    work: Work,
    *,
    param: str,
    add_special_tokens: bool,
) -> list[int]:
    with tokenizing(work, param):
        return work.checkpoint.tokenizer.encode_part(
            text,
            size,
            from_end=sampling.truncation_side == "left",
            add_special_tokens=add_special_tokens,
        )


def room(prompt_tokens: int, context: int, param: str) -> int:
    """Return the tokens left for output. Raises ContextTooLongError."""
    if prompt_tokens >= context:
        raise _too_long(str(prompt_tokens), prompt_tokens, context, param)
    return context - prompt_tokens


def _too_long(said: str, tokens: int, context: int, param: str) -> ContextTooLongError:
    """``said``: what the message says of ``tokens``. One token is left for output."""
    error = ContextTooLongError(
        # Clients recognize the error, and shorten the conversation, by the first words or by
        # "prompt is too long".
        f"This model's maximum context length is {context} tokens, but the prompt is too long: "
        f"your {param} resulted in {said} tokens. Shorten the {param}.",
        param=param,
    )
    error.tokens = (tokens, context - 1)
    return error


def check_together(prompt_tokens: int, param: str) -> None:
    """Raise ContextTooLongError for more token ids than one request may have."""
    if prompt_tokens > MAX_PROMPT_TOKENS:
        raise ContextTooLongError(
            f"All '{param}' together may have at most {MAX_PROMPT_TOKENS} tokens.", param=param
        )


def check_inputs(inputs: list[Input], names: list[str], context: int, param: str) -> None:
    """Raise ContextTooLongError if an input is too long, or all of them together."""
    check_lengths(inputs, names, longest=context)
    check_together(sum(len(one.token_ids) for one in inputs), param)


def check_token_ids(ids: list[int], vocab_size: int, param: str) -> None:
    """Raise InvalidRequestError for an id outside the vocabulary."""
    if ids and max(ids) >= vocab_size:
        raise InvalidRequestError(
            f"'{param}' contains token id {max(ids)}, but the largest id is {vocab_size - 1}.",
            param=param,
        )


def check_counted(text: str, context: int, param: str) -> None:
    """Raise InvalidRequestError for a text that is too long even to be counted."""
    most = max(_MAX_COUNTED_CHARS, _COUNTED_CHARS_PER_TOKEN * context)
    if len(text) > most:
        raise InvalidRequestError(
            f"At most {most} characters are tokenized at once; '{param}' has {len(text)}.",
            param=param,
        )


def most_conversation_chars(checkpoint: Checkpoint, context: int) -> int:
    """Return an upper bound on the characters of a conversation that fits the context: each token
    is as long as the longest one."""
    return max(1 << 20, context * checkpoint.tokenizer.longest_token)
