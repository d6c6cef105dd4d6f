"""The secret that seals data which clients hold for us, kept with the store."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from observability.logging import get_logger

_BYTES = 32

_log = get_logger()


def load_secret(given: str | None, folder: Path) -> bytes:
    """Return ``given`` (a setting), else the secret in ``folder``, created at the first start. If
    it cannot be stored, return one that lasts as long as the process."""
    if given:
        return given.encode()
    path = folder / "seal.key"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _read_or_make(path)
    except OSError as error:
        _log.warning(
            "sealed reasoning cannot be opened after a restart", error=type(error).__name__
        )
        return secrets.token_bytes(_BYTES)


def _read_or_make(path: Path) -> bytes:
    """Written under another name first, so that a concurrent start never reads half of it."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_BYTES))
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was first
        finally:
            draft.unlink(missing_ok=True)
    secret = path.read_bytes()
    if len(secret) < _BYTES:
        raise OSError(f"{path} is too short to be a secret")
    return secret
