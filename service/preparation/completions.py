"""``/v1/completions`` and gRPC's Generate."""

from __future__ import annotations

from service.constraint.request import ConstraintRequest
from service.errors import InvalidRequestError
from service.generation.request import GenerationRequest
from service.preparation.generation import asked_form
from service.preparation.jobs import Limits, PreparedCompletion
from service.preparation.prompts import (
    check_together,
    check_token_ids,
    prompt_ids,
    room,
    tokenizing,
)
from service.preparation.sampling import (
    beam_limit,
    check_min_tokens,
    check_prompt_logprobs,
    default_max_tokens,
    output_room,
    sampling_params,
    stop_rules,
    truncated,
)
from service.preparation.work import Step, Work
from service.wire.completions.request import (
    DEFAULT_MAX_TOKENS,
    CompletionRequest,
    decode_completion,
)
from service.wire.decode import Ignored
from service.wire.structured_output import answer_shape


def _decode(body: bytes, limits: Limits, ignored: Ignored) -> CompletionRequest:
    return decode_completion(body, max_choices=limits.max_choices, ignored=ignored)


def _decode_grpc(body: bytes, limits: Limits, ignored: Ignored) -> CompletionRequest:
    from service.wire.protobuf.decode import read_completion  # imported only if gRPC is installed

    return read_completion(body, max_choices=limits.max_choices, ignored=ignored)


def _finish(request: CompletionRequest, work: Work) -> PreparedCompletion:
    prompts, texts = _prompts(request, work)
    checkpoint, context = work.checkpoint, work.context
    rooms = [room(len(prompt), context, "prompt") for prompt in prompts]
    # Of the prompt with the most room: the engine ends each sequence at the end of the context.
    left = max(rooms)
    limit = request.max_tokens
    if limit is None:
        limit = default_max_tokens(checkpoint.defaults, left, DEFAULT_MAX_TOKENS)
    # Ranking outputs requires the log-probabilities of their tokens.
    ranking = 0 if request.ranks else None
    reported = ranking if request.logprobs is None else request.logprobs
    n = request.best_of or request.n or 1
    left = output_room(request, left, wanted=limit, choices=n * len(prompts), logprobs=reported)
    of_prompts = request.prompt_logprobs
    if of_prompts is None and request.echo:
        of_prompts = request.logprobs
    check_prompt_logprobs(request, n * sum(map(len, prompts)), of_prompts)
    is_set = request.max_tokens is not None
    limit = beam_limit(request, max(map(len, prompts)), min(limit, left), is_set=is_set)
    # If no output is requested, the engine still computes one token, which is not shown.
    limit = min(max(limit, 1), left)
    check_min_tokens(request, min(limit, *rooms))
    params = sampling_params(
        request,
        checkpoint,
        vocab_size=work.job.engine.vocab_size,
        max_tokens=limit,
        logprobs=reported,
        prompt_logprobs=of_prompts,
    )
    generation = GenerationRequest(
        request_id=work.job.request_id,
        prompts=prompts,
        params=params,
        arrival_time=work.job.arrival_time,
        n=n,
        seed=request.seed,
        stop=stop_rules(request),
        skip_special_tokens=request.skip_special_tokens,
        continues_text=True,
        priority=request.priority,
        tier=request.tier,
        cache_salt=request.cache_salt or "",
        sets_limit=request.max_tokens is not None,
        length_penalty=request.length_penalty if request.use_beam_search else None,
    )
    form = ConstraintRequest(answer=answer_shape(request))
    return PreparedCompletion(
        noted=work.noted,
        request=request,
        texts=texts,
        generation=generation,
        asked=asked_form(form, generation, plain=True),
    )


def _prompts(request: CompletionRequest, work: Work) -> tuple[list[list[int]], list[str]]:
    """Return the token ids of every prompt, and their texts if they are to be echoed."""
    tokenizer, context = work.checkpoint.tokenizer, work.context
    ids: list[list[int]] = []
    texts: list[str] = []
    together = 0
    for prompt in request.prompts:
        if isinstance(prompt, str):
            kept = prompt_ids(
                prompt,
                request,
                work,
                param="prompt",
                add_special_tokens=request.add_special_tokens,
            )
            whole = request.truncate_prompt_tokens is None
        else:
            check_token_ids(prompt, work.job.engine.vocab_size, "prompt")
            kept = truncated(prompt, request, context)
            work.noted.prompt_tokens += len(kept)
            whole = False
        if not kept:
            raise InvalidRequestError("'prompt' must not be empty.", param="prompt")
        together += len(kept)
        check_together(together, "prompt")
        ids.append(kept)
        if not request.echo:
            texts.append("")
        elif isinstance(prompt, str) and (whole or not _is_cut(prompt, kept, request, work)):
            texts.append(prompt)
        else:
            room(len(kept), context, "prompt")
            texts.append(tokenizer.decode(kept))
    return ids, texts


def _is_cut(text: str, kept: list[int], request: CompletionRequest, work: Work) -> bool:
    """True if truncation has removed part of a text."""
    wanted = request.truncate_prompt_tokens
    size = work.context - 1 if wanted == -1 else wanted
    if size is None or len(kept) < size:
        return False
    with tokenizing(work, "prompt"):
        whole = work.checkpoint.tokenizer.encode_part(
            text, size + 1, from_end=False, add_special_tokens=request.add_special_tokens
        )
    return len(whole) > len(kept)


COMPLETION = Step("completion", _decode, _finish, PreparedCompletion)
GRPC_COMPLETION = Step("grpc_completion", _decode_grpc, _finish, PreparedCompletion)
