"""A database that does not respond is reported, without what the driver says."""

from __future__ import annotations

import pytest

from service.errors import StoreUnavailableError
from service.store.limit_store import LimitStore
from service.store.place import store_place


async def test_a_database_that_does_not_respond_is_reported() -> None:
    store = LimitStore(store_place("postgresql://quire@127.0.0.1:1/postgres"))
    with pytest.raises(StoreUnavailableError, match="database of the limits does not respond"):
        await store.exchange("a", {})
    await store.close()
