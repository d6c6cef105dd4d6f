"""Finds responses running in this worker or stored."""

from __future__ import annotations

import msgspec

from service.errors import (
    InvalidRequestError,
    NotFoundError,
    PreviousNotFoundError,
    StoreUnavailableError,
)
from service.generation.run import Run, RunRegistry
from service.http.responses.lifecycle import ResponseLifecycle, history_of
from service.peers.peers import Peers
from service.peers.requests import RESPONSE, ask_owner
from service.preparation.history import missing
from service.preparation.jobs import History
from service.store.record import RUNNING, StoredResponse
from service.store.store import ResponseStore

_DIED = "The response's process ended or could not reach the store for a minute. Retry the request."


class ResponseLookup:
    """Finds one owner's responses by id, whether running here, stored, or kept by one of the other
    workers (``peers``) that ran it."""

    def __init__(
        self, store: ResponseStore, runs: RunRegistry, owner: str, peers: Peers | None = None
    ) -> None:
        self._peers = peers or Peers()
        self._store = store
        self._runs = runs
        self._owner = owner

    def run(self, response_id: str) -> Run | None:
        run = self._runs.find(response_id, self._owner)
        return run if run is not None and isinstance(run.subject, ResponseLifecycle) else None

    async def find(self, response_id: str) -> StoredResponse:
        """Raises NotFoundError, StoreUnavailableError or WorkerLostError."""
        run = self.run(response_id)
        if run is not None and isinstance(run.subject, ResponseLifecycle):
            return run.subject.shown
        record = await self._stored(response_id)
        if record is None:
            raise self.missing(response_id)
        if record.abandoned:
            return _died(record)
        return record

    def missing(self, response_id: str) -> NotFoundError:
        """Return the error for a response that was not found."""
        found = f"Response with id '{response_id[:80]}' not found."
        if not self._store.is_configured:
            found += " This server stores no responses (--store-url none)."
        return NotFoundError(found)

    async def _stored(self, response_id: str) -> StoredResponse | None:
        """Return a response from the store, or else from the worker that ran it."""
        try:
            record = await self._store.get(response_id, self._owner)
        except StoreUnavailableError:
            record = await self._elsewhere(response_id)
            if record is None:
                raise
            return record
        return await self._elsewhere(response_id) if record is None else record

    async def _elsewhere(self, response_id: str) -> StoredResponse | None:
        found = await ask_owner(self._peers, RESPONSE, response_id, self._owner)
        return None if found is None else msgspec.msgpack.decode(found, type=StoredResponse)

    async def history(self, previous_id: str | None) -> History | None:
        """Return the history that a request continues when it refers to this response. Raises
        PreviousNotFoundError, StoreUnavailableError or WorkerLostError, and InvalidRequestError for
        a response that has not ended."""
        if previous_id is None:
            return None
        try:
            record = await self.find(previous_id)
        except NotFoundError:
            what = f"Previous response with id '{previous_id[:80]}'"
            raise PreviousNotFoundError(
                missing(what, self._store.is_configured), param="previous_response_id"
            ) from None
        if record.status in RUNNING:
            raise InvalidRequestError(
                f"Response '{previous_id}' has not ended yet; wait for its end, or cancel it.",
                param="previous_response_id",
            )
        return history_of(record)

    async def items_of(self, response_id: str) -> History:
        """Raises as ``find`` does."""
        return history_of(await self.find(response_id))


def _died(record: StoredResponse) -> StoredResponse:
    """Nothing has renewed its lease."""
    return record.failed({"code": "server_error", "message": _DIED})
