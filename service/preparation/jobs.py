"""What is to be prepared, and what comes of it: what the API worker and its preparation processes
tell each other, as typed messages in frames of ``engine.messages``."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.messages import Constraint, Ready
from service import errors
from service.errors import InternalError, ModelNotFoundError, QuireError
from service.generation.request import GenerationRequest
from service.pooling.inputs import Input
from service.wire.chat.request import ChatRequest
from service.wire.completions.request import CompletionRequest
from service.wire.messages.request import MessagesRequest
from service.wire.responses.answer import Echoed
from service.wire.responses.request import ResponsesRequest
from service.wire.responses.tools import ClientTool
from service.wire.texts.embeddings import EmbeddingRequest
from service.wire.texts.rerank import RerankRequest, ScoreRequest


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """``names`` are those under which the model is asked for, its own first. ``refuse_unknown``:
    unknown fields are an error."""

    names: tuple[str, ...]
    max_choices: int
    refuse_unknown: bool = False

    def model_name(self, asked: str | None) -> str:
        """The name to answer under. Raises ModelNotFoundError."""
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            raise ModelNotFoundError(
                f"The model '{asked}' does not exist; this server has {', '.join(self.names)}.",
                param="model",
            )
        return asked


class Noted(msgspec.Struct):
    """What is known of a request before anything can go wrong with its prompt: for its record."""

    model: str = ""
    stream: bool = False
    client_request_id: str | None = None
    ignored: list[str] = []
    meant: dict[str, str] = {}  # what unknown fields seem to be misspellings of


# --- what is to be prepared ----------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``step``: what is done, one of ``steps.STEPS``. ``body`` as it came (a protobuf message for
    gRPC's jobs). ``engine``: the loaded model."""

    step: str
    body: bytes
    limits: Limits
    engine: Ready
    request_id: str = ""
    arrival_time: float = 0.0

    @property
    def size(self) -> int:
        """Bytes that there is work on."""
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
    """``stored``: what it refers to has been looked up. ``previous``: what its
    ``previous_response_id`` names. ``referred``: stored responses by id, for references to their
    items. ``response_id``: the answer's own. ``compacts``: whatever it says, a summary is asked
    for. ``remembered``: its items are kept even if it is not stored. ``created``: Unix time, for a
    WebSocket message that only says what the next one continues."""

    owner: str
    response_id: str
    compacts: bool = False
    remembered: bool = False
    stored: bool = False
    previous: History | None = None
    referred: dict[str, History] = {}
    created: int = 0

    @property
    def size(self) -> int:
        before = 0 if self.previous is None else self.previous.size
        return len(self.body) + before + sum(each.size for each in self.referred.values())


class ItemsJob(Job, frozen=True, kw_only=True):
    """A page of the items that a stored response was asked with; ``body`` is empty."""

    stored: History
    limit: int
    newest_first: bool
    after: str | None = None

    @property
    def size(self) -> int:
        return self.stored.size


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The form that an output must have, still to be made a grammar. ``request``: a
    ConstraintRequest as JSON. ``gbnf``: a grammar to be put into Lark's notation first, of the
    field ``gbnf_param``. ``plain``: the output is text, whatever the model's format."""

    request: bytes
    plain: bool = False
    gbnf: str | None = None
    gbnf_param: str = ""


class FormJob(Job, frozen=True, kw_only=True):
    """The grammar of ``asked``; ``body`` is empty. ``lark``: its GBNF grammar in Lark's notation;
    ``exact``: as in ``build_constraint``; ``eased``: also with less asked of the answer;
    ``parts``: of each tool alone, too."""

    asked: Asked
    lark: str | None = None
    exact: bool = True
    eased: bool = False
    parts: bool = False

    @property
    def size(self) -> int:
        return len(self.asked.request)


AnyJob = Job | ResponsesJob | ItemsJob | FormJob


# --- what comes of it ----------------------------------------------------------------------------


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """``noted``: as it was when the request was read."""

    noted: Noted


class PreparedGeneration(Prepared, frozen=True, kw_only=True):
    """``asked`` None: the output's form is free."""

    generation: GenerationRequest
    asked: Asked | None = None


