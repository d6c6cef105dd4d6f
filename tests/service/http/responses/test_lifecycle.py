"""How long a response lives follows from four words of its request, by one table."""

from __future__ import annotations

import pytest

from service.http.responses.lifecycle import Delivery, Lifecycle, Storage, lifecycle_of
from service.wire.responses.request import ResponsesRequest


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
