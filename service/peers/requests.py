"""The questions that workers ask each other. The one that asks has checked the key."""

from __future__ import annotations

from typing import Final

import msgspec

from service.errors import NotFoundError, WorkerLostError
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
    question = msgspec.msgpack.encode(PeerQuestion(identity, owner))
    try:
        with peers.place(owner):
            return await ask_worker(peers, worker, path, question, seconds=_SECONDS)
    except (PeerUnreachableError, NotFoundError):
        return None
    except PeerLostError as error:
        raise WorkerLostError(
            f"The API worker that has '{identity[:64]}' did not answer: {error}. Retry."
        ) from error


async def ask_worker(
    peers: Peers, worker: int, path: str, question: bytes, *, seconds: float
) -> bytes:
    """Return a worker's answer. ``seconds``: until it begins.

    Raises PeerUnreachableError, PeerLostError, or NotFoundError if it has no such thing.
    """
    async with peers.connected(worker) as connection:
        answer = await connection.ask("POST", path.encode(), body=question, seconds=seconds)
        body = await answer.whole(_MOST_BYTES)
    if answer.status == 404:
        raise NotFoundError("The worker does not have it.")
    if answer.status != 200:
        raise PeerLostError(f"it answered {answer.status}")
    return body
