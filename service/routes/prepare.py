"""From a decoded request to a GenerationRequest: prompt, limits, parameters."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from service.checkpoint import Checkpoint
from service.errors import ContextTooLongError, InvalidRequestError
from service.generation.constraint import AnswerShape, ConstraintRequest, ToolShape
from service.generation.constraint_grammar import constraint_of
from service.generation.formats import OutputFormat, opening_of, reasoning_is_over
from service.generation.record import RequestRecord
from service.generation.request import Generation, GenerationRequest
from service.prompt.conversation import Conversation
from service.prompt.template import ChatTemplate, TemplateError
from service.prompt.tokenizer import THREAD_CHARS
from service.routes.exchange import Exchange
from service.routes.services import Services
from service.wire.completions import DEFAULT_MAX_TOKENS, CompletionRequest
from service.wire.decode import Ignored
from service.wire.sampling import (
    SamplingFields,
    check_prompt_logprobs,
    default_max_tokens,
    output_room,
    sampling_params,
    stop_rules,
    truncated,
)
from service.wire.structured_output import conversation_constraint

# Beside the variables that a template itself reads, clients may set these whatever the template.
_COMMON_VARIABLES = frozenset({"enable_thinking", "thinking", "reasoning_effort", "documents"})
_RESERVED_VARIABLES = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message"}
)


class RenderedPrompt(NamedTuple):
    text: str
    ids: list[int]


async def render(
    conversation: Conversation, checkpoint: Checkpoint, *, body_size: int
) -> RenderedPrompt:
    """The prompt by the checkpoint's template; a large one is made in a thread.

    Raises InvalidRequestError, also for what the template itself raises.
    """
    template = checkpoint.template
    if template is None:
        raise InvalidRequestError(
            "This model has no chat template; use /v1/completions.", param=conversation.param
        )
    variables = _template_variables(conversation, template)
    if body_size < THREAD_CHARS:
        return _render(conversation, checkpoint, template, variables)
    return await asyncio.to_thread(_render, conversation, checkpoint, template, variables)


def _render(
    conversation: Conversation,
    checkpoint: Checkpoint,
    template: ChatTemplate,
    variables: Mapping[str, Any],
) -> RenderedPrompt:
    param = conversation.param
    try:
        text = template.render(
            conversation.messages,
            tools=conversation.template_tools(),
            documents=conversation.documents or variables.get("documents"),
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            variables=variables,
        )
    except TemplateError as error:
        raise InvalidRequestError(f"{error}.", param=param) from error
    try:
        ids = checkpoint.tokenizer.encode(text, add_special_tokens=conversation.add_special_tokens)
    except UnicodeEncodeError as error:
        raise InvalidRequestError("The prompt is not Unicode text.", param=param) from error
    return RenderedPrompt(text, ids)


def _template_variables(conversation: Conversation, template: ChatTemplate) -> dict[str, Any]:
    """Raises InvalidRequestError for a variable that no template of this model reads."""
    known = (_COMMON_VARIABLES | template.variables) - _RESERVED_VARIABLES
    for name in conversation.variables:
        if name not in known:
            raise InvalidRequestError(
                f"The chat template does not read '{name}'.", param=f"chat_template_kwargs.{name}"
            )
    return {**conversation.thinking_variables(), **conversation.variables}


def conversation_generation(
    conversation: Conversation,
    prompt: RenderedPrompt,
    sampling: SamplingFields,
    services: Services,
    record: RequestRecord,
    *,
    token_limit: int | None,
    logprobs: int | None,
) -> GenerationRequest:
    """``token_limit`` is cut to the context that is left; ``logprobs`` as in SamplingParams.

    Raises ContextTooLongError or InvalidRequestError.
    """
    checkpoint, engine = services.checkpoint, services.engine
    prompt_ids = truncated(prompt.ids, sampling, engine.max_model_len)
    room = _room(len(prompt_ids), engine.max_model_len, conversation.param)
    n = sampling.n or 1
    room = output_room(sampling, room, wanted=token_limit, choices=n, logprobs=logprobs)
    check_prompt_logprobs(sampling, n * len(prompt_ids), sampling.prompt_logprobs)
    limit = token_limit or default_max_tokens(checkpoint.defaults, room)
    params = sampling_params(
        sampling,
        checkpoint,
        vocab_size=engine.vocab_size,
        max_tokens=min(limit, room),
        logprobs=logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
    )
    return GenerationRequest(
        request_id=record.request_id,
        prompts=[prompt_ids],
        params=params,
        arrival_time=record.received_time,
        n=n,
        seed=sampling.seed,
        stop=stop_rules(sampling),
        skip_special_tokens=sampling.skip_special_tokens,
        parse=True,
        tools=conversation.tool_schemas(),
        opening=opening_of(
            checkpoint.output_format,
            prompt.text,
            continues=conversation.continue_final_message,
        ),
        continues_text=conversation.continue_final_message,
        priority=sampling.priority,
        cache_salt=sampling.cache_salt or "",
        length_penalty=sampling.length_penalty if sampling.use_beam_search else None,
    )


async def start_conversation(
    conversation: Conversation,
    sampling: SamplingFields,
    services: Services,
    exchange: Exchange,
    *,
    body_size: int,
    token_limit: int | None,
    logprobs: int | None = None,
    answer: AnswerShape | None = None,
    tools: tuple[ToolShape, ...] | None = None,
) -> Generation:
    """From conversation to running generation: what every chat-like API does the same. ``answer``:
    the form that its text must have; ``tools``: the forms of calls, where the conversation's tools
    do not say all (custom tools) or are named otherwise in the request.

    Raises QuireError; nothing runs then.
    """
    prompt = await render(conversation, services.checkpoint, body_size=body_size)
    wanted = conversation_generation(
        conversation,
        prompt,
        sampling,
        services,
        exchange.record,
        token_limit=token_limit,
        logprobs=logprobs,
    )
    asked = conversation_constraint(
        conversation,
        answer,
        tools=tools,
        opening=wanted.opening,
        reasoning_is_over=reasoning_is_over(
            services.checkpoint.output_format,
            prompt.text,
            continues=conversation.continue_final_message,
        ),
    )
    wanted = await constrained(
        wanted, asked, services.checkpoint.output_format, services, exchange.ignored
    )
    generation = services.generator.start(wanted, exchange.caller)
    exchange.began(generation)
    return generation


async def constrained(
    wanted: GenerationRequest,
    asked: ConstraintRequest,
    output_format: OutputFormat,
    services: Services,
    ignored: Ignored,
) -> GenerationRequest:
    """The same request, its output bound to what is asked of its form; ``ignored`` gains what of
    that cannot be enforced. Raises InvalidRequestError for a form that cannot be had."""
    left_out: list[str] = []
    constraint = await constraint_of(
        asked,
        output_format,
        services.checkpoint.tokenizer.token_id,
        services.grammar_trial,
        left_out,
    )
    ignored.add(*left_out)
    if constraint is None:
        return wanted
    if wanted.length_penalty is not None:
        raise InvalidRequestError(
            "A form for the output is not served together with 'use_beam_search'.",
            param="use_beam_search",
        )
    params = msgspec.structs.replace(wanted.params, constraint=constraint)
    return dataclasses.replace(wanted, params=params)


async def completion_prompts(
    request: CompletionRequest, services: Services
) -> tuple[list[list[int]], list[str]]:
    """Token ids of every prompt, and their texts where they are to be echoed."""
    tokenizer = services.checkpoint.tokenizer
    ids: list[list[int]] = []
    texts: list[str] = []
    for prompt in request.prompts:
        if isinstance(prompt, str):
            encoded = await tokenizer.encode_async(
                prompt, add_special_tokens=request.add_special_tokens
            )
            text = prompt
        else:
            encoded = prompt
            check_token_ids(prompt, services.engine.vocab_size, "prompt")
            text = tokenizer.decode(prompt) if request.echo else ""
        if not encoded:
            raise InvalidRequestError("'prompt' must not be empty.", param="prompt")
        kept = truncated(encoded, request, services.engine.max_model_len)
        ids.append(kept)
        texts.append(tokenizer.decode(kept) if request.echo and len(kept) < len(encoded) else text)
    return ids, texts


def completion_generation(
    request: CompletionRequest, prompts: list[list[int]], services: Services, record: RequestRecord
) -> GenerationRequest:
    """Raises ContextTooLongError or InvalidRequestError."""
    checkpoint, engine = services.checkpoint, services.engine
    room = min(_room(len(prompt), engine.max_model_len, "prompt") for prompt in prompts)
    # Without any output wanted the engine still computes one token; it is not shown.
    limit = request.max_tokens if request.max_tokens is not None else None
    if limit is None:
        limit = default_max_tokens(checkpoint.defaults, room, DEFAULT_MAX_TOKENS)
    # The best are told by how likely the model holds them.
    ranking = 0 if request.ranks else None
    reported = ranking if request.logprobs is None else request.logprobs
    n = request.best_of or request.n or 1
    room = output_room(request, room, wanted=limit, choices=n * len(prompts), logprobs=reported)
    of_prompts = request.prompt_logprobs
    if of_prompts is None and request.echo:
        of_prompts = request.logprobs
    check_prompt_logprobs(request, n * sum(map(len, prompts)), of_prompts)
    params = sampling_params(
        request,
        checkpoint,
        vocab_size=engine.vocab_size,
        max_tokens=min(max(limit, 1), room),
        logprobs=reported,
        prompt_logprobs=of_prompts,
    )
    return GenerationRequest(
        request_id=record.request_id,
        prompts=prompts,
        params=params,
        arrival_time=record.received_time,
        n=n,
        seed=request.seed,
        stop=stop_rules(request),
        skip_special_tokens=request.skip_special_tokens,
        continues_text=True,
        priority=request.priority,
        cache_salt=request.cache_salt or "",
        length_penalty=request.length_penalty if request.use_beam_search else None,
    )


def check_token_ids(ids: list[int], vocab_size: int, param: str) -> None:
    """Raises InvalidRequestError for an id that is no token."""
    if ids and max(ids) >= vocab_size:
        raise InvalidRequestError(
            f"'{param}' holds the token id {max(ids)}, but ids end at {vocab_size - 1}.",
            param=param,
        )


def _room(prompt_tokens: int, context: int, param: str) -> int:
    """Tokens left for output."""
    if prompt_tokens >= context:
        raise ContextTooLongError(
            f"This model's maximum context length is {context} tokens, but your {param} resulted "
            f"in {prompt_tokens} tokens. Shorten the {param}.",
            param=param,
        )
    return context - prompt_tokens
