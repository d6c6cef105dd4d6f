"""Two ends of a TCP connection prove to each other that they know the same secret.

::

    leader   magic, 32 random bytes
    host     32 random bytes, HMAC-SHA256(secret, "host" + both)
    leader   a byte: 1 and HMAC-SHA256(secret, "leader" + both), or 0

Every part has a fixed length, and nothing else is read before the proof. The secret never passes;
what follows is neither encrypted nor signed.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time

HANDSHAKE_SECONDS = 5.0  # for all of it
_MAGIC = b"quire ranks 1\n"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_REFUSED, _ACCEPTED = b"\0", b"\1"


class HandshakeError(OSError):
    """The other end did not prove that it knows the secret; the message says what is wrong."""


def admit(connection: socket.socket, secret: str) -> None:
    """The leader's side. Raises HandshakeError, or another OSError if the connection fails."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    ours = secrets.token_bytes(_NONCE_BYTES)
    connection.settimeout(HANDSHAKE_SECONDS)
    connection.sendall(_MAGIC + ours)
    answer = _receive(connection, _NONCE_BYTES + _PROOF_BYTES, deadline)
    theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"host", ours + theirs)):
        connection.sendall(_REFUSED)
        raise HandshakeError("it has another secret")
    connection.sendall(_ACCEPTED + _proof(secret, b"leader", ours + theirs))


def introduce(connection: socket.socket, secret: str) -> None:
    """The joining host's side. Raises HandshakeError, or another OSError if the connection
    fails."""
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    greeting = _receive(connection, len(_MAGIC) + _NONCE_BYTES, deadline)
    if not greeting.startswith(_MAGIC):
        raise HandshakeError("it is not a leader of this version of Quire")
    ours = secrets.token_bytes(_NONCE_BYTES)
    both = greeting[len(_MAGIC) :] + ours
    connection.sendall(ours + _proof(secret, b"host", both))
    if _receive(connection, len(_ACCEPTED), deadline) != _ACCEPTED:
        raise HandshakeError("it refused our secret; give both the same QUIRE_RANKS_SECRET")
    answer = _receive(connection, _PROOF_BYTES, deadline)
    if not hmac.compare_digest(answer, _proof(secret, b"leader", both)):
        raise HandshakeError("it does not know our secret")


def _proof(secret: str, role: bytes, nonces: bytes) -> bytes:
    # The environment's bytes that are not UTF-8 are surrogates in the text.
    return hmac.digest(secret.encode(errors="surrogateescape"), role + nonces, "sha256")


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole handshake within {HANDSHAKE_SECONDS:.0f} s")
        connection.settimeout(left)
        part = connection.recv(size - len(data))
        if not part:
            raise HandshakeError("it closed the connection during the handshake")
        data += part
    return data
