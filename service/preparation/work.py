"""A job with everything needed to do it, and the two halves of doing it, which make up a
``Step``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from service.checkpoint.checkpoint import Checkpoint
from service.errors import ModelNotFoundError, QuireError
from service.preparation.jobs import Job, Limits, Noted, Prepared
from service.wire.decode import Ignored
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal

_Made_co = TypeVar("_Made_co", bound=Prepared, covariant=True)


@dataclass(frozen=True, slots=True)
class Model:
    """What is needed to prepare requests."""

    checkpoint: Checkpoint
    signer: Signer
    seal: ReasoningSeal


Announce = Callable[[str, str | None], None]
"""Called at the start of a stage with its name and the request field that it concerns."""


def no_stage(name: str, param: str | None) -> None:
    """Ignore the stage."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job, the facts noted about its request, and what is needed to do it."""

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
    """How to do the jobs of one ``name``. ``decode`` parses the body, None if there is none;
    ``finish`` does everything else. ``result``: its type, for decoding it from a preparation
    process. ``job``: the type of the job, if it has additional fields. ``uses_template`` and
    ``uses_tokenizer``: those of the model, which may be costly."""

    name: str
    decode: Callable[[bytes, Limits, Ignored], Any] | None
    finish: Callable[[Any, Work], _Made_co]
    result: Any
    job: type[Job] = Job
    uses_template: bool = False
    uses_tokenizer: bool = True

    def read(self, body: bytes, limits: Limits, noted: Noted) -> Any:
        """Return the decoded body, after noting facts for the request's record. Raises
        QuireError."""
        if self.decode is None:
            return None
        ignored = ignored_of(limits, noted)
        try:
            read = self.decode(body, limits, ignored)
        except QuireError:
            if ignored.request is not None:
                with contextlib.suppress(ModelNotFoundError):
                    _note_request(noted, ignored.request, limits)
            elif ignored.named_model in limits.names:
                noted.model = ignored.named_model
            raise
        _note_request(noted, ignored.request, limits)
        return read

    def perform(self, work: Work) -> _Made_co:
        """Run both halves. Raises QuireError."""
        return self.finish(self.read(work.job.body, work.job.limits, work.noted), work)


def _note_request(noted: Noted, request: Any, limits: Limits) -> None:
    """Raises ModelNotFoundError."""
    noted.stream = bool(getattr(request, "stream", False))
    noted.client_request_id = getattr(request, "request_id", None)
    noted.model = limits.model_name(request.model)


def ignored_of(limits: Limits, noted: Noted) -> Ignored:
    """Return a collector that notes the request's ignored fields as they are found."""
    return Ignored(refuse=limits.refuse_unknown, names=noted.ignored, meant=noted.meant)
