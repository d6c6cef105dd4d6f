"""The engine as a process: a socket, a model and the loop between them.

The socket is bound before the model loads, so that clients can be informed of the progress. The
main thread loads the model, then loops: process arrived messages, run a step, send the outputs.
When idle it sleeps until something arrives, and sends a heartbeat once a second. So an engine that
is well sends something at least every two seconds (during a long step, ``engine.loop.long_steps``).
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from engine.architecture.errors import ModelError
from engine.beats import EngineBeats, Page, write_failure
from engine.config import DeviceError, EngineConfig, OnProgress
from engine.constraint.constraints import Constraints
from engine.constraint.grammar import Tokens
from engine.gguf.names import gguf_of
from engine.inspected import Inspect, WatchSteps
from engine.lifetime import watch_parent
from engine.loop.connections import (
    Closed,
    ConnectionEvent,
    ConnectionServer,
    Failed,
    Malformed,
    Opened,
    Received,
)
from engine.loop.core import EngineCore
from engine.loop.errors import EngineDeadError, ProtocolError
from engine.loop.inspections import InspectionQueue
from engine.loop.long_steps import LongSteps
from engine.messages import (
    Abort,
    Fatal,
    Heartbeat,
    Loading,
    Ready,
    StepOutputs,
    Submit,
    Working,
    encode_frame,
)
from engine.prefix_table import PrefixTableWriter, prefix_table_path
from engine.schedule.scheduler import Scheduler
from engine.step.grammar_state import GrammarError
from engine.step.runner import Runner
from observability.stacks import write_stacks_and_exit_in

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
_NEVER = 2**31 - 1
# Time to finish a step and shut down once the parent is gone, even if the step hangs.
_ORPHAN_GRACE_SECONDS = 10.0
# For closing what is half loaded, such as the other ranks.
_CLEANUP_SECONDS = 5.0

LoadModel = Callable[[EngineConfig, OnProgress], Runner]


@dataclass(frozen=True, slots=True)
class _Stop:
    reason: str


@dataclass(frozen=True, slots=True)
class _Woken:
    """The grammar that a sequence was waiting for is ready."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """The model can no longer run, as noticed outside a step."""

    error: str


_Event = ConnectionEvent | _Stop | _Woken | _Broken


def leave_garbage_to_idle_moments() -> None:
    """Exclude all current objects from garbage collection, and disable automatic full collections,
    which would traverse every waiting sequence."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)


