"""Whether two hosts have the same model under the same path, as far as that is seen at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

_READ = ("*.safetensors", "*.json", "*.gguf")


def model_fingerprint(model: Path) -> str:
    """Return a digest of the names and sizes of the files that a rank may read, and of what
    config.json says; empty if there are none."""
    files = {path for pattern in _READ for path in model.glob(pattern) if path.is_file()}
    if not files:
        return ""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    config = model / "config.json"
    if config in files:
        digest.update(config.read_bytes())
    return digest.hexdigest()
