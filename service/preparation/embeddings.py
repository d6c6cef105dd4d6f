"""``/v1/embeddings`` and gRPC's Embed."""

from __future__ import annotations

from service.errors import InvalidRequestError, WrongTaskError
from service.pooling.inputs import Input, encode_texts, truncate_ids, truncation
from service.preparation.jobs import Limits, PreparedEmbeddings
from service.preparation.prompts import check_inputs, check_token_ids, tokenizing
from service.preparation.work import Step, Work
from service.wire.decode import Ignored
from service.wire.texts.embeddings import EmbeddingRequest, decode_embeddings


def _decode(body: bytes, _limits: Limits, ignored: Ignored) -> EmbeddingRequest:
    return decode_embeddings(body, ignored)


def _decode_grpc(body: bytes, _limits: Limits, ignored: Ignored) -> EmbeddingRequest:
    from service.wire.protobuf.decode import read_embedding  # imported only if gRPC is installed

    return read_embedding(body, ignored)


def _finish(request: EmbeddingRequest, work: Work) -> PreparedEmbeddings:
    _check_dimensions(request, work)
    limit, side = request.truncation
    cut = truncation(limit, side, longest=work.context)
    given, names = request.inputs, request.names
    inputs: list[Input] = []
    texts: list[str] = []
    for one in given:
        if isinstance(one, str):
            texts.append(one)
        else:
            check_token_ids(one, work.job.engine.vocab_size, "input")
            inputs.append(Input(truncate_ids(one, cut)))
    if not inputs:
        with tokenizing(work, "input"):
            inputs = encode_texts(
                texts,
                work.checkpoint.tokenizer,
                names=names,
                longest=work.context,
                add_special_tokens=request.add_special_tokens,
                truncated=cut,
            )
    work.noted.prompt_tokens = sum(len(one.token_ids) for one in inputs)
    check_inputs(inputs, names, work.context, "input")
    return PreparedEmbeddings(noted=work.noted, request=request, inputs=inputs)


def _check_dimensions(request: EmbeddingRequest, work: Work) -> None:
    """Raise WrongTaskError for a model without embeddings, InvalidRequestError for a length that
    its embeddings cannot be truncated to."""
    engine = work.job.engine
    size = engine.embedding_size
    if not size:
        raise WrongTaskError(
            f"This model ({engine.architecture}) does not support embeddings"
            + (
                "; it scores pairs of texts: see /v1/rerank and /v1/score."
                if engine.num_scores
                else "."
            )
        )
    if request.dimensions is None:
        return
    allowed = (*engine.matryoshka_dimensions, size)
    if request.dimensions > size:
        raise InvalidRequestError(
            f"'dimensions' may be at most {size} with this model.", param="dimensions"
        )
    if engine.matryoshka_dimensions and request.dimensions not in allowed:
        raise InvalidRequestError(
            f"This model's embeddings can be cut to {', '.join(map(str, allowed))} dimensions.",
            param="dimensions",
        )


EMBEDDINGS = Step("embeddings", _decode, _finish, PreparedEmbeddings)
GRPC_EMBEDDINGS = Step("grpc_embeddings", _decode_grpc, _finish, PreparedEmbeddings)
