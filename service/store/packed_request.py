"""A record of a request as a row: the columns that queries filter and sort by, and the record
itself. Only a long one, with dozens of events, is compressed: for a short answer, zlib would add
one percent to the time that serving it takes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from observability.admin_api import KeptRequest
from service.records.row import Row, decode_request, decode_row

# The dictionary that all rows are compressed with. It must never change: a better one would have to
# be added under another number.
_WORDS = (
    b"\xa8received\xcbA\xda\xa5route\xafgrpc_generate\xafembeddings\xafresponses\xaf"
    b"messages\xafcompletions\xb0chat_completions\xa5ended\xcbA\xda\xa7span_id\xb0\xabresponse_id"
    b"\xd9%resp_msg_cmpl-chatcmpl-\xb1client_request_id\xa3key\xaeclient_address\xa9127.0.0.1"
    b"\xaauser_agent\xb3python-httpx/curl/8.AsyncOpenAI/Python 3.OpenAI/Python 3.\xa5model\xa6"
    b"status\xcc\xc8\xcd\x01\xad\xa7outcome\xabclient_gone\xb2refused:overloaded"
    b"\xaaerror:worker\xa6length\xa4stop\xa5error\xaaerror_code\xaberror_field\xabretry_after\xa7"
    b"waiting\x00\xaalimited_by\xa6prefill\xa5slots\xa2kv\xa7healthy\xa6stream\xc3\xa7choices\x02"
    b"\xaamax_tokens\xcd\x10\x00\xabtemperature\xcb?\xe6ffffff\xa5top_p\xcb?\xf0\x00\x00\x00\x00"
    b"\x00\x00\xaefinish_reasons\x92\x91\xa6length\x91\xaatool_calls\x91\xa4stop\xa7ignored\xadpro"
    b"mpt_tokens\xcd\xb6prompt_tokens_computed\xcd\xadcached_tokens\xcd\xadoutput_tokens\xcd\xb0re"
    b"asoning_tokens\xcd\xabpreemptions\x01\xa9handovers\x01\xa6phases\x88\xa7receive\xcb?\xa6rend"
    b"er\xcb?\xa8tokenize\xcb?\xa5admit\xcb?\xa5queue\xcb?\xa7prefill\xcb?\xa6decode\xcb@\xa5flush"
    b"\xcb?\xa5other\xcb?\xa5total\xcb@\xa4ttft\xcb?\xa8itl_mean\xcb?\xa7itl_max\xcb?\xa6prefix"
    b"\x83\xa7matched\x00\xa2of\xcd\xa7stopped\xa7evicted\xa4salt\xa5short\xa3off\xacwhole_prompt"
    b"\xabfirst_seen\xa8diverged\xaarequest_id\xd9\x20req_\xabseconds_ago\xcb@\xaaat_message\x03"
    b"\xa8messages\x07\xa4role\xa4tool\xa6system\xa4user\xa6events\x99\x94\xa3gap\xcb?\x94\xa9pree"
    b"mpted\xcb@\x94\xa7resumed\xcb@\x94\xa7stalled\xcb@\x94\xa6output\xcb@\x08\xcb@ \x00\x00\x00"
    b"\x00\x00\x00\x00\x94\xa6output\xcb@\x10\xcb@\x10\x00\x00\x00\x00\x00\x00\x00\x94\xa6output"
    b"\xcb?\xcb@\x00\x00\x00\x00\x00\x00\x00\x00\x94\xa6output\xcb?\xcb?\xf0\x00\x00\x00\x00\x00"
    b"\x00\x00\xaaneighbours\x93\x85\xa2at\xcb@\xa7seconds\xcb?\xa6tokens\xcd\xa9sequences\x2a"
    b"\xa8prefills\x91\x92\xd9\x20req_"
)
_PLAIN, _DEFLATED = b"\0", b"\1"  # first byte of a record
_LONG_BYTES = 2000
_LEVEL = 1
_WINDOW = -12  # without a header, of 4 KiB: less to allocate for each
_MEMORY = 4


def pack_request(row: Row) -> dict[str, Any]:
    """Return the database's row of an ended request."""
    return {
        "request_id": row.request_id,
        "ended": row.received + row.total if row.ended is None else row.ended,
        "received": row.received,
        "trace_id": row.trace_id,
        "key": row.key,
        "model": row.model,
        "route": row.route,
        "outcome": row.outcome,
        "phase": row.phase,
        "total": row.total,
        "ttft": row.ttft,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens,
        "record": _packed(row.encoded),
    }


def pack_requests(encoded: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the database's rows for encoded records. What another version wrote is left out, so
    that the others get through."""
    rows = []
    for one in encoded:
        with suppress(msgspec.DecodeError):
            rows.append(pack_request(decode_row(one)))
    return rows


def _packed(record: bytes) -> bytes:
    if len(record) < _LONG_BYTES:
        return _PLAIN + record
    packer = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, _WORDS
    )
    return _DEFLATED + packer.compress(record) + packer.flush()


def unpack_request(request_id: str, trace_id: str, record: bytes) -> KeptRequest:
    """Raises msgspec.DecodeError or zlib.error for what is not a record."""
    content: bytes | memoryview = memoryview(record)[1:]
    if record[:1] == _DEFLATED:
        content = zlib.decompressobj(_WINDOW, _WORDS).decompress(content)
    return decode_request(request_id, trace_id, content)
