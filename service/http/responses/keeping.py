"""What is kept of one response, and finding again what was kept."""

from __future__ import annotations

import msgspec

from service.errors import (
    InvalidRequestError,
    NotFoundError,
    NotStoredError,
    StoreUnavailableError,
)
from service.generation.run import Run, RunRegistry
from service.preparation.jobs import History
from service.store.record import RUNNING, StoredResponse
from service.store.store import ResponseStore
from service.wire.responses.answer import Ending, ResponseAnswer


class Keeping:
    """Stores one response: when it begins (if it may outlive its request), and when it has ended.
    The subject of its run, if it has one.

    ``promised``: the request said that it shall be stored, so an answer that cannot be is a
    failure. Otherwise it is told as it is, saying that it is not stored. ``items`` and ``context``
    are JSON lists.
    """

    def __init__(
        self,
        store: ResponseStore,
        *,
        response_id: str,
        owner: str,
        created: int,
        items: bytes,
        context: bytes,
        promised: bool,
        wanted: bool,
    ) -> None:
        self._store = store
        self._promised = promised
        self._wanted = wanted
        self._record = StoredResponse(
            id=response_id,
            owner=owner,
            created_at=created,
            expires_at=created + int(max(1, store.limits.ttl)),
            status="in_progress",
            body=b"",
            input=items,
            context=context,
        )
        self._ending: Ending | None = None
        self.runs = False
        self.background = False
        self.answer: ResponseAnswer | None = None

    @property
    def record(self) -> StoredResponse:
        """As it stands now."""
        status = "in_progress" if self._ending is None else self._ending.status
        return msgspec.structs.replace(self._record, status=status, body=self.body)

    @property
    def body(self) -> bytes:
        if self._ending is not None:
            return self._ending.body
        assert self.answer is not None
        return self.answer.stream().body

    def unstored(self) -> History | None:
        """The conversation up to the answer, where that is complete and only here."""
        ended = self._ending is not None and self._ending.status in ("completed", "incomplete")
        return _history(self.record) if ended and not self._wanted else None

    async def begin(self) -> None:
        """Its run is about to go: any replica may be asked for it.

        Raises StoreUnavailableError.
        """
        if self._wanted:
            await self._store.put(self.record)

    def on_end(self, ending: Ending) -> None:
        self._ending = ending
        if self._wanted and not self.runs and ending.status == "failed":
            self._store.save(self.record)

    async def commit(self) -> bool:
        """A Commit: any replica can be asked for it once the client knows how it ended.

        Raises NotStoredError if that was promised and is not so.
        """
        if not self._wanted:
            return True
        try:
            await self._store.put(self.record)
        except StoreUnavailableError as error:
            if self._promised:
                raise NotStoredError("The response could not be stored.") from error
            self._wanted = False
            assert self.answer is not None
            self.answer.stored = False
            return False
        return True

    def stopping(self) -> None:
        if self.answer is not None:
            self.answer.stream().cancelled = True

    def ended(self, run: Run) -> None:
        if not self._wanted:
            return
        log = run.log
        events = log.since(0) if log.first == 0 else None
        self._store.save(msgspec.structs.replace(self.record, events=events))

    def discard(self) -> None:
        """Deleted while it was still going."""
        self._wanted = False


class Archive:
    """Responses by id, running here or stored, of one owner."""

    def __init__(self, store: ResponseStore, runs: RunRegistry, owner: str) -> None:
        self._store = store
        self._runs = runs
        self._owner = owner

    def run(self, response_id: str) -> Run | None:
        run = self._runs.find(response_id, self._owner)
        return run if run is not None and isinstance(run.subject, Keeping) else None

    async def find(self, response_id: str, param: str | None = None) -> StoredResponse:
        """Raises NotFoundError, or StoreUnavailableError."""
        run = self.run(response_id)
        if run is not None and isinstance(run.subject, Keeping):
            return run.subject.record
        record = await self._store.get(response_id, self._owner)
        if record is None:
            raise NotFoundError(f"Response with id '{response_id[:80]}' not found.", param=param)
        if record.abandoned:
            return _died(record)
        return record

    async def history(self, previous_id: str | None) -> History | None:
        """What a request that names this one goes on from. Raises as ``find`` does, and
        InvalidRequestError for one that has not ended."""
        if previous_id is None:
            return None
        record = await self.find(previous_id, "previous_response_id")
        if record.status in RUNNING:
            raise InvalidRequestError(
                f"Response '{previous_id}' has not ended yet.", param="previous_response_id"
            )
        return _history(record)

    async def items_of(self, response_id: str) -> History:
        """Raises as ``find`` does."""
        return _history(await self.find(response_id))


def _history(record: StoredResponse) -> History:
    return History(context=record.context, input=record.input, body=record.body)


def _died(record: StoredResponse) -> StoredResponse:
    """Whoever worked on it is gone."""
    return record.failed(
        {"code": "server_error", "message": "The server ended before the response did."}
    )