class EngineProcess:
    """One engine on one socket. Call ``run`` once, on the main thread."""

    def __init__(
        self,
        config: EngineConfig,
        socket_path: Path,
        load_model: LoadModel,
        beats: Page | None = None,
    ) -> None:
        self._config = config
        self._socket_path = socket_path
        self._has_siblings = config.data_parallel_size > 1
        self._beats = EngineBeats(beats or Page())
        self._is_supervised = beats is not None
        self._load_model = load_model
        # SimpleQueue.put is reentrant, so a signal handler may call it.
        self._inbox: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._is_loading = True
        self._last_sent = self._load_began = time.monotonic()
        self._server = ConnectionServer(socket_path, self._inbox.put)
        self._long_steps = LongSteps(self._report_step, lambda: self._beats.allowed_seconds)
        self._connections: set[int] = set()

    def run(self, *, exit_with_parent: bool = True, parent: int | None = None) -> int:
        """Serve until SIGTERM, SIGINT or the parent's end (0), or until the engine dies (1)."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        if exit_with_parent:
            watch_parent(self._on_orphaned, parent)
        try:
            core = self._load()
            self._loop(core)
        except SystemExit as stop:  # a signal arrived while the model was loading
            logger.info("stopped while loading")
            return int(stop.code or 0)
        except (ModelError, DeviceError) as error:  # the message is sufficient without a traceback
            logger.error("the engine cannot start: %s", error)
            if self._is_supervised:
                write_failure(self._socket_path, error)
            return self._end(str(error))
        except Exception as error:
            logger.exception("the engine failed")
            return self._end(f"{type(error).__name__}: {error}")
        finally:
            self._server.close()
        return 0

    def _end(self, error: str) -> int:
        self._server.announce(encode_frame(Fatal(error)))
        return 1

    def fail(self, error: str) -> None:
        """End with this error, as if a step had raised it. May be called from any thread."""
        self._inbox.put(_Broken(error))

    # --- stopping ------------------------------------------------------------------------------

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._is_loading:
            self._is_loading = False  # a second signal must not disturb the cleanup
            write_stacks_and_exit_in(_CLEANUP_SECONDS)
            raise SystemExit(0)
        self._inbox.put(_Stop(signal.Signals(number).name))

    def _on_orphaned(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        # The main thread may hang in a step, and no process is left to notice.
        timer = threading.Timer(_ORPHAN_GRACE_SECONDS, os._exit, args=(1,))
        timer.daemon = True
        timer.start()

    # --- loading -------------------------------------------------------------------------------

    def _publish_prefixes(self, core: EngineCore) -> None:
        """Publish what the prefix cache has, for API workers that choose among several engines."""
        scheduler, path = core.scheduler, prefix_table_path(self._socket_path)
        path.unlink(missing_ok=True)
        if not isinstance(scheduler, Scheduler) or not scheduler.prefix.enabled:
            return
        try:
            table = PrefixTableWriter(path, scheduler.pool.num_blocks, scheduler.block_size)
        except OSError as error:
            logger.error("no prefix table, so requests are routed by load alone: %s", error)
        else:
            scheduler.prefix.publish(table)

    def begin_to_load(self) -> None:
        """Start the load time again: what ``load_model`` has done so far was waiting for others,
        and says nothing of how long the next engine will take."""
        self._load_began = time.monotonic()

    def _load(self) -> EngineCore:
        self.begin_to_load()
        runner = self._load_model(self._config, self._on_progress)
        sizes = self._config.sizes(runner.info.default_sizes)
        core = EngineCore(
            runner,
            max_num_seqs=sizes.max_num_seqs,
            max_num_batched_tokens=sizes.max_num_batched_tokens,
            enable_prefix_caching=self._config.enable_prefix_caching,
            max_decode_slowdown=self._config.max_decode_slowdown,
            constraints=self._load_constraints(runner),
            reports_load=self._has_siblings,
            on_admitted=lambda connection, outputs: self._server.send(
                connection, encode_frame(outputs)
            ),
            on_planned=self._beats.planned,
        )
        if self._has_siblings:
            self._publish_prefixes(core)
        if runner.info.device.startswith("cuda"):  # elsewhere it takes long and says little
            core.flights.calibrate(sizes.max_num_batched_tokens)
        leave_garbage_to_idle_moments()
        self._is_loading = False
        load_seconds = time.monotonic() - self._load_began
        info = runner.info
        ready = Ready(
            model=info.model,
            architecture=info.architecture,
            dtype=info.dtype,
            device=info.device,
            num_parameters=info.num_parameters,
            vocab_size=info.vocab_size,
            max_model_len=core.scheduler.max_sequence_len,
            max_num_seqs=core.scheduler.max_num_seqs,
            max_num_batched_tokens=sizes.max_num_batched_tokens,
            block_size=info.block_size,
            num_kv_blocks=info.num_kv_blocks,
            kv_cache_bytes=info.kv_cache_bytes,
            load_seconds=load_seconds,
            eos_token_ids=tuple(sorted(info.eos_token_ids)),
            prefix_caching=self._config.enable_prefix_caching
            and info.shares_prefixes
            and info.num_kv_blocks > 0,
            generates=info.generates,
            embedding_size=info.embedding_size,
            num_scores=info.num_scores,
            matryoshka_dimensions=info.matryoshka_dimensions,
            tensor_parallel_size=info.tensor_parallel_size,
            implementation=info.implementation,
            quantization=info.quantization,
            unserved_inputs=info.unserved_inputs,
            identity=secrets.randbelow(2**53 - 1) + 1,
        )
        self._server.announce(encode_frame(ready))
        self._beats.ready(measures_steps=not info.device.startswith("cuda"))
        devices = info.tensor_parallel_size
        where = info.device if devices == 1 else f"{devices} ranks of one model"
        model = gguf_of(Path(info.model)) or info.model
        logger.info("%s is ready on %s after %.2f s", model, where, load_seconds)
        return core

    def _load_constraints(self, runner: Runner) -> Constraints | None:
        """Return None if output cannot be constrained; only constrained sequences are then
        rejected."""
        info = runner.info
        if not info.generates:
            return None
        try:
            tokens = Tokens(
                Path(info.tokenizer_dir),
                vocab_size=info.vocab_size,
                eos_token_ids=info.eos_token_ids,
            )
        except (GrammarError, OSError, ValueError) as error:
            logger.info("output cannot be constrained: %s", error)
            return None
        return Constraints(tokens, wake=lambda: self._inbox.put(_Woken()))

    def _on_progress(self, phase: str, done: int, total: int) -> None:
        self._server.announce(encode_frame(Loading(phase, done, total)))

    # --- the loop ------------------------------------------------------------------------------

    def _report_step(self, seconds: float) -> None:
        """Called from another thread."""
        self._server.broadcast(encode_frame(Working(seconds)))

    def _loop(self, core: EngineCore) -> None:
        self._last_sent = time.monotonic()
        self._long_steps.start()
        inspections = InspectionQueue(core.scheduler, time.monotonic)
        while True:
            for event in self._arrivals(wait=not (core.has_work or inspections.has_work)):
                if isinstance(event, _Stop):
                    logger.info("stopping: %s", event.reason)
                    core.abort_all()
                    self._send(core, core.flush())
                    return
                if isinstance(event, _Broken):
                    raise EngineDeadError(event.error)
                match event:
                    case Received(connection, Inspect() as inspect):
                        inspections.ask(connection, inspect)
                    case _ if not isinstance(event, _Woken):
                        self._take(core, event)
            if core.has_work:
                self._long_steps.step_begins()
                self._send(core, core.step())
                self._long_steps.step_ended()
            if inspections.has_work:
                for connection, answer in inspections.advance():
                    self._server.send(connection, encode_frame(answer))
            if not core.has_work and time.monotonic() - self._last_sent >= HEARTBEAT_SECONDS:
                gc.collect()
                self._send(core, dict.fromkeys(self._connections, Heartbeat(core.stats())))
            self._beats.turned(core.progress, is_idle=not core.has_work)

    def _arrivals(self, *, wait: bool) -> Iterator[_Event]:
        """Yield everything that has arrived; with ``wait``, sleep until something does or a
        heartbeat is due."""
        try:
            if wait:
                due = self._last_sent + HEARTBEAT_SECONDS - time.monotonic()
                yield self._inbox.get(timeout=max(due, 0.0))
            # Not "until empty": a flood of messages must not keep steps from running.
            for _ in range(self._inbox.qsize()):
                yield self._inbox.get_nowait()
        except queue.Empty:
            return

    def _take(self, core: EngineCore, event: ConnectionEvent) -> None:
        match event:
            case Opened(connection):
                self._connections.add(connection)
                core.connect(connection)
                return
            case Closed(connection):
                self._connections.discard(connection)
                core.disconnect(connection)
                return
            case Failed(error):
                raise RuntimeError(f"the socket failed: {error}")
        if event.connection not in self._connections:
            return
        try:
            match event:
                case Received(connection, Abort(handles)):
                    core.abort(connection, handles)
                case Received(connection, WatchSteps(every_step)):
                    core.watch(connection, every_step=every_step)
                case Received(connection, Submit() as submit):
                    core.add(connection, submit)
                case Malformed(connection, handles, error):
                    for handle in handles:
                        core.reject(connection, handle, error)
        except ProtocolError as error:
            self._drop(core, event.connection, str(error))

    def _drop(self, core: EngineCore, connection: int, reason: str) -> None:
        self._server.cut(connection, reason)
        self._connections.discard(connection)
        core.disconnect(connection)

    def _send(self, core: EngineCore, messages: Mapping[int, StepOutputs | Heartbeat]) -> None:
        self._last_sent = time.monotonic()
        frames: dict[int, bytes] = {}  # connections without outputs share a message
        for connection, message in messages.items():
            frame = frames.get(id(message))
            if frame is None:
                try:
                    frame = frames[id(message)] = encode_frame(message)
                except ValueError as error:
                    self._drop(core, connection, str(error))
                    continue
            self._server.send(connection, frame)
