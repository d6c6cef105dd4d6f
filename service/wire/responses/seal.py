"""Sealed reasoning, which clients keep for us but can neither read nor change.

``qr1.`` and base64url of a nonce and the AES-256-GCM ciphertext of the zlib-compressed text. The
owner's digest is authenticated too, so that one key's reasoning cannot be opened with another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import zlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PREFIX = "qr1."
_NONCE_BYTES = 12
_MAX_TEXT_BYTES = 4 * 1024 * 1024


class SealError(ValueError):
    """It was not sealed by this server for this owner."""


class ReasoningSeal:
    """``secret``: any text or bytes shared by the replicas; at least 16 bytes long."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(hashlib.sha256(b"quire-reasoning-seal" + secret).digest())

    def seal(self, text: str, owner: str) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"))
        sealed = nonce + self._cipher.encrypt(nonce, packed, owner.encode())
        return _PREFIX + base64.urlsafe_b64encode(sealed).decode()

    def open(self, content: str, owner: str) -> str:
        """Raises SealError."""
        if not content.startswith(_PREFIX):
            raise SealError("it was not sealed by this server")
        try:
            sealed = base64.b64decode(content[len(_PREFIX) :].encode(), b"-_", validate=True)
            nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            packed = self._cipher.decrypt(nonce, ciphertext, owner.encode())
        except (binascii.Error, UnicodeEncodeError, InvalidTag, ValueError) as error:
            raise SealError("it was changed, or sealed with another key") from error
        # Sealed by us, so the limit only matters if the key leaks.
        text = zlib.decompressobj().decompress(packed, _MAX_TEXT_BYTES)
        return text.decode("utf-8", "surrogatepass")
