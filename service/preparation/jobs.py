"""The typed messages between the API worker and its preparation processes: jobs and their results,
in frames of ``engine.messages``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from engine.messages import Constraint, Ready
from observability.phases import RequestPhase
from service import errors
from service.checkpoint.probe import ProbedTemplate
from service.errors import (
    ContextTooLongError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    QuireError,
)
from service.generation.request import GenerationRequest
from service.pooling.inputs import Input
from service.telemetry.record import Interval, add_interval
from service.tenants.caller import Caller
from service.wire.chat.request import ChatRequest
from service.wire.completions.request import CompletionRequest
from service.wire.messages.request import MessagesRequest
from service.wire.responses.request import ResponsesRequest
from service.wire.responses.response_object import Echoed
from service.wire.responses.tools import ClientTool
from service.wire.texts.embeddings import EmbeddingRequest
from service.wire.texts.rerank import RerankRequest, ScoreRequest


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """``names``: the model's names, the primary one first: those that the caller may use.
    ``refuse_unknown``: unknown fields are an error."""

    names: tuple[str, ...]
    max_choices: int
    refuse_unknown: bool = False

    def model_name(self, asked: str | None) -> str:
        """Return the name to use in the answer. Raises ModelNotFoundError."""
        if asked in self.names:
            return asked
        if asked is None and self.names:
            return self.names[0]
        if not self.names:
            raise ModelNotFoundError("This server has no model for this API key.", param="model")
        raise ModelNotFoundError(
            f"The model '{asked}' does not exist; this server has {', '.join(self.names)}.",
            param="model",
        )

    def allowed(self, caller: Caller) -> Limits:
        """Return the limits of this caller's requests: a model that it may not use does not
        exist."""
        if caller.models is None:
            return self
        names = tuple(name for name in self.names if caller.may_use(name))
        return msgspec.structs.replace(self, names=names)


class Noted(msgspec.Struct):
    """Facts for the request's record, noted as soon as they are known, because what follows can
    cause an error. ``intervals``: when the prompt was rendered and tokenized; ``prompt_tokens``:
    those counted so far."""

    model: str = ""
    stream: bool = False
    client_request_id: str | None = None
    ignored: list[str] = []
    meant: dict[str, str] = {}  # unknown fields and what they may be misspellings of
    intervals: list[Interval] = []
    prompt_tokens: int = 0
    reached: Interval | None = None  # the phase that runs now, in a process

    def enter(self, phase: RequestPhase | None, moment: float) -> None:
        """Note that a process has begun this phase, or that it does or did something else."""
        if self.reached is not None:
            add_interval(self.intervals, self.reached._replace(end=moment))
        self.reached = None if phase is None else Interval(phase.name, moment, moment)

    @contextlib.contextmanager
    def timing(self, phase: RequestPhase) -> Iterator[None]:
        """Note that the block is part of this phase, even if it raises an error."""
        begin = time.monotonic()
        try:
            yield
        finally:
            add_interval(self.intervals, Interval(phase.name, begin, time.monotonic()))


# --- jobs -----------------------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``step``: what to do, one of ``steps.STEPS``. ``body``: as received (a protobuf message for
    gRPC's jobs). ``engine``: the loaded model."""

    step: str
    body: bytes
    limits: Limits
    engine: Ready
    request_id: str = ""
    arrival_time: float = 0.0

    @property
    def size(self) -> int:
        """Bytes to process."""
        return len(self.body)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A stored response, as JSON: the items before its request, those of the request, and the
    response object."""

    context: bytes
    input: bytes
    body: bytes

    @property
    def size(self) -> int:
        return len(self.context) + len(self.input) + len(self.body)


class ResponsesJob(Job, frozen=True, kw_only=True):
    """``stored``: the stored responses it refers to have been looked up. ``has_store``: the server
    has a store. ``previous``: the response that its ``previous_response_id`` names. ``referred``:
    stored responses by id, for references to their items. ``response_id``: the answer's own.
    ``compacts``: generate a summary, regardless of the request. ``remembered``: its items are kept
    even if it is not stored. ``created``: Unix time, for a WebSocket message that only sets what
    the next one continues."""

    owner: str
    response_id: str
    compacts: bool = False
    remembered: bool = False
    stored: bool = False
    has_store: bool = True
    previous: History | None = None
    referred: dict[str, History] = {}
    created: int = 0

    @property
    def size(self) -> int:
        before = 0 if self.previous is None else self.previous.size
        return len(self.body) + before + sum(each.size for each in self.referred.values())


class ItemsJob(Job, frozen=True, kw_only=True):
    """A page of a stored response's input items; ``body`` is empty."""

    stored: History
    limit: int
    newest_first: bool
    after: str | None = None

    @property
    def size(self) -> int:
        return self.stored.size


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The constraints on an output, not converted to a grammar yet. ``request``: a
    ConstraintRequest as JSON. ``gbnf``: a grammar to convert to Lark's notation first, from the
    field ``gbnf_param``. ``plain``: the output is text, regardless of the model's format."""

    request: bytes
    plain: bool = False
    gbnf: str | None = None
    gbnf_param: str = ""


