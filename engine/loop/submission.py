"""What a submission must satisfy beyond the types of its message, and the sequence it becomes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from engine.messages import Embed, Generate, Pooling, SamplingParams, Submit
from engine.step.sequence import Sequence
from engine.step.step import ModelInfo

# What a sequence that gets no token has for parameters.
NO_SAMPLING = SamplingParams(max_tokens=1, temperature=0.0)


def singly(submit: Submit) -> Iterator[Submit]:
    """A submission and its copies, each by itself."""
    yield submit
    for copy in submit.copies:
        task = submit.task
        if isinstance(task, Generate):
            params = msgspec.structs.replace(task.params, seed=copy.seed)
            task = msgspec.structs.replace(task, params=params)
        yield msgspec.structs.replace(submit, handle=copy.handle, task=task, copies=[])


def sequence_of(submit: Submit, uid: int, info: ModelInfo, prompt_hashes: list[bytes]) -> Sequence:
    """``prompt_hashes``: of the prompt's blocks, filled as they are needed."""
    task = submit.task
    if isinstance(task, Generate):
        params = task.params
        needs_whole_prompt = params.prompt_logprobs is not None
    else:
        params = NO_SAMPLING
        needs_whole_prompt = info.pooling is not Pooling.LAST
    return Sequence(
        uid=uid,
        request_id=submit.request_id,
        token_ids=submit.prompt_token_ids + output_of(submit),
        num_prompt_tokens=len(submit.prompt_token_ids),
        params=params,
        priority=submit.priority,
        arrival_time=submit.arrival_time,
        cache_salt=submit.cache_salt,
        embed=task if isinstance(task, Embed) else None,
        needs_whole_prompt=needs_whole_prompt,
        prompt_hashes=prompt_hashes,
    )


def output_of(submit: Submit) -> list[int]:
    """The tokens that it already generated elsewhere."""
    return submit.task.output_token_ids if isinstance(submit.task, Generate) else []


def refusal(submit: Submit, info: ModelInfo, *, max_sequence_len: int) -> str | None:
    """Why this model cannot take this submission; None if it can.

    ``max_sequence_len`` bounds prompt plus output, in tokens.
    """
    match submit.task:
        case Generate() as generate:
            return _generate_refusal(submit, generate, info, max_sequence_len)
        case Embed() as embed:
            return _embed_refusal(submit, embed, info, max_sequence_len)


def _generate_refusal(
    submit: Submit, generate: Generate, info: ModelInfo, max_sequence_len: int
) -> str | None:
    if not info.generates:
        return f"{info.architecture} does not generate"
    prompt_len = len(submit.prompt_token_ids)
    if prompt_len == 0:
        return "the prompt is empty"
    if prompt_len >= max_sequence_len:
        return (
            f"the prompt has {prompt_len} tokens and leaves no room for output: "
            f"prompt and output together can have {max_sequence_len}"
        )
    outside = _outside(submit.prompt_token_ids, info.vocab_size)
    if outside is None:
        outside = _outside(generate.output_token_ids, info.vocab_size)
    if outside is not None:
        return f"token id {outside} is not in the vocabulary of {info.vocab_size}"
    return _params_refusal(generate.params, info.vocab_size)


def _embed_refusal(
    submit: Submit, embed: Embed, info: ModelInfo, max_sequence_len: int
) -> str | None:
    prompt_len = len(submit.prompt_token_ids)
    if not info.vector_size:
        return f"{info.architecture} does not support embeddings"
    if prompt_len == 0:
        return "the text has no tokens"
    if prompt_len > max_sequence_len:
        return f"the text has {prompt_len} tokens; the limit is {max_sequence_len}"
    if embed.second_text is not None and embed.second_text > prompt_len:
        return f"second_text is {embed.second_text}, but the text has only {prompt_len} tokens"
    outside = _outside(submit.prompt_token_ids, info.vocab_size)
    if outside is not None:
        return f"token id {outside} is not in the vocabulary of {info.vocab_size}"
    if embed.dimensions is None:
        return None
    return _dimensions_refusal(embed.dimensions, info)


def _dimensions_refusal(dimensions: int, info: ModelInfo) -> str | None:
    if not info.embedding_size:
        return "dimensions is not supported for scores"
    if dimensions > info.embedding_size:
        return f"dimensions {dimensions} exceeds the embedding's {info.embedding_size}"
    allowed = (*info.matryoshka_dimensions, info.embedding_size)
    if info.matryoshka_dimensions and dimensions not in allowed:
        return f"dimensions {dimensions} is not supported by the model; supported: " + ", ".join(
            map(str, allowed)
        )
    return None


def _params_refusal(params: SamplingParams, vocab_size: int) -> str | None:
    if params.min_tokens > params.max_tokens:
        return f"min_tokens {params.min_tokens} exceeds max_tokens {params.max_tokens}"
    if not all(math.isfinite(bias) for bias in params.logit_bias.values()):
        return "logit_bias has a value that is not a finite number"
    if params.allowed_tokens is not None:
        last = int.from_bytes(params.allowed_tokens, "little").bit_length() - 1
        if last < 0:
            return "allowed_tokens is empty: no token could be sampled"
        if last >= vocab_size:
            return f"allowed_tokens has {last}, which is not in the vocabulary of {vocab_size}"
    if not all(params.bad_words_token_ids):
        return "bad_words_token_ids has an empty word"
    named: tuple[tuple[str, Iterable[int]], ...] = (
        ("stop_token_ids", params.stop_token_ids),
        ("logit_bias", params.logit_bias),
        *(("bad_words_token_ids", word) for word in params.bad_words_token_ids),
    )
    for name, token_ids in named:
        outside = _outside(token_ids, vocab_size)
        if outside is not None:
            return f"{name} has {outside}, which is not in the vocabulary of {vocab_size}"
    return None


def _outside(token_ids: Iterable[int], vocab_size: int) -> int | None:
    """A token id outside the vocabulary, if there is one."""
    largest, smallest = max(token_ids, default=0), min(token_ids, default=0)
    if largest >= vocab_size:
        return largest
    return smallest if smallest < 0 else None
