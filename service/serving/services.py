"""The objects that routes use: one instance per worker, created by ``service.app``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from engine.messages import Ready
from service.admission.admission import Admission
from service.admission.drain import Drain
from service.checkpoint.checkpoint import Checkpoint
from service.engine.link import EngineLink, LinkPhase
from service.errors import LoadingError
from service.generation.generator import Generator
from service.generation.run import RunRegistry
from service.preparation.jobs import Limits
from service.preparation.preparation import Preparation
from service.settings import ServiceSettings
from service.store.store import ResponseStore
from service.supervision.page import Supervision
from service.telemetry.observer import Telemetry
from service.telemetry.scrape import ScrapePages
from service.tenants.upload_room import UploadRoom
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal


@dataclass(frozen=True, slots=True)
class Services:
    settings: ServiceSettings
    limits: Limits
    checkpoint: Checkpoint
    link: EngineLink
    generator: Generator
    admission: Admission
    drain: Drain
    supervision: Supervision
    telemetry: Telemetry
    preparation: Preparation
    signer: Signer
    store: ResponseStore
    runs: RunRegistry
    seal: ReasoningSeal
    metrics_pages: ScrapePages
    upload_room: UploadRoom
    answer_room: UploadRoom
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def engine(self) -> Ready:
        """The loaded model. Raises LoadingError while there is none."""
        ready = self.link.state.ready
        if ready is None:
            raise LoadingError(f"The model is not ready yet ({self.link.state.detail}); retry.")
        return ready

    @property
    def tasks(self) -> tuple[str, ...] | None:
        """The tasks that the loaded model supports, of generate, embed and score; None while none
        is loaded."""
        ready = self.link.state.ready
        if ready is None:
            return None
        does = {
            "generate": ready.generates,
            "embed": ready.embedding_size > 0,
            "score": ready.embedding_size + ready.num_scores > 0,
        }
        return tuple(task for task, is_done in does.items() if is_done)

    def health(self) -> str:
        """Return ``ok``, ``loading``, ``draining``, ``lost`` (the engine is gone), ``failing`` (it
        dies repeatedly) or ``silent`` (no message from it for too long)."""
        if self.drain.draining:
            return "draining"
        phase = self.link.state.phase
        if phase is not LinkPhase.READY and self.supervision.problem is not None:
            return "failing"
        match phase:
            case LinkPhase.CONNECTING | LinkPhase.LOADING:
                return "loading"
            case LinkPhase.LOST:
                return "lost"
        silent = self.link.silence > self.settings.engine_silence_timeout
        return "silent" if silent else "ok"
