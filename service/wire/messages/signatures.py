"""Signatures of thinking blocks, with which the server recognizes its own output.

``KEYID.MAC``: which key, and HMAC-SHA256 over the thinking, base64url. A block with this server's
key id must have the right MAC; one of another server, or from before a restart without
``--signing-key``, cannot be checked and is accepted: it only reaches the prompt of the client that
sent it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets


class Signer:
    """``secret``: shared by all workers; random if empty."""

    def __init__(self, secret: str = "") -> None:
        self._key = secret.encode() or secrets.token_bytes(32)
        self._id = hashlib.sha256(b"quire-key-id" + self._key).hexdigest()[:12]

    def sign(self, text: str) -> str:
        return f"{self._id}.{self._mac(text)}"

    def is_forged(self, text: str, signature: str) -> bool:
        """True if it claims to be ours but is not."""
        key_id, _, mac = signature.partition(".")
        return key_id == self._id and not hmac.compare_digest(
            mac.encode(), self._mac(text).encode()
        )

    def _mac(self, text: str) -> str:
        digest = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")
