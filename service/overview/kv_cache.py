"""The KV cache as the admin API shows it: the engine's answer with aliases of keys and wall-clock
times. An engine in a long step does not answer; then the last answer is shown, with its time."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator, Mapping, Sequence

from engine.inspected import Inspected, KvState, PrefixState
from observability.admin_api import BlockRun, KvMap, Owner, PrefixTree, SharedPrefix
from service.engine.inspections import Inspections, NoInspectionError
from service.overview.kv_history import KvHistory
from service.telemetry.record import RequestRecord
from service.turns import my_turn

_TIMEOUT_SECONDS = 2.0
# A map that is younger is shown to others, too.
_FRESH_SECONDS = 0.5
_RUN = struct.Struct("<3i")
_RUNS_AT_ONCE = 2048


class KvCaches:
    """The KV cache of each engine. ``live``: the records of requests that have not ended, by id."""

    def __init__(
        self, inspections: Sequence[Inspections], live: Mapping[str, RequestRecord]
    ) -> None:
        self._each = [KvCache(one, live) for one in inspections]

    def __len__(self) -> int:
        return len(self._each)

    def of(self, engine: int) -> KvCache:
        """Return that of the engine with this index. Raises NoInspectionError."""
        if not 0 <= engine < len(self._each):
            last = len(self._each) - 1
            raise NoInspectionError(f"there is no engine {engine}, only 0 to {last}")
        return self._each[engine]


class KvCache:
    """``live``: the records of requests that have not ended, by id."""

    def __init__(self, inspections: Inspections, live: Mapping[str, RequestRecord]) -> None:
        self._inspections = inspections
        self._live = live
        self._map: KvMap | None = None
        self.history = KvHistory()
        self._asked = asyncio.Lock()

    async def map(self, timeout: float = _TIMEOUT_SECONDS) -> KvMap:
        """Return the pool; its ``time`` says how old it is. Raises NoInspectionError if the engine
        has never answered."""
        async with self._asked:  # who waits gets the same answer
            known = self._map
            if known is not None and time.time() - known.time < _FRESH_SECONDS:
                return known
            try:
                found = await self._inspections.inspect(timeout=timeout)
            except NoInspectionError:
                if known is None:
                    raise
                return known
            if found.kv is not None:
                self._map = await self._shown(found, found.kv)
                await self.history.keep(self._map)
            if self._map is None:
                raise NoInspectionError("the engine did not send it")
            return self._map

    async def prefixes(self, limit: int, timeout: float = _TIMEOUT_SECONDS) -> PrefixTree:
        """Return the prefixes with most hits. Raises NoInspectionError."""
        found = await self._inspections.inspect(kv=False, prefixes=limit, timeout=timeout)
        if found.prefixes is None:
            raise NoInspectionError("the engine did not send it")
        return _tree(found.prefixes)

    async def _shown(self, found: Inspected, state: KvState) -> KvMap:
        runs: list[BlockRun] = []
        for piece in _pieces(state.runs):
            runs += [
                BlockRun(owner, count, bool(shared))
                for owner, count, shared in _RUN.iter_unpack(piece)
            ]
            await my_turn()
        return KvMap(
            time=_wall(found.time),
            blocks=state.blocks,
            block_size=state.block_size,
            active=state.active,
            cached=state.cached,
            free=state.free,
            runs=tuple(runs),
            owners=tuple(
                Owner(one.request_id, self._key(one.request_id), one.blocks, one.tokens)
                for one in state.holders
            ),
            evictions=state.evictions,
            preemptions=state.preemptions,
            blocks_each=state.blocks_each,
        )

    def _key(self, request_id: str) -> str | None:
        record = self._live.get(request_id)
        return None if record is None else record.key


def _pieces(runs: bytes) -> Iterator[bytes]:
    size = _RUN.size * _RUNS_AT_ONCE
    return (runs[at : at + size] for at in range(0, len(runs), size))


def _wall(monotonic: float) -> float:
    return monotonic + time.time() - time.monotonic()


def _tree(state: PrefixState) -> PrefixTree:
    return PrefixTree(
        prefixes=tuple(
            SharedPrefix(
                one.parent,
                one.tokens,
                one.holders,
                one.hits,
                _wall(one.last_used),
                one.request_id,
            )
            for one in state.prefixes
        ),
        cached_tokens=state.cached_tokens,
        left_out=state.left_out,
    )
