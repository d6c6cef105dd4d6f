"""``python -m service.worker``: one API worker, the Litestar app served by granian in this process,
and with ``--grpc-port`` also the gRPC server on the same event loop."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import uvloop
from msgspec import Meta

from engine.beats import Page, Sign
from engine.faults.page import FaultPage
from engine.lifetime import watch_parent
from engine.options import (
    OptionError,
    add_arguments,
    environment_defaults,
    forget_secrets,
    from_namespace,
)
from observability import logging
from observability.combined import NOTHING_SHARED, Shared
from observability.stacks import write_stacks_on_sigusr1
from observability.tracing import make_tracer, wants_newest_names
from service import garbage
from service.admin_app import create_admin_app
from service.admission.drain import Drain
from service.app import create_app
from service.engine.engines import Engines
from service.grpc.available import problem as grpc_problem
from service.http.admin.application import AdminApp
from service.http.admin.server import AdminServer
from service.http.connections import Connections
from service.http.peer_server import peer_server
from service.http.server import HttpServer
from service.identity import identity
from service.ids import Ids
from service.overview.ring import Ring
from service.peers.peers import Peers
from service.records.records import Records
from service.serving.metering import Metering
from service.serving.services import Services
from service.settings import ServiceSettings
from service.start_failure import report_failure
from service.store.archive import ArchiveSources, RequestArchive
from service.supervision.listener import (
    ServerAddress,
    inherited_socket,
    open_admin_socket,
    open_listening_socket,
)
from service.supervision.page import Supervision, SupervisorPage
from service.supervision.runtime_directory import engine_sockets, read_signing_key
from service.telemetry.cut_requests import end_cut_requests
from service.telemetry.observer import RequestWatcher
from service.telemetry.requests import Telemetry
from service.version import VERSION

if TYPE_CHECKING:
    from service.grpc.server import GrpcServer
    from service.store.store import ResponseStore

# After the drain, for responses still being sent and connections still open.
CLOSE_SECONDS = 5.0
BEAT_SECONDS = 0.25
_BEATS_TO_PUBLISH = 4

_log = logging.get_logger()


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor passes to a worker besides the settings."""

    socket: Annotated[str, Meta(description="The engine's unix socket.")]
    engines: Annotated[
        int,
        Meta(ge=1, le=64, description="Number of engines; of several, the socket's name has one."),
    ] = 1
    worker_index: Annotated[
        int, Meta(ge=0, description="Which of the server's workers this is.")
    ] = 0
    peer_dir: (
        Annotated[str, Meta(description="Directory of the sockets between workers.")] | None
    ) = None
    model_dir: Annotated[str, Meta(description="Model directory: tokenizer and chat template.")]
    listen_fd: (
        Annotated[int, Meta(ge=3, description="Descriptor of a listening socket.")] | None
    ) = None
    beats: (
        Annotated[str, Meta(description="File to write heartbeats to (engine.beats).")] | None
    ) = None
    supervisor_page: (
        Annotated[str, Meta(description="File with the supervisor's heartbeats (engine.beats).")]
        | None
    ) = None
    admin_fd: (
        Annotated[int, Meta(ge=3, description="Descriptor of the admin API's listening socket.")]
        | None
    ) = None
    ledger_fd: (
        Annotated[
            int,
            Meta(ge=3, description="Descriptor of the metrics' memory (observability.ledger)."),
        ]
        | None
    ) = None
    ledger_fds: Annotated[
        tuple[int, ...], Meta(description="Descriptors of all workers' metrics, by index.")
    ] = ()
    engines_fd: (
        Annotated[
            int, Meta(ge=3, description="Descriptor of the engines' totals (service.telemetry).")
        ]
        | None
    ) = None
    history_fd: (
        Annotated[int, Meta(ge=3, description="Descriptor of the history (service.overview).")]
        | None
    ) = None
    limits_fd: (
        Annotated[int, Meta(ge=3, description="Descriptor of the limits (service.tenants).")] | None
    ) = None
    store_fd: (
        Annotated[int, Meta(ge=3, description="Descriptor of the store's memory (service.store).")]
        | None
    ) = None
    faults: (
        Annotated[str, Meta(description="File with faults to inject (engine.faults).")] | None
    ) = None
    exit_with_parent: Annotated[
        bool, Meta(description="Stop when the process that started this one ends.")
    ] = True
    parent_pid: Annotated[int, Meta(ge=1, description="Process id of the parent.")] | None = None

    @property
    def engine_sockets(self) -> list[Path]:
        """The sockets of all engines, by index."""
        return engine_sockets(Path(self.socket), self.engines)


