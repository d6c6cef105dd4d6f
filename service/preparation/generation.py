"""The steps shared by all conversation APIs: from an API's task to what the engine generates."""

from __future__ import annotations

import msgspec

from engine.messages import SamplingParams
from service.constraint.request import AnswerShape, ConstraintRequest, ToolShape
from service.conversation import Conversation
from service.errors import InvalidRequestError
from service.formats import Opening, opening_of, reasoning_is_over
from service.generation.request import GenerationRequest
from service.output.calls.tool_schemas import reduced
from service.preparation import forms
from service.preparation.jobs import Asked
from service.preparation.message_starts import continued_from, offsets_of, prompt_messages
from service.preparation.prompts import prompt_ids, rendered, room
from service.preparation.sampling import (
    beam_limit,
    check_prompt_logprobs,
    default_max_tokens,
    output_room,
    sampling_params,
    stop_rules,
)
from service.preparation.work import Work
from service.wire.task import Task


def generation_of(task: Task, work: Work) -> tuple[GenerationRequest, Asked | None]:
    """Return the generation and its constraints. The token limit is cut to the remaining context.
    Raises InvalidRequestError."""
    conversation, sampling = task.conversation, task.sampling
    offsets = offsets_of(conversation)
    text = rendered(conversation, work, offsets)
    ids = prompt_ids(
        text,
        sampling,
        work,
        param=conversation.param,
        add_special_tokens=conversation.add_special_tokens,
    )
    begin = continued_from(conversation, offsets, text)
    opening = opening_of(
        work.checkpoint.output_format,
        text,
        continues=conversation.continue_final_message,
        begin=begin,
    )
    tools = conversation.tool_schemas()
    generation = GenerationRequest(
        request_id=work.job.request_id,
        prompts=[ids],
        messages=prompt_messages(offsets, text, ids, work.checkpoint.tokenizer),
        params=_params(task, ids, work),
        arrival_time=work.job.arrival_time,
        n=sampling.n or 1,
        seed=sampling.seed,
        stop=stop_rules(sampling),
        skip_special_tokens=sampling.skip_special_tokens,
        parse=True,
        tools=None if tools is None else reduced(tools),
        opening=opening,
        has_form=task.answer is not None,
        continues_text=conversation.continue_final_message,
        priority=sampling.priority,
        tier=task.tier,
        cache_salt=sampling.cache_salt or "",
        sets_limit=task.sets_limit and task.token_limit is not None,
        length_penalty=sampling.length_penalty if sampling.use_beam_search else None,
    )
    return generation, asked_form(_constraint(task, text, begin, opening, work), generation)


def _params(task: Task, ids: list[int], work: Work) -> SamplingParams:
    sampling, n = task.sampling, task.sampling.n or 1
    left = room(len(ids), work.context, task.conversation.param)
    left = output_room(sampling, left, wanted=task.token_limit, choices=n, logprobs=task.logprobs)
    check_prompt_logprobs(sampling, n * len(ids), sampling.prompt_logprobs)
    limit = task.token_limit or default_max_tokens(work.checkpoint.defaults, left)
    is_set = task.token_limit is not None
    limit = beam_limit(sampling, len(ids), min(limit, left), is_set=is_set)
    return sampling_params(
        sampling,
        work.checkpoint,
        vocab_size=work.job.engine.vocab_size,
        max_tokens=min(limit, left),
        logprobs=task.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
    )


def _constraint(
    task: Task, text: str, begin: int, opening: Opening, work: Work
) -> ConstraintRequest:
    conversation = task.conversation
    request = constraint_request(
        conversation,
        task.answer,
        tools=task.tools,
        opening=opening,
        reasoning_is_over=reasoning_is_over(
            work.checkpoint.output_format,
            text,
            continues=conversation.continue_final_message,
            begin=begin,
        ),
    )
    return msgspec.structs.replace(request, may_free=True) if task.may_free else request


def constraint_request(
    conversation: Conversation,
    answer: AnswerShape | None,
    *,
    tools: tuple[ToolShape, ...] = (),
    opening: Opening,
    reasoning_is_over: bool = False,
) -> ConstraintRequest:
    """Combine the constraints of calls of ``tools`` and of an answer's form.
    ``reasoning_is_over``: the prompt ends after the reasoning."""
    return ConstraintRequest(
        answer=answer,
        tools=tools,
        tool_choice=conversation.tool_choice,
        parallel_tool_calls=conversation.parallel_tool_calls,
        opening=opening,
        reasoning=_may_reason(conversation) and not reasoning_is_over,
    )


def _may_reason(conversation: Conversation) -> bool:
    """True unless reasoning is disabled."""
    variables = {**conversation.thinking_variables(), **conversation.variables}
    return variables.get("enable_thinking", variables.get("thinking")) is not False


def asked_form(
    request: ConstraintRequest, generation: GenerationRequest, *, plain: bool = False
) -> Asked | None:
    """Return the output's constraints, if any. Raises InvalidRequestError if they are not
    supported."""
    asked = forms.asked_of(request, plain=plain)
    if asked is not None and generation.length_penalty is not None:
        raise InvalidRequestError(
            "Structured output is not supported with 'use_beam_search'.",
            param="use_beam_search",
        )
    return asked