class FormJob(Job, frozen=True, kw_only=True):
    """Write the grammar of ``asked``; ``body`` is empty. ``lark``: its GBNF grammar in Lark's
    notation; ``exact``: as in ``build_constraint``; ``eased``: also write less demanding versions
    of the answer's form; ``parts``: also write a grammar for each tool alone."""

    asked: Asked
    lark: str | None = None
    exact: bool = True
    eased: bool = False
    parts: bool = False

    @property
    def size(self) -> int:
        return len(self.asked.request)


AnyJob = Job | ResponsesJob | ItemsJob | FormJob


# --- results --------------------------------------------------------------------------------------


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """``noted``: the facts noted when the request was read."""

    noted: Noted


class PreparedGeneration(Prepared, frozen=True, kw_only=True):
    """``asked`` None: the output is unconstrained."""

    generation: GenerationRequest
    asked: Asked | None = None


class PreparedChat(PreparedGeneration, frozen=True, kw_only=True):
    request: ChatRequest


class PreparedCompletion(PreparedGeneration, frozen=True, kw_only=True):
    """``texts``: the prompts to be echoed."""

    request: CompletionRequest
    texts: list[str]


class PreparedMessages(PreparedGeneration, frozen=True, kw_only=True):
    request: MessagesRequest
    speaks_of_caching: bool


class Needs(Prepared, frozen=True, kw_only=True, tag=True):
    """A request that refers to stored responses: ``previous`` by ``previous_response_id``, those in
    ``referred`` by references to their items."""

    request: ResponsesRequest
    previous: str | None
    referred: list[str]


class PreparedResponse(PreparedGeneration, frozen=True, kw_only=True, tag=True):
    """``items``: the request's own, as they are listed and stored; ``context``: those before them;
    ``said``: the user messages among both, if the conversation is compacted; all are JSON.
    ``compacts``: the answer is a summary."""

    request: ResponsesRequest
    echoed: Echoed
    toolbox: list[ClientTool]
    items: bytes
    context: bytes
    said: bytes = b"[]"
    compacts: bool = False

    @property
    def size(self) -> int:
        """Bytes of JSON in it, which are kept until the answer is complete."""
        parts = (self.items, self.context, self.said, *msgspec.structs.astuple(self.echoed))
        return sum(map(len, parts))


class WarmedUp(Prepared, frozen=True, kw_only=True, tag=True):
    """``history``: the whole conversation; ``events``: the response to the client, as SSE."""

    history: History
    events: bytes


class PreparedInputs(Prepared, frozen=True, kw_only=True):
    """Texts or pairs of texts to embed or score. ``num_firsts``: for scores by cosine, the number
    of inputs that precede those they are compared with."""

    inputs: list[Input]
    num_firsts: int = 0


class PreparedEmbeddings(PreparedInputs, frozen=True, kw_only=True):
    request: EmbeddingRequest


