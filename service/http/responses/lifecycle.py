"""How a response is stored and delivered, decided once when its request has been read."""

from __future__ import annotations

import asyncio
import enum
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from service.errors import NotStoredError, StoreUnavailableError
from service.generation.run import Run, RunRegistry
from service.preparation.jobs import History
from service.store.record import StoredResponse
from service.store.store import ResponseStore
from service.wire.responses.answer import ResponseAnswer, ResponseEnding
from service.wire.responses.request import ResponsesRequest

_RETRY_SECONDS = 0.5


class Storage(enum.Enum):
    NONE = "none"
    IF_POSSIBLE = "if possible"  # if an answer cannot be stored, it reports that
    REQUIRED = "required"  # an answer that cannot be stored is a failure


class Delivery(enum.Enum):
    WHOLE = "whole"
    STREAM = "stream"
    RESUMABLE_STREAM = "resumable stream"
    BACKGROUND = "background"
    BACKGROUND_STREAM = "background stream"


class Lifecycle(NamedTuple):
    storage: Storage
    delivery: Delivery

    @property
    def background(self) -> bool:
        return self.delivery in (Delivery.BACKGROUND, Delivery.BACKGROUND_STREAM)

    @property
    def runs(self) -> bool:
        """True if it outlives its connection."""
        return self.background or self.delivery is Delivery.RESUMABLE_STREAM

    @property
    def streams(self) -> bool:
        return self.delivery not in (Delivery.WHOLE, Delivery.BACKGROUND)


def lifecycle_of(request: ResponsesRequest, *, resumable: bool) -> Lifecycle:
    """``resumable``: a header says that the client may return for the stream. An explicit request
    to store the response means the same; the default does not."""
    if request.store or request.background:
        storage = Storage.REQUIRED
    else:
        storage = Storage.IF_POSSIBLE if request.kept else Storage.NONE
    if request.background:
        delivery = Delivery.BACKGROUND_STREAM if request.stream else Delivery.BACKGROUND
    elif not request.stream:
        delivery = Delivery.WHOLE
    else:
        lasts = resumable or request.store
        delivery = Delivery.RESUMABLE_STREAM if lasts else Delivery.STREAM
    return Lifecycle(storage, delivery)


class ResponseLifecycle:
    """Stores one response: when it begins, if it may outlive its request, and when it has ended. It
    is also the listener of its run, if there is one.

    ``record`` is what is stored, still without an answer; ``make_answer`` creates the encoder,
    which reports its ending to the callable that it is given; ``ends``: the server is ending.
    """

    def __init__(
        self,
        store: ResponseStore,
        lifecycle: Lifecycle,
        record: StoredResponse,
        make_answer: Callable[[Callable[[ResponseEnding], None]], ResponseAnswer],
        ends: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ends = ends
        self.plan = lifecycle
        self._store = store
        self._is_stored = lifecycle.storage is not Storage.NONE
        self._was_stored = False
        self._is_counted = False  # as one that was to be stored and is not
        self._record = record
        self._ending: ResponseEnding | None = None
        self._is_committing = self._is_committed = False
        self._stopping = asyncio.Event()
        end = weakref.WeakMethod(self._end)  # no cycle: what uses the answer holds this, too
        self.answer = make_answer(lambda ending: _call(end(), ending))

    @property
    def record(self) -> StoredResponse:
        """The record in its current state."""
        status = "in_progress" if self._ending is None else self._ending.status
        return msgspec.structs.replace(
            self._record,
            status=status,
            body=self.body,
            is_update=self._was_stored,
            must_exist=self._is_committed,
        )

    @property
    def shown(self) -> StoredResponse:
        """What a client may see of it: it has not ended before that is stored."""
        if not self._is_committing:
            return self.record
        body = self.answer.stream().progress
        return msgspec.structs.replace(self._record, status="in_progress", body=body)

    @property
    def body(self) -> bytes:
        return self.answer.stream().body if self._ending is None else self._ending.body

    def unstored(self) -> History | None:
        """Return the conversation including the answer, if it is complete and not stored."""
        ended = self._ending is not None and self._ending.status in ("completed", "incomplete")
        return history_of(self.record) if ended and not self._is_stored else None

    async def begin(self) -> None:
        """Store the response before its run starts, so that any replica can return it.

        Raises StoreUnavailableError.
        """
        if self._is_stored:
            await self._store.put(self.record)
            self._was_stored = True

    def _end(self, ending: ResponseEnding) -> None:
        self._ending = ending
        if self._is_stored and not self.plan.runs and ending.status in ("failed", "cancelled"):
            self._save(self.record)

    def left(self) -> None:
        """Store what the client of an unfinished stream has seen: it may refer to that later."""
        if self._is_stored and self._ending is None:
            self.answer.stream().abandon()
            self._save(self.record)

    async def commit(self) -> bool:
        """Store the response before the client learns how it ended, so that any replica can return
        it. Implements ``Commit``.

        Raises NotStoredError if it must be stored and cannot be.
        """
        if not self._is_stored:
            return True
        self._is_committing = True
        try:
            await self._put()
        except StoreUnavailableError as error:
            self._note_unstored()
            if self.plan.storage is Storage.REQUIRED:
                raise NotStoredError("The response could not be stored.") from error
            self._is_stored = self.answer.stored = False
            if self._was_stored:
                self._store.withdraw(self._record.id)
            return False
        finally:
            self._is_committing = False
        self._was_stored = self._is_committed = True
        return True

    async def _put(self) -> None:
        """Store the ended response. No client waits for a background response, so that waits for
        the store as long as other replicas take it to be in progress, but not while the server
        ends. Raises StoreUnavailableError."""
        while self._is_stored:
            try:
                await self._store.put(self.record)
                return
            except StoreUnavailableError:
                waits = self.plan.background and self._store.holds_leases
                if self._stopping.is_set() or self._ends() or not waits:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS):
                    await self._stopping.wait()

    def stopping(self) -> None:
        self.answer.stream().cancelled = True
        self._stopping.set()

    def ended(self, run: Run) -> None:
        if not self._is_stored:
            return
        log = run.log
        events = log.since(0) if log.first == 0 else None
        self._save(msgspec.structs.replace(self.record, events=events))

    def _save(self, record: StoredResponse) -> None:
        if not self._store.save(record):
            self._note_unstored()

    def _note_unstored(self) -> None:
        """Count the response, once."""
        if not self._is_counted:
            self._store.note_unstored()
        self._is_counted = True

    def discard(self) -> None:
        """Record that it was deleted while still running."""
        self._is_stored = False


def stop_deleted(runs: RunRegistry, response_id: str) -> None:
    """Stop and forget the run of a response that was deleted, if there is one."""
    run = runs.of_any_owner(response_id)
    if run is not None and isinstance(run.subject, ResponseLifecycle):
        run.subject.discard()
        run.stop("The response was deleted.")
        runs.forget(response_id)


def _call(end: Callable[[ResponseEnding], None] | None, ending: ResponseEnding) -> None:
    if end is not None:
        end(ending)


def history_of(record: StoredResponse) -> History:
    return History(context=record.context, input=record.input, body=record.body)
