"""The objects that routes use: one instance per worker, created by ``service.app``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from engine.messages import Ready
from service.admission.admission import Admission
from service.admission.drain import Drain
from service.checkpoint.checkpoint import Checkpoint
from service.engine.engines import Engines
from service.engine.silence import (
    EngineFigures,
    EngineStatus,
    engine_figures,
    engine_status,
    engine_statuses,
)
from service.generation.generator import Generator
from service.generation.run import RunRegistry
from service.identity import identity
from service.ids import Ids
from service.overview.overviews import Overviews
from service.peers.peers import Peers
from service.preparation.jobs import Limits
from service.preparation.preparation import Preparation
from service.records.load_trace import LoadTrace
from service.records.records import Records
from service.serving.exchange import OpenExchanges
from service.serving.key_sources import KeySources
from service.serving.keys import KeyRing
from service.serving.metering import Metering
from service.serving.running import RunningCalls
from service.settings import ServiceSettings
from service.store.archive import RequestArchive
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
    link: Engines
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
    overviews: Overviews
    records: Records
    keys: KeyRing
    key_sources: KeySources
    metering: Metering
    ids: Ids = field(default_factory=Ids)
    peers: Peers = field(default_factory=Peers)
    running: RunningCalls = field(default_factory=RunningCalls)
    exchanges: OpenExchanges = field(default_factory=OpenExchanges)
    archive: RequestArchive | None = None
    load_trace: LoadTrace = field(default_factory=LoadTrace)
    started: int = field(default_factory=lambda: int(time.time()))

    @property
    def engine(self) -> Ready:
        """The loaded model. Raises LoadingError while there is none."""
        ready = self.link.state.ready
        if ready is None:
            raise self.admission.still_loading()
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

    def engine_status(self) -> EngineStatus:
        """Whether the engine is well; ``/health`` and ``quire_engine_ready`` are made of it."""
        return engine_status(self.link, self.supervision, self.settings.engine_silence_timeout)

    def engine_figures(self) -> EngineFigures:
        """What the metrics show of the engine at this moment."""
        timeout = self.settings.engine_silence_timeout
        return engine_figures(self.link, engine_statuses(self.link, self.supervision, timeout))

    @property
    def server(self) -> str:
        """This server's name, which no other replica has."""
        return identity(self.settings.port)

    def health(self) -> str:
        """Return ``draining``, ``downloading`` while the model's files are fetched, or the engine's
        status."""
        if self.drain.draining:
            return "draining"
        status = self.engine_status()
        is_downloading = status is EngineStatus.LOADING and self.supervision.download is not None
        return "downloading" if is_downloading else status.value

    def problem(self, status: EngineStatus) -> str | None:
        """What is wrong with an engine that is failing or silent, for humans."""
        match status:
            case EngineStatus.FAILING:
                return self.supervision.problem
            case EngineStatus.SILENT:
                return f"no message from the engine for {self.link.silence:.0f} s"
        return None