class PreparedRerank(PreparedInputs, frozen=True, kw_only=True):
    request: RerankRequest


class PreparedScore(PreparedInputs, frozen=True, kw_only=True):
    request: ScoreRequest


class Answered(Prepared, frozen=True, kw_only=True, tag=True):
    """The complete body of the answer."""

    body: bytes


class PartForm(msgspec.Struct, frozen=True):
    param: str
    constraint: Constraint


class EasedForm(msgspec.Struct, frozen=True):
    """``left_out``: paths of what was requested but is not enforced."""

    constraint: Constraint
    left_out: list[str]


class Form(Prepared, frozen=True, kw_only=True):
    """``constraint``: of the whole request; ``answer``: of the answer alone; ``freed``: fields
    whose grammar is not enforced; ``left_out``: paths of anything else that is not; ``eased``: ever
    less demanding versions. ``parts``: of each tool alone. ``loose``: some tools are not strict."""

    constraint: Constraint | None = None
    answer: PartForm | None = None
    freed: list[str] = []
    left_out: list[str] = []
    eased: list[EasedForm] = []
    parts: list[PartForm] = []
    loose: bool = False


# --- on the wire ---------------------------------------------------------------------------------


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame: what must not appear in a process's arguments or is too long for them.
    ``probed``: see ``Checkpoint``."""

    signing_key: str
    sealing_key: bytes
    probed: ProbedTemplate | None = None


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """The stage that begins now, to be named in the error if the process is killed for taking too
    long."""

    name: str
    param: str | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """``result``: what the job's step returned, without token ids; ``token_ids`` holds those of
    each prompt as little-endian int32."""

    result: msgspec.Raw
    token_ids: list[bytes] = []


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """``kind``: the name of a QuireError. ``tokens``: as of ContextTooLongError. ``trace``: of an
    unexpected exception, for the log."""

    kind: str
    message: str
    param: str | None
    noted: Noted
    trace: str = ""
    retry_after: int | None = None
    tokens: tuple[int, int] | None = None
    is_last: bool = False  # the process cannot continue


Reply = Stage | Done | Failed


def failure(error: QuireError, noted: Noted) -> Failed:
    return Failed(
        type(error).__name__,
        error.message,
        error.param,
        noted,
        retry_after=error.retry_after,
        tokens=error.tokens if isinstance(error, ContextTooLongError) else None,
    )


def error_of(failed: Failed) -> QuireError:
    """Return the error that the step raised."""
    kind: Any = getattr(errors, failed.kind, InternalError)
    made: QuireError = kind(failed.message, param=failed.param, retry_after=failed.retry_after)
    if isinstance(made, ContextTooLongError):
        made.tokens = failed.tokens
    return made


# --- requests that take too much -----------------------------------------------------------------


def too_slow(reached: Stage, seconds: float) -> InvalidRequestError:
    """Return the error of a request whose preparation took more than ``seconds``. ``reached``: the
    stage that it was in."""
    within = f"{seconds:.0f} s"
    if reached.name == "tokenizer":
        return _untokenizable(f"tokenizing it takes more than {within}", reached)
    if reached.name == "template":
        said = (
            f"The model's chat template took more than {within} on these messages; send fewer, or "
            "report it to the template's author."
        )
    else:
        said = f"The request took more than {within} to prepare; send less."
    return InvalidRequestError(said, param=reached.param)


def too_much_memory(reached: Stage) -> InvalidRequestError:
    """Return the error of a request whose preparation needs too much memory. ``reached``: as
    above."""
    if reached.name == "tokenizer":
        return _untokenizable("tokenizing it takes too much memory", reached)
    return InvalidRequestError(
        "The request needs too much memory to prepare; send less.", param=reached.param
    )


def _untokenizable(why: str, reached: Stage) -> ContextTooLongError:
    # Not a plain InvalidRequestError: clients that know this one shorten the conversation.
    return ContextTooLongError(
        f"The prompt is too long: {why}. Shorten the {reached.param}.", param=reached.param
    )
