"""How long a response lives follows from four words of its request, by one table."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import msgspec
import pytest

from service.errors import NotStoredError, StoreUnavailableError
from service.http.responses.lifecycle import (
    Delivery,
    Lifecycle,
    ResponseLifecycle,
    Storage,
    lifecycle_of,
)
from service.store.record import StoredResponse
from service.wire.responses.answer import ResponseEnding
from service.wire.responses.request import ResponsesRequest
from tests.service.store.stored import record


@pytest.mark.parametrize(
    ("store", "storage"),
    [(None, Storage.IF_POSSIBLE), (True, Storage.REQUIRED), (False, Storage.NONE)],
)
@pytest.mark.parametrize("stream", [None, True, False])
@pytest.mark.parametrize("resumable", [True, False])
def test_in_the_foreground(
    store: bool | None, storage: Storage, stream: bool | None, resumable: bool
) -> None:
    request = ResponsesRequest(input="Hi", store=store, stream=stream)
    delivery = {
        (False, False): Delivery.WHOLE,
        (False, True): Delivery.WHOLE,
        (True, False): Delivery.STREAM,
        (True, True): Delivery.RESUMABLE_STREAM,
    }[bool(stream), resumable or store is True]
    assert lifecycle_of(request, resumable=resumable) == Lifecycle(storage, delivery)


@pytest.mark.parametrize("store", [None, True])
@pytest.mark.parametrize(
    ("stream", "delivery"),
    [(True, Delivery.BACKGROUND_STREAM), (False, Delivery.BACKGROUND)],
)
@pytest.mark.parametrize("resumable", [True, False])
def test_in_the_background(
    store: bool | None, stream: bool, delivery: Delivery, resumable: bool
) -> None:
    request = ResponsesRequest(input="Hi", background=True, store=store, stream=stream)
    lifecycle = Lifecycle(Storage.REQUIRED, delivery)
    assert lifecycle_of(request, resumable=resumable) == lifecycle


@pytest.mark.parametrize(
    ("delivery", "runs", "background", "streams"),
    [
        (Delivery.WHOLE, False, False, False),
        (Delivery.STREAM, False, False, True),
        (Delivery.RESUMABLE_STREAM, True, False, True),
        (Delivery.BACKGROUND, True, True, False),
        (Delivery.BACKGROUND_STREAM, True, True, True),
    ],
)
def test_what_follows_from_a_delivery(
    delivery: Delivery, runs: bool, background: bool, streams: bool
) -> None:
    lifecycle = Lifecycle(Storage.NONE, delivery)
    assert (lifecycle.runs, lifecycle.background, lifecycle.streams) == (
        runs,
        background,
        streams,
    )


class FailingStore:
    """Cannot be written until ``returns``."""

    def __init__(self) -> None:
        self.returns = False
        self.holds_leases = True
        self.server_ends = False
        self.tried = asyncio.Event()
        self.written: list[StoredResponse] = []
        self.saved: list[StoredResponse] = []
        self.withdrawn: list[str] = []
        self.unstored = 0

    async def put(self, kept: StoredResponse) -> None:
        if kept.status == "completed" and not self.returns:
            self.tried.set()
            raise StoreUnavailableError("away")
        self.written.append(kept)

    def save(self, kept: StoredResponse) -> bool:
        self.saved.append(kept)
        return True

    def withdraw(self, response_id: str) -> None:
        self.withdrawn.append(response_id)

    def note_unstored(self) -> None:
        self.unstored += 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    monkeypatch.setattr("service.http.responses.lifecycle._RETRY_SECONDS", 0.005)
    return FailingStore()


async def ended(
    store: FailingStore,
    storage: Storage = Storage.REQUIRED,
    delivery: Delivery = Delivery.BACKGROUND,
) -> ResponseLifecycle:
    """A response that has begun and been generated."""
    answer = Mock()
    answer.stream.return_value = Mock(body=b"{}", progress=b"{}")
    begun = msgspec.structs.replace(record("resp_a"), status="in_progress")
    lifecycle = ResponseLifecycle(
        store,  # type: ignore[arg-type]
        Lifecycle(storage, delivery),
        begun,
        lambda on_end: answer,
        lambda: store.server_ends,
    )
    await lifecycle.begin()
    lifecycle._end(ResponseEnding("completed", b'{"status":"completed"}', []))
    return lifecycle


async def test_a_background_response_waits_for_the_store_and_has_not_ended_until_then(
    store: FailingStore,
) -> None:
    lifecycle = await ended(store)
    committing = asyncio.create_task(lifecycle.commit())
    await store.tried.wait()
    assert (lifecycle.shown.status, lifecycle.shown.body) == ("in_progress", b"{}")
    store.returns = True
    assert await committing
    assert lifecycle.shown.status == store.written[-1].status == "completed"
    assert store.unstored == 0
    lifecycle.ended(Mock(log=Mock(first=1)))
    assert [kept.must_exist for kept in (*store.written, *store.saved)] == [False, False, True]


async def test_it_waits_no_longer_than_other_replicas_take_it_to_be_in_progress(
    store: FailingStore,
) -> None:
    lifecycle = await ended(store)
    committing = asyncio.create_task(lifecycle.commit())
    await store.tried.wait()
    store.holds_leases = False
    with pytest.raises(NotStoredError):
        await committing
    assert store.unstored == 1
    lifecycle._end(ResponseEnding("failed", b'{"status":"failed"}', []))
    lifecycle.ended(Mock(log=Mock(first=1)))
    assert [(kept.status, kept.is_update) for kept in store.saved] == [("failed", True)]
    assert not store.saved[0].must_exist


async def test_it_is_tried_once_more_when_the_server_ends(store: FailingStore) -> None:
    for returns in (False, True):
        lifecycle = await ended(store)
        store.tried.clear()
        committing = asyncio.create_task(lifecycle.commit())
        await store.tried.wait()
        store.server_ends, store.returns = True, returns
        if returns:
            assert await committing
        else:
            with pytest.raises(NotStoredError):
                await committing
        store.server_ends = store.returns = False
    assert store.unstored == 1


async def test_it_can_be_cancelled_or_deleted_while_it_waits(store: FailingStore) -> None:
    lifecycle = await ended(store)
    committing = asyncio.create_task(lifecycle.commit())
    await store.tried.wait()
    lifecycle.stopping()
    with pytest.raises(NotStoredError):
        await committing
    lifecycle = await ended(store)
    store.tried.clear()
    committing = asyncio.create_task(lifecycle.commit())
    await store.tried.wait()
    lifecycle.discard()
    store.returns = True
    written = len(store.written)
    await committing
    lifecycle.ended(Mock(log=Mock(first=1)))
    assert len(store.written) == written
    assert not store.saved


async def test_others_do_not_wait_and_one_that_says_it_is_not_stored_is_not(
    store: FailingStore,
) -> None:
    lifecycle = await ended(store, Storage.IF_POSSIBLE, Delivery.RESUMABLE_STREAM)
    assert not await lifecycle.commit()
    assert store.withdrawn == ["resp_a"]
    with pytest.raises(NotStoredError):
        await (await ended(store, delivery=Delivery.RESUMABLE_STREAM)).commit()
