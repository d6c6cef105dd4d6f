"""The variables of Hugging Face's tools, checked before the library reads them.

It does so once, when it is imported: a wrong value ends that with a traceback, and an empty one
counts, so that an empty ``HF_HUB_CACHE`` is the current directory.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from urllib.parse import urlsplit

from service.hub.errors import HubError

_ENDPOINT = "HF_ENDPOINT"
_SECONDS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")
_PLACES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN_PATH", "XDG_CACHE_HOME")


def check_variables(variables: MutableMapping[str, str]) -> None:
    """Remove those that are empty, so that they count as unset. Raises HubError."""
    for name in (_ENDPOINT, *_SECONDS, *_PLACES):
        if not variables.get(name, "x").strip():
            del variables[name]
    for name in _SECONDS:
        seconds = variables.get(name, "0").strip()
        if not (seconds.isascii() and seconds.isdecimal()):
            raise HubError(
                f"{name} must be a whole number of seconds, such as 30, not {seconds!r}; correct "
                "it or unset it"
            )
    endpoint = variables.get(_ENDPOINT)
    if endpoint is not None and not _is_url(endpoint):
        # Its value is not shown: it may have a password.
        raise HubError(
            f"{_ENDPOINT} must be a URL such as https://mirror.example or http://10.0.0.7:8080; "
            "correct it or unset it"
        )


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        has_place = bool(url.hostname) and url.port != 0
    except ValueError:
        return False
    return has_place and url.scheme in ("http", "https") and text.isprintable() and " " not in text
