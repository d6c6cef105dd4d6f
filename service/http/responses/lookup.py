"""Finds responses running in this worker or stored."""

from __future__ import annotations

from service.errors import InvalidRequestError, NotFoundError
from service.generation.run import Run, RunRegistry
from service.http.responses.lifecycle import ResponseLifecycle, history_of
from service.preparation.jobs import History
from service.store.record import RUNNING, StoredResponse
from service.store.store import ResponseStore


class ResponseLookup:
    """Finds one owner's responses by id, whether running here or stored."""

    def __init__(self, store: ResponseStore, runs: RunRegistry, owner: str) -> None:
        self._store = store
        self._runs = runs
        self._owner = owner

    def run(self, response_id: str) -> Run | None:
        run = self._runs.find(response_id, self._owner)
        return run if run is not None and isinstance(run.subject, ResponseLifecycle) else None

    async def find(self, response_id: str, param: str | None = None) -> StoredResponse:
        """Raises NotFoundError, or StoreUnavailableError."""
        run = self.run(response_id)
        if run is not None and isinstance(run.subject, ResponseLifecycle):
            return run.subject.record
        record = await self._store.get(response_id, self._owner)
        if record is None:
            raise NotFoundError(f"Response with id '{response_id[:80]}' not found.", param=param)
        if record.abandoned:
            return _died(record)
        return record

    async def history(self, previous_id: str | None) -> History | None:
        """Return the history that a request continues when it refers to this response. Raises as
        ``find`` does, and InvalidRequestError for a response that has not ended."""
        if previous_id is None:
            return None
        record = await self.find(previous_id, "previous_response_id")
        if record.status in RUNNING:
            raise InvalidRequestError(
                f"Response '{previous_id}' has not ended yet.", param="previous_response_id"
            )
        return history_of(record)

    async def items_of(self, response_id: str) -> History:
        """Raises as ``find`` does."""
        return history_of(await self.find(response_id))


def _died(record: StoredResponse) -> StoredResponse:
    """The process that worked on it is gone."""
    return record.failed(
        {"code": "server_error", "message": "The server ended before the response did."}
    )
