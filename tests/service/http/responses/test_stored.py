"""Stored responses are their owner's: shown, replayed, listed, deleted, and never another's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx2
import msgspec
import pytest

from service.api_keys import api_keys
from service.engine.link import EngineState, LinkPhase
from service.http.responses.lifecycle import Delivery, Lifecycle, ResponseLifecycle, Storage
from service.serving.keys import KeyRing
from service.serving.services import Services
from service.store.record import StoredResponse
from tests.service.generation.test_beam import READY
from tests.service.http.apps import KEYS, new_app
from tests.service.store.test_store import end_lease

PATH = "/v1/responses"
MINE, THEIRS = ({"x-api-key": key} for key in KEYS)
ASKS = [
    ("GET", "resp_1"),
    ("GET", "resp_1?stream=true"),
    ("GET", "resp_1/input_items"),
    ("POST", "resp_1/cancel"),
    ("DELETE", "resp_1"),
]
EVENTS = [b"id: %d\ndata: %d\n\n" % (number, number) for number in range(3)]


def items(*texts: str) -> bytes:
    return json.dumps(
        [
            {"id": f"msg_{text}", "type": "message", "role": "user", "content": text}
            for text in texts
        ]
    ).encode()


def stored(response_id: str, *, background: bool = False, **more: Any) -> StoredResponse:
    body = {"id": response_id, "background": background, "output": []}
    record = StoredResponse(
        id=response_id,
        owner=KeyRing(api_keys(KEYS)).check(b"", KEYS[0].encode()).owner,
        created_at=1,
        expires_at=1 << 40,
        status="completed",
        body=msgspec.json.encode(body),
        context=items("a", "b"),
        input=items("c"),
        events=b"".join(EVENTS),
    )
    return msgspec.structs.replace(record, **more)


class Server:
    def __init__(self, client: httpx2.AsyncClient, services: Services) -> None:
        self.client = client
        self.runs = services.runs
        self.store = services.store
        self.link = services.link

    async def get(self, path: str, key: dict[str, str] = MINE) -> httpx2.Response:
        return await self.client.get(f"{PATH}/{path}", headers=key)


@asynccontextmanager
async def serving(model: Path, folder: Path) -> AsyncIterator[Server]:
    """With two keys and ``resp_1``, which is of the first."""
    url = f"sqlite:///{folder}/store.sqlite3"
    app = new_app(model, folder, api_key=KEYS, store_url=url)
    transport = httpx2.ASGITransport(app)
    async with (
        app.lifespan(),
        httpx2.AsyncClient(transport=transport, base_url="http://quire.localhost") as client,
    ):
        server = Server(client, app.state.services)
        server.store.open()
        await server.store.attempted()
        await server.store.put(stored("resp_1"))
        yield server


async def test_it_is_given_back_as_it_was_made_until_it_is_deleted(
    own_template: Path, tmp_path: Path
) -> None:
    async with serving(own_template, tmp_path) as server:
        reply = await server.get("resp_1")
        assert (reply.status_code, reply.content) == (200, stored("resp_1").body)
        for query, rest in (("", EVENTS), ("&starting_after=0", EVENTS[1:])):
            stream = await server.get(f"resp_1?stream=true{query}")
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.content == b"".join(rest)
        await server.store.put(stored("resp_2", events=None))
        reply = await server.get("resp_2?stream=true")
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream")
        reply = await server.client.delete(f"{PATH}/resp_1", headers=MINE)
        assert reply.json() == {"id": "resp_1", "object": "response", "deleted": True}
        assert (await server.get("resp_1")).status_code == 404
        again = await server.client.delete(f"{PATH}/resp_1", headers=MINE)
        assert again.status_code == 404


async def test_the_stream_of_a_response_whose_process_ended_says_so(
    own_template: Path, tmp_path: Path
) -> None:
    async with serving(own_template, tmp_path) as server:
        begun = stored("resp_d", background=True, status="in_progress", events=None)
        await server.store.put(begun)
        reply = await server.get("resp_d?stream=true")
        assert reply.status_code == 400
        assert "its process has ended" in reply.json()["error"]["message"]
        await end_lease(f"sqlite:///{tmp_path}/store.sqlite3", "resp_d")
        whole = (await server.get("resp_d")).json()
        assert whole["status"] == "failed"
        for query, number in (("", 0), ("&starting_after=6", 7)):
            reply = await server.get(f"resp_d?stream=true{query}")
            assert reply.headers["content-type"].startswith("text/event-stream")
            first, second, third = reply.text.rstrip().split("\n")
            assert (first, second) == (f"id: {number}", "event: response.failed")
            assert json.loads(third.removeprefix("data: ")) == {
                "type": "response.failed",
                "sequence_number": number,
                "response": whole,
            }
        cancelled = stored("resp_e", background=True, status="cancelled", events=None)
        await server.store.put(cancelled)
        assert "event: response.failed" in (await server.get("resp_e?stream=true")).text


async def endless() -> AsyncGenerator[bytes, None]:
    yield b"data: begun\n\n"
    await asyncio.get_running_loop().create_future()


async def test_a_response_that_could_not_be_deleted_still_runs(
    own_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation, answer = Mock(), Mock()
    async with serving(own_template, tmp_path) as server:
        record = stored("resp_r", background=True, status="in_progress", events=None)
        plan = Lifecycle(Storage.REQUIRED, Delivery.BACKGROUND)
        subject = ResponseLifecycle(server.store, plan, record, lambda on_end: answer)
        answer.stream.return_value.body = record.body
        await subject.begin()
        run = server.runs.start(
            "resp_r", record.owner, generation, endless(), subject=subject, on_end=lambda: None
        )
        with monkeypatch.context() as patch:
            patch.setattr("service.store.database.Database.delete", AsyncMock(side_effect=OSError))
            reply = await server.client.delete(f"{PATH}/resp_r", headers=MINE)
            assert reply.status_code == 503
        assert server.runs.of_any_owner("resp_r") is run
        generation.fail.assert_not_called()
        assert (await server.client.delete(f"{PATH}/resp_r", headers=MINE)).status_code == 200
        assert server.runs.of_any_owner("resp_r") is None
        generation.fail.assert_called_once()
        assert (await server.get("resp_r")).status_code == 404


async def test_another_key_finds_nothing_and_deletes_nothing(
    own_template: Path, tmp_path: Path
) -> None:
    async with serving(own_template, tmp_path) as server:
        for method, path in ASKS:
            reply = await server.client.request(method, f"{PATH}/{path}", headers=THEIRS)
            assert reply.status_code == 404, (method, path)
            unknown = path.replace("resp_1", "resp_0")
            other = await server.client.request(method, f"{PATH}/{unknown}", headers=THEIRS)
            # Nor does it learn that there is one.
            assert other.text.replace("resp_0", "resp_1") == reply.text
        assert (await server.get("resp_1")).status_code == 200


async def test_only_a_background_response_can_be_cancelled(
    own_template: Path, tmp_path: Path
) -> None:
    async with serving(own_template, tmp_path) as server:
        for record, status, says in (
            (stored("ended", background=True), 200, None),
            (stored("foreground"), 400, "Only a background response"),
            (
                stored("elsewhere", background=True, status="in_progress"),
                400,
                "its process has ended",
            ),
        ):
            await server.store.put(record)
            reply = await server.client.post(f"{PATH}/{record.id}/cancel", headers=MINE)
            assert reply.status_code == status
            if says is None:
                assert reply.content == record.body
            else:
                assert says in reply.json()["error"]["message"]


async def test_its_items_are_paged_in_either_order(own_template: Path, tmp_path: Path) -> None:
    async with serving(own_template, tmp_path) as server:
        server.link.state = EngineState(LinkPhase.READY, "ready", READY)

        async def listed(query: str) -> tuple[list[str], bool]:
            reply = await server.get(f"resp_1/input_items{query}")
            assert reply.status_code == 200, reply.text
            page = reply.json()
            return [item["id"] for item in page["data"]], page["has_more"]

        assert await listed("") == (["msg_c", "msg_b", "msg_a"], False)
        assert await listed("?order=asc&limit=2") == (["msg_a", "msg_b"], True)
        assert await listed("?order=asc&after=msg_b") == (["msg_c"], False)
        assert await listed("?after=msg_c&limit=1") == (["msg_b"], True)


async def test_a_wrong_query_is_refused_by_name(own_template: Path, tmp_path: Path) -> None:
    limits = ("0", "101", "1000000000001", "00101", "0001" + 5000 * "0", "-1", "x", "\xb2")
    async with serving(own_template, tmp_path) as server:
        for query, param in (
            *((f"/input_items?limit={limit}", "limit") for limit in limits),
            ("/input_items?order=newest", "order"),
            ("?stream=1", "stream"),
            ("?stream=true&starting_after=x", "starting_after"),
        ):
            reply = await server.get(f"resp_1{query}")
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), query[:40]


async def test_without_a_store_nothing_is_found_and_sdks_do_not_retry(
    own_template: Path, tmp_path: Path
) -> None:
    app = new_app(own_template, tmp_path, api_key=KEYS, store_url="none")
    transport = httpx2.ASGITransport(app)
    async with (
        app.lifespan(),
        httpx2.AsyncClient(transport=transport, base_url="http://quire.localhost") as client,
    ):
        for method, path in ASKS:
            reply = await client.request(method, f"{PATH}/{path}", headers=MINE)
            assert reply.status_code == 404, (method, path)
            assert reply.headers["x-should-retry"] == "false"
            message = reply.json()["error"]["message"]
            assert message.endswith(
                "not found. This server stores no responses (--store-url none)."
            )