class PreparedChat(PreparedGeneration, frozen=True, kw_only=True):
    request: ChatRequest


class PreparedCompletion(PreparedGeneration, frozen=True, kw_only=True):
    """``texts``: those of the prompts that are to be echoed."""

    request: CompletionRequest
    texts: list[str]


class PreparedMessages(PreparedGeneration, frozen=True, kw_only=True):
    request: MessagesRequest
    speaks_of_caching: bool


class Needs(Prepared, frozen=True, kw_only=True, tag=True):
    """A request that refers to stored responses: ``previous`` by ``previous_response_id``, those
    in ``referred`` by references to their items."""

    request: ResponsesRequest
    previous: str | None
    referred: list[str]


class PreparedResponse(PreparedGeneration, frozen=True, kw_only=True, tag=True):
    """``items``: the request's own, as they are listed and stored; ``context``: those before them;
    ``said``: what of both the user said, where a conversation is compacted; all are JSON.
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
        """Bytes of JSON in it, which are kept until the answer is there."""
        parts = (self.items, self.context, self.said, *msgspec.structs.astuple(self.echoed))
        return sum(map(len, parts))


class WarmedUp(Prepared, frozen=True, kw_only=True, tag=True):
    """``history``: the whole conversation; ``events``: what the client is told, as SSE."""

    history: History
    events: bytes


class PreparedInputs(Prepared, frozen=True, kw_only=True):
    """Texts or pairs of texts to be put into vectors. ``num_firsts``: of scores by cosine, how many
    inputs come before those they are compared with."""

    inputs: list[Input]
    num_firsts: int = 0


class PreparedEmbeddings(PreparedInputs, frozen=True, kw_only=True):
    request: EmbeddingRequest


class PreparedRerank(PreparedInputs, frozen=True, kw_only=True):
    request: RerankRequest


class PreparedScore(PreparedInputs, frozen=True, kw_only=True):
    request: ScoreRequest


class Answered(Prepared, frozen=True, kw_only=True, tag=True):
    """The whole answer's body."""

    body: bytes


class PartForm(msgspec.Struct, frozen=True):
    param: str
    constraint: Constraint


class EasedForm(msgspec.Struct, frozen=True):
    """``left_out``: paths of what is asked and not enforced."""

    constraint: Constraint
    left_out: list[str]


class Form(Prepared, frozen=True, kw_only=True):
    """``constraint``: of all that is asked; ``answer``: of the answer's form alone; ``freed``:
    fields whose grammar is not enforced; ``left_out``: paths of what else is not; ``eased``: the
    same with ever less asked of the answer. ``parts``: of each tool's alone. ``loose``: whether
    there are tools that are not strict."""

    constraint: Constraint | None = None
    answer: PartForm | None = None
    freed: list[str] = []
    left_out: list[str] = []
    eased: list[EasedForm] = []
    parts: list[PartForm] = []
    loose: bool = False


# --- on the wire ---------------------------------------------------------------------------------


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """First of all frames: what must not stand among a process's arguments, or is too long for
    that. ``template_writes``: see ``Checkpoint``."""

    signing_key: str
    sealing_key: bytes
    template_writes: str | None = None


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """What begins now, for whoever ends this process because it takes too long."""

    name: str
    param: str | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """``result`` is what the job's step returned, without token ids: those of each prompt are
    ``token_ids``, little-endian int32."""

    result: msgspec.Raw
    token_ids: list[bytes] = []


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """``kind``: the name of a QuireError. ``trace``: of what nobody expected, for the log."""

    kind: str
    message: str
    param: str | None
    noted: Noted
    trace: str = ""
    retry_after: int | None = None
    is_last: bool = False  # the process cannot go on


Reply = Stage | Done | Failed


def failure(error: QuireError, noted: Noted) -> Failed:
    return Failed(
        type(error).__name__, error.message, error.param, noted, retry_after=error.retry_after
    )


def error_of(failed: Failed) -> QuireError:
    """The error that the step raised."""
    kind: Any = getattr(errors, failed.kind, InternalError)
    made: QuireError = kind(failed.message, param=failed.param, retry_after=failed.retry_after)
    return made