def _allow_many_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _report(task: asyncio.Task[None]) -> None:
    """Log an error if the task ends before it is cancelled, because that is a bug."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("no longer closing idle connections", exc_info=error)


async def _open(store: ResponseStore, archive: RequestArchive | None) -> None:
    """Open the store once the worker accepts connections: its libraries take as long to load as
    everything else."""
    with garbage.while_loading():
        store.open()
        if archive is not None:
            archive.open()
        await store.attempted()


async def _beat(page: Page, services: Services, telemetry: Telemetry) -> None:
    """Report that the event loop is running, until cancelled, and notice when this worker is to
    lead. What other workers show of this one is set once a second."""
    page[Sign.READY_AT] = time.monotonic()
    drain, supervision, link = services.drain, services.supervision, services.link
    leads = False
    for turn in itertools.count():
        if not leads and supervision.leads:
            leads = True
            link.watch(every_step=True)
            telemetry.lead()
        if supervision.workers > 1 and turn % _BEATS_TO_PUBLISH == 0:
            telemetry.publish()
        page[Sign.BEATS] += 1.0
        page[Sign.PROGRESS] = drain.answered
        await asyncio.sleep(BEAT_SECONDS)


def _page(path: str | None) -> Page | None:
    return None if path is None else Page(Path(path))


def _supervision(settings: ServiceSettings, options: WorkerOptions) -> Supervision:
    page = None
    if options.supervisor_page is not None:
        path = Path(options.supervisor_page)
        page = SupervisorPage(path, workers=settings.api_workers, engines=options.engines)
    directory = options.peer_dir
    key = None if directory is None else read_signing_key(Path(directory))
    return Supervision(page, options.worker_index, key, options.store_fd)


def _ring(descriptor: int | None, workers: int) -> Ring:
    try:
        return Ring(descriptor, workers=workers)
    except OSError as error:
        _log.error("the history will not survive this worker", error=str(error))
        return Ring()


class Worker:
    """One app on one socket. Call ``run`` once."""

    def __init__(
        self,
        settings: ServiceSettings,
        options: WorkerOptions,
        telemetry: Telemetry,
        records: Records,
    ) -> None:
        self._records = records
        self._settings = settings
        self._options = options
        self._telemetry = telemetry
        self._drain: Drain | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> int:
        supervision = _supervision(self._settings, self._options)
        first, *others = self._options.engine_sockets
        app = create_app(
            self._settings,
            model_dir=Path(self._options.model_dir),
            socket_path=first,
            other_sockets=others,
            telemetry=self._telemetry,
            supervision=supervision,
            records=self._records,
            ring=_ring(self._options.history_fd, self._settings.api_workers),
            sources=ArchiveSources(self._telemetry.ended_requests, self._telemetry.usage),
            metering=Metering(self._options.limits_fd),
            peers=make_peers(self._settings, self._options, supervision),
        )
        services: Services = app.state.services
        services.link.watch(every_step=services.supervision.leads)
        faults = self._inject_faults(services)
        drain: Drain = app.state.drain
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        listener = self._listener()
        port = ServerAddress.of(listener).port
        connections: Connections = app.state.connections
        server = HttpServer(app, listener, max_connections=connections.most)
        admin_app = create_admin_app(app, faults) if self._settings.admin else None
        admin = self._admin(admin_app, port)
        peer = peer_server(app, admin_app, services)
        grpc_server = await self._start_grpc(services)
        await server.start()
        for one in (admin, peer):
            if one is not None:
                await one.start()
        garbage.collect_for_serving()
        store = asyncio.create_task(_open(services.store, services.archive), name="open-store")
        beats = _page(self._options.beats) or Page()
        beating = asyncio.create_task(_beat(beats, services, self._telemetry), name="beats")
        watch = asyncio.create_task(self._telemetry.watch_event_loop(), name="loop-lag")
        idle = asyncio.create_task(connections.watch(port), name="idle-connections")
        idle.add_done_callback(_report)
        self._telemetry.holds.start()
        _log.info("worker accepts", host=self._settings.host, port=self._settings.port)
        await self._stop.wait()
        await self._finish_requests(drain, services.link, grpc_server)
        for task in (store, watch, idle, beating):
            task.cancel()
        self._telemetry.holds.stop()
        await server.shut_down_app()
        if admin is not None:
            await admin.stop(CLOSE_SECONDS)
        all_servers = (server, peer, grpc_server)
        stopping = [one.stop(CLOSE_SECONDS) for one in all_servers if one is not None]
        if not all(await asyncio.gather(*stopping)):
            _log.warning("connections were cut", in_flight=drain.in_flight)
        return 0

    async def _start_grpc(self, services: Services) -> GrpcServer | None:
        settings = self._settings
        if settings.grpc_port is None:
            return None
        if missing := grpc_problem():
            raise RuntimeError(missing)
        # The C core writes to stderr in its own format, even messages that any client can cause.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from service.grpc.server import GrpcServer  # imported late: it takes memory and time

        server = GrpcServer(services)
        await server.start(settings.host, settings.grpc_port)
        return server

    async def _finish_requests(self, drain: Drain, link: Engines, rpc: GrpcServer | None) -> None:
        await drain.announce(self._settings.drain_delay, self._hurry)
        drain.begin()
        link.expect_no_restart()
        timeout = self._settings.drain_timeout
        if rpc is not None:
            rpc.send_away(timeout + CLOSE_SECONDS)
        _log.info("draining", in_flight=drain.in_flight, timeout_seconds=timeout)
        idle = asyncio.ensure_future(drain.wait_idle(timeout))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((idle, hurry), return_when=asyncio.FIRST_COMPLETED)
        for waiter in (idle, hurry):
            waiter.cancel()
        _log.info("drained", in_flight=drain.in_flight)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def _inject_faults(self, services: Services) -> FaultPage | None:
        """Return those that the admin API may inject; None: this server was started for none."""
        if self._options.faults is None:
            return None
        from service.injection.worker import inject_into_worker

        page = FaultPage(Path(self._options.faults))
        inject_into_worker(page, services.link, self._telemetry.tracer)
        return page

    def _admin(self, app: AdminApp | None, public_port: int) -> AdminServer | None:
        settings, descriptor = self._settings, self._options.admin_fd
        if app is None:
            return None
        if descriptor is not None:
            listener = inherited_socket(descriptor)
        else:
            listener = open_admin_socket(
                settings.admin_host, settings.admin_port, public_port=public_port
            )
        return AdminServer(app, listener)

    def _listener(self) -> socket.socket:
        if self._options.listen_fd is None:
            return open_listening_socket(self._settings.host, self._settings.port)
        return inherited_socket(self._options.listen_fd)


def make_peers(
    settings: ServiceSettings, options: WorkerOptions, supervision: Supervision
) -> Peers:
    directory = None if options.peer_dir is None else Path(options.peer_dir)
    ids = Ids(options.worker_index, settings.api_workers)
    if options.supervisor_page is None:
        return Peers(ids, directory)
    return Peers(ids, directory, supervision.running_workers, lead=lambda: supervision.lead)


def _parse(argv: list[str]) -> tuple[ServiceSettings, WorkerOptions]:
    parser = argparse.ArgumentParser(prog="python -m service.worker", description=__doc__)
    add_arguments(parser, WorkerOptions, "worker")
    add_arguments(parser, ServiceSettings)
    try:
        parser.set_defaults(**environment_defaults(ServiceSettings, os.environ))
        forget_secrets(ServiceSettings, os.environ)
        namespace = parser.parse_args(argv)
        settings = from_namespace(ServiceSettings, namespace)
        options = from_namespace(WorkerOptions, namespace)
    except OptionError as error:
        parser.error(str(error))
    return settings, options


def make_telemetry(
    settings: ServiceSettings,
    options: WorkerOptions,
    writer: logging.LineWriter,
    records: RequestWatcher | None = None,
) -> Telemetry:
    """Return telemetry that counts in the ledger, or for this worker alone if it has none or
    cannot use it."""
    supervision = _supervision(settings, options)
    shared = Shared(
        ledgers=[other for other in options.ledger_fds if other != options.ledger_fd],
        engines=options.engines,
        engine_ledger=options.engines_fd,
        pids=supervision.running_workers if supervision.workers > 1 else None,
    )

    def telemetry(ledger: int | None) -> Telemetry:
        return Telemetry(
            settings.names(Path(options.model_dir)),
            version=VERSION,
            server=identity(settings.port),
            tracer=make_tracer(os.environ, version=VERSION),
            keys=settings.counted_keys,
            log_clients=settings.log_clients,
            dropped_log_lines=lambda: writer.dropped,
            ledger_descriptor=ledger,
            serves_grpc=settings.grpc_port is not None,
            newest_names=wants_newest_names(os.environ),
            metrics_aliases=settings.metrics_aliases,
            records=records,
            keeps_requests=settings.store_requests and settings.store_url != "none",
            keys_change=settings.keys_change,
            shared=shared if ledger is not None else NOTHING_SHARED,
            leads=supervision.leads,
        )

    try:
        return telemetry(options.ledger_fd)
    except OSError as error:
        _log.error("metrics will not survive this worker", error=str(error))
        return telemetry(None)


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    settings, options = _parse(argv)
    writer = logging.configure(
        log_format=settings.log_format, level=settings.log_level, process="api"
    )
    if options.exit_with_parent:
        watch_parent(lambda: os._exit(1), options.parent_pid)
    _allow_many_connections()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a pool that gets no threads fails for good
    records = Records(most=settings.keep_requests)
    telemetry = make_telemetry(settings, options, writer, records)
    records.on_ended(telemetry.ended_requests.put)
    end_cut_requests(telemetry)

    async def serve() -> int:
        return await Worker(settings, options, telemetry, records).run()

    try:
        return uvloop.run(serve())
    except Exception as error:
        return report_failure(error, options.beats)
    finally:
        telemetry.close()
        writer.close()


if __name__ == "__main__":
    # The interpreter's normal shutdown would stop a thread that is still loading the store's
    # libraries in the middle of their C code.
    os._exit(main(sys.argv[1:]))
