"""The settings of API keys."""

from __future__ import annotations

from typing import Annotated

from engine.options import OptionError, setting
from service.api_keys import ApiKey, api_keys
from service.archive_settings import ArchiveSettings

_KEYS = "Keys"

_Keys = Annotated[
    tuple[str, ...],
    setting(
        _KEYS,
        "Keys that clients must send as a bearer token, each KEY or ALIAS=KEY. The alias (1 to "
        "32 of a-z, 0-9, _ and -, before the first =) names the key in logs, traces and "
        "metrics; without one it is key1, key2, … by position. Keys with the same alias are "
        "one tenant. Default: no key required.",
        max_length=1024,
        secret=True,
    ),
]
_PriorityKeys = Annotated[
    tuple[str, ...],
    setting(
        _KEYS,
        "Further API keys, whose requests with a negative priority get the class interactive, "
        "so they go ahead of others. If the server has only one tenant, its requests may too.",
        max_length=1024,
        secret=True,
    ),
]


class KeySettings(ArchiveSettings, frozen=True, kw_only=True):
    """What clients must present, and where that comes from."""

    api_key: _Keys = ()
    priority_api_key: _PriorityKeys = ()
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
                "File with further keys, TOML, JSON or text (docs/keys.md). It is read again "
                "within seconds when it changes; if it cannot be used then, the last good keys "
                "stay.",
                min_length=1,
                max_length=4096,
            ),
        ]
        | None
    ) = None

    signing_key: (
        Annotated[
            str,
            setting(
                _KEYS,
                "Secret for signing thinking blocks and sealing reasoning; all replicas need "
                "the same. Default: a new one at each start for signatures, one saved next to "
                "the store for seals.",
                min_length=16,
                max_length=1024,
                secret=True,
            ),
        ]
        | None
    ) = None

    @property
    def needs_key(self) -> bool:
        """True if requests need a key, even if none is known yet."""
        return self.keys_change or bool(self.keys)

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """Return each key of the command line and the environment once."""
        return api_keys(self.api_key, self.priority_api_key)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Return the aliases of all keys, each once."""
        return tuple(dict.fromkeys(key.alias for key in self.keys))

    @property
    def keys_change(self) -> bool:
        """True if keys can come and go while the server runs."""
        return self.stored_keys or self.keys_file is not None

    def check_stored_keys(self, store_url: str) -> None:
        """Raise OptionError if there is no store to hold keys."""
        if self.stored_keys and store_url == "none":
            raise OptionError("--stored-keys needs a store; leave out --store-url none.")
