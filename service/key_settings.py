"""The settings of API keys that can change while the server runs."""

from __future__ import annotations

from typing import Annotated

from engine.options import OptionError, setting
from service.archive_settings import ArchiveSettings

_KEYS = "Keys"


class KeySettings(ArchiveSettings, frozen=True, kw_only=True):
    """Where keys come from besides the command line."""

    stored_keys: Annotated[
        bool,
        setting(
            _KEYS,
            "Accept the keys of the store, which 'quire keys' and the admin API make, and accept "
            "no request without a key.",
        ),
    ] = False
    keys_file: (
        Annotated[
            str,
            setting(
                _KEYS,
                "File with further keys, TOML or JSON (docs/keys.md). It is read again within "
                "seconds when it changes; if it cannot be used then, the last good keys stay.",
                min_length=1,
                max_length=4096,
            ),
        ]
        | None
    ) = None

    @property
    def keys_change(self) -> bool:
        """True if keys can come and go while the server runs."""
        return self.stored_keys or self.keys_file is not None

    def check_stored_keys(self, store_url: str) -> None:
        """Raise OptionError if there is no store to hold keys."""
        if self.stored_keys and store_url == "none":
            raise OptionError("--stored-keys needs a store; leave out --store-url none.")
