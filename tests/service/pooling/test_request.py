"""A request for vectors ends by the reason that the engine gives for one of its texts."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import EngineFailedError, InvalidRequestError, QuireError
from service.pooling.inputs import Input
from service.pooling.request import PooledTexts, PoolingRequest
from service.tenants.caller import ANYBODY
from tests.service.wire.chat.test_answer import Desk, fail


@pytest.mark.parametrize(
    ("is_refusal", "error", "status"),
    [(True, InvalidRequestError, 400), (False, EngineFailedError, 500)],
)
def test_a_text_that_fails_in_the_engine_fails_its_request_with_the_reason(
    is_refusal: bool, error: type[QuireError], status: int
) -> None:
    async def ask() -> None:
        desk = Desk()
        request = PoolingRequest(
            request_id="r",
            inputs=[Input([1, 2]), Input([3])],
            arrival_time=0.0,
            most_open=4,
            most_open_tokens=99,
        )
        texts = PooledTexts(desk, request, ANYBODY)
        vectors = asyncio.ensure_future(texts.vectors())
        await asyncio.sleep(0)
        fail(desk.sequences[1], "the text has 2 tokens; the limit is 1", is_refusal=is_refusal)
        desk.sequences[1].waker.wake()
        with pytest.raises(error, match="the limit is 1") as raised:
            await vectors
        assert raised.value.status == status
        texts.close()

    asyncio.run(ask())
