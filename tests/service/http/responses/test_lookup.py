"""Finding again what was kept, also of a replica that is gone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from service.errors import InvalidRequestError, NotFoundError, PreviousNotFoundError
from service.generation.run import RunLimits, RunRegistry
from service.http.responses.lookup import ResponseLookup
from service.preparation.history import resolved
from tests.service.store.test_store import end_lease, opened, record

RUNS = RunRegistry(RunLimits(timeout=1, run_bytes=1 << 20, total_bytes=1 << 20))


async def test_a_dead_replicas_responses_fail_once_its_lease_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    async with opened(url) as store:
        alive = msgspec.structs.replace(record("resp_1"), status="in_progress")
        await store.put(alive)
        await store.put(msgspec.structs.replace(alive, id="resp_2"))
        await end_lease(url, "resp_2")
        lookup = ResponseLookup(store, RUNS, "me")
        assert (await lookup.find("resp_1")).status == "in_progress"
        with pytest.raises(InvalidRequestError, match="has not ended"):
            await lookup.history("resp_1")
        found = await lookup.find("resp_2")
        response = msgspec.json.decode(found.body)
        assert found.status == response["status"] == "failed"
        assert response["error"]["code"] == "server_error"


async def test_an_unknown_previous_response_is_an_error_as_openai_s(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/store.sqlite3") as store:
        await store.put(record("resp_1"))
        for owner, response_id in (("me", "resp_2"), ("you", "resp_1")):
            with pytest.raises(PreviousNotFoundError, match=response_id) as caught:
                await ResponseLookup(store, RUNS, owner).history(response_id)
            error = msgspec.json.decode(caught.value.to_body())["error"]
            assert (caught.value.status, error["code"]) == (400, "previous_response_not_found")
            assert error["param"] == "previous_response_id"


async def test_items_are_found_by_reference_in_any_response_of_the_same_owner(
    tmp_path: Path,
) -> None:
    async with opened(f"sqlite:///{tmp_path}/store.sqlite3") as store:
        key = "0" * 32
        item = {"id": f"msg_{key}_0", "type": "message", "text": "Hi"}
        stored = msgspec.structs.replace(
            record(f"resp_{key}"),
            body=msgspec.json.encode({"output": [item]}),
            input=b"[]",
            context=b"[]",
        )
        await store.put(stored)
        reference = {"type": "item_reference", "id": item["id"]}
        found = await ResponseLookup(store, RUNS, "me").items_of(f"resp_{key}")
        assert resolved([reference], [], {f"resp_{key}": found}) == [item]
        with pytest.raises(NotFoundError):
            await ResponseLookup(store, RUNS, "you").items_of(f"resp_{key}")
        for wanted, referred in ((item["id"], {}), (f"msg_{key}_1", {f"resp_{key}": found})):
            with pytest.raises(NotFoundError):
                resolved([{"id": wanted}], [], referred)
