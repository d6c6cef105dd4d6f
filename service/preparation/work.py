"""One job with all that it is done with, and the two halves of doing it: what a ``Step`` is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from service.checkpoint.checkpoint import Checkpoint
from service.preparation.jobs import Job, Limits, Noted, Prepared
from service.preparation.prompts import Announce
from service.wire.decode import Ignored
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal

_Made_co = TypeVar("_Made_co", bound=Prepared, covariant=True)


@dataclass(frozen=True, slots=True)
class Model:
    """What requests are prepared with."""

    checkpoint: Checkpoint
    signer: Signer
    seal: ReasoningSeal


def no_stage(name: str, param: str | None) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job, what is noted of its request, and what it is done with."""

    job: Job
    noted: Noted
    model: Model
    stage: Announce = no_stage

    @property
    def checkpoint(self) -> Checkpoint:
        return self.model.checkpoint

    @property
    def context(self) -> int:
        return self.job.engine.max_model_len


@dataclass(frozen=True, slots=True)
class Step(Generic[_Made_co]):
    """How the jobs of one ``name`` are done. ``decode`` reads a body, None where there is none;
    ``finish`` makes everything else of it. ``result``: its type, to read it from a preparation
    process. ``job``: the type of the job, where it has fields of its own."""

    name: str
    decode: Callable[[bytes, Limits, Ignored], Any] | None
    finish: Callable[[Any, Work], _Made_co]
    result: Any
    job: type[Job] = Job
    uses_template: bool = False

    def read(self, body: bytes, limits: Limits, noted: Noted) -> Any:
        """The request, after noting what its record says of it. Raises QuireError."""
        if self.decode is None:
            return None
        request = self.decode(body, limits, ignored_of(limits, noted))
        noted.stream = bool(getattr(request, "stream", False))
        noted.client_request_id = getattr(request, "request_id", None)
        noted.model = limits.model_name(request.model)
        return request

    def perform(self, work: Work) -> _Made_co:
        """Both halves. Raises QuireError."""
        return self.finish(self.read(work.job.body, work.job.limits, work.noted), work)


def ignored_of(limits: Limits, noted: Noted) -> Ignored:
    """Notes what of a request does nothing here, as it is found."""
    return Ignored(refuse=limits.refuse_unknown, names=noted.ignored, meant=noted.meant)
