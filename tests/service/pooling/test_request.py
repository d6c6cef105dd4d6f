"""A request for vectors: its texts wait for the answer to the first one, and it ends by the reason
that the engine gives for one of them."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import EngineFailedError, InvalidRequestError, QuireError
from service.pooling.inputs import Input
from service.pooling.request import PooledTexts, PoolingRequest
from service.tenants.caller import ANYBODY
from tests.service.wire.chat.test_answer import Desk, fail


def pooling(texts: int) -> PoolingRequest:
    return PoolingRequest(
        request_id="r",
        inputs=[Input([number]) for number in range(texts)],
        arrival_time=0.0,
        most_open=4,
        most_open_tokens=99,
    )


async def test_no_text_is_submitted_before_the_first_one_has_a_place() -> None:
    desk = Desk()
    texts = PooledTexts(desk, pooling(9), ANYBODY)
    vectors = asyncio.ensure_future(texts.vectors())
    await asyncio.sleep(0)
    assert len(desk.sequences) == 1
    desk.sequences[0].has_place = True
    desk.sequences[0].waker.wake()
    await asyncio.sleep(0)
    assert len(desk.sequences) == 4  # as many as may be open
    vectors.cancel()
    texts.close()


@pytest.mark.parametrize(
    ("is_refusal", "error", "status"),
    [(True, InvalidRequestError, 400), (False, EngineFailedError, 500)],
)
def test_a_text_that_fails_in_the_engine_fails_its_request_with_the_reason(
    is_refusal: bool, error: type[QuireError], status: int
) -> None:
    async def ask() -> None:
        desk = Desk(answers=True)
        texts = PooledTexts(desk, pooling(2), ANYBODY)
        vectors = asyncio.ensure_future(texts.vectors())
        await asyncio.sleep(0)
        fail(desk.sequences[1], "the text has 2 tokens; the limit is 1", is_refusal=is_refusal)
        desk.sequences[1].waker.wake()
        with pytest.raises(error, match="the limit is 1") as raised:
            await vectors
        assert raised.value.status == status
        texts.close()

    asyncio.run(ask())
