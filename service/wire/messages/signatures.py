"""Signatures of thinking blocks, by which the server knows its own words again.

``KEYID.MAC``: which key, and HMAC-SHA256 over the thinking, base64url. A block that bears this
server's key id must bear the right MAC; one of another server, or from before a restart without
``--signing-key``, cannot be checked and is taken as it is: it only reaches the prompt of the client
that sent it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets


class Signer:
    """``secret``: shared by all workers; made up when empty."""

    def __init__(self, secret: str = "") -> None:
        self._key = secret.encode() or secrets.token_bytes(32)
        self._id = hashlib.sha256(b"quire-key-id" + self._key).hexdigest()[:12]

    def sign(self, text: str) -> str:
        return f"{self._id}.{self._mac(text)}"

    def is_forged(self, text: str, signature: str) -> bool:
        """Whether it claims to be ours and is not."""
        key_id, _, mac = signature.partition(".")
        return key_id == self._id and not hmac.compare_digest(
            mac.encode(), self._mac(text).encode()
        )

    def _mac(self, text: str) -> str:
        digest = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")
