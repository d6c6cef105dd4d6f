"""What workers ask each other for themselves. Whoever asks has checked the key."""

from __future__ import annotations

from typing import Final

import msgspec

from service.errors import WorkerLostError
from service.peers.asking import PeerLostError, PeerUnreachableError
from service.peers.peers import Peers

ABORT: Final = "/peer/abort"
RESPONSE: Final = "/peer/response"
_SECONDS = 10.0
_MOST_BYTES = 256 * 1024 * 1024


class PeerQuestion(msgspec.Struct, frozen=True):
    """``owner``: the digest of the key that asks."""

    id: str
    owner: str


async def ask_owner(peers: Peers, path: str, identity: str, owner: str) -> bytes | None:
    """Ask the worker that made an id; None if it has no such thing, is dead, or none is meant.

    Raises WorkerLostError, or OverloadedError.
    """
    worker = peers.owner_of(identity)
    if worker is None:
        return None
    wanted = msgspec.msgpack.encode(PeerQuestion(identity, owner))
    try:
        with peers.place():
            async with peers.connected(worker) as connection:
                answer = await connection.ask("POST", path.encode(), body=wanted, seconds=_SECONDS)
                body = await answer.whole(_MOST_BYTES)
    except PeerUnreachableError:
        return None
    except PeerLostError as error:
        raise WorkerLostError(f"The API worker that has it could not answer: {error}.") from error
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise WorkerLostError(f"The API worker that has it answered {answer.status}; retry.")
    return body
