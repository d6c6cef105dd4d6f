"""``quire keys create|list|show|rotate|revoke``: the API keys in the store."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from engine.options import (
    OptionError,
    add_arguments,
    environment_defaults,
    from_namespace,
    setting,
)
from engine.queueing import ServiceClass
from service.errors import StoreUnavailableError
from service.printing import discard_unwritten
from service.problems import problem_in
from service.store.key_store import KeyStore, MadeKey, NoSuchKeyError
from service.store.place import StorePlace, store_place
from service.tenants.caller import KeyScope
from service.tenants.key_limits import limits_text
from service.tenants.stored_key import ALIAS_IN_WORDS, ALIAS_PATTERN, KeyGrant, StoredKey, named

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+)([smhd])")
_MOST_SECONDS = 10 * 365 * 86_400
_COLUMNS = ("ID", "KEY", "ALIAS", "STATE", "CREATED", "EXPIRES", "LAST USED", "ALLOWS")
_LIMITS = {
    "requests_per_minute": "maximum requests per minute",
    "tokens_per_minute": "maximum tokens per minute, of prompts and answers",
    "concurrent_requests": "maximum requests at once",
    "tokens_per_day": "maximum tokens per day (UTC)",
}


class _StoreOptions(msgspec.Struct, frozen=True):
    """Where the servers keep what they store."""

    store_url: Annotated[
        str,
        setting(
            "Store",
            "The servers' --store-url: sqlite:///FILE or postgresql://…. Default: an SQLite file "
            "in ~/.local/state/quire ($XDG_STATE_HOME).",
            max_length=4096,
            secret=True,
        ),
    ] = ""


def _alias(text: str) -> str:
    """Check the name of a tenant."""
    if re.fullmatch(ALIAS_PATTERN, text) is None:
        raise argparse.ArgumentTypeError(f"must be {ALIAS_IN_WORDS} (got {text!r})")
    return text


def duration_seconds(text: str) -> float:
    """Return the seconds in ``30m``, ``24h``, ``90d`` or ``0s``."""
    match = _DURATION.fullmatch(text)
    if match is None or (seconds := int(match[1]) * _UNITS[match[2]]) > _MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"must be a number and s, m, h or d, as in 24h, and at most ten years (got {text!r})"
        )
    return float(seconds)


def time_of(text: str) -> float:
    """Return the time in ``90d`` from now, or of ``2027-01-31`` (UTC) or ``2027-01-31T12:00Z``, at
    most ten years from now."""
    if _DURATION.fullmatch(text):
        return time.time() + duration_seconds(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a time such as 90d or 2027-01-31 (got {text!r})"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    seconds = found.timestamp()
    if seconds > time.time() + _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"must be at most ten years from now (got {text!r})")
    return seconds


def add_key_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands to ``quire keys``."""
    parser.description = (
        "Manage the API keys in the store of the servers on this machine, or in their PostgreSQL "
        "(docs/keys.md)."
    )
    commands = parser.add_subparsers(required=True, metavar="ACTION")

    def command(name: str, help: str, act: _Act) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        add_arguments(added, _StoreOptions)
        added.set_defaults(command=lambda namespace: _run(act, namespace), own_parser=added)
        return added

    create = command("create", "Create a key and print it; it is not shown again.", _create)
    create.add_argument(
        "--alias", required=True, type=_alias, help="whose it is: 1 to 32 of a-z, 0-9, _ and -"
    )
    create.add_argument(
        "--scope", action="append", choices=[one.value for one in KeyScope], help="default: all"
    )
    create.add_argument("--model", action="append", metavar="NAME", help="default: every model")
    create.add_argument(
        "--class", dest="service_class", choices=[one.value for one in ServiceClass]
    )
    create.add_argument("--weight", type=float, help="its share where requests wait (1)")
    create.add_argument(
        "--priority", action="store_true", default=None, help="its requests may go ahead of others"
    )
    for name, help in _LIMITS.items():
        create.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=help)
    create.add_argument("--expires", type=time_of, help="90d, or a date; default: never")

    listing = command("list", "List the keys; the keys themselves are not stored.", _list)
    listing.add_argument("--all", action="store_true", help="also those that have ended")
    listing.add_argument("--json", action="store_true", help="as JSON")
    show = command("show", "Show all that is stored of a key, as JSON.", _show)
    rotate = command("rotate", "Make the next key of an alias and end the earlier ones.", _rotate)
    rotate.add_argument(
        "--overlap",
        type=duration_seconds,
        default=86_400.0,
        help="how long the earlier keys stay valid (24h); 0s revokes them at once",
    )
    rotate.add_argument("--expires", type=time_of, help="of the new key; default: never")
    revoke = command("revoke", "End a key; every server refuses it within 10 seconds.", _revoke)
    for one in (show, rotate, revoke):
        one.add_argument("name", metavar="ID|ALIAS")


def making_keys(store_url: str) -> str:
    """Return what makes a key of the servers with this ``--store-url``, in any shell: a command for
    one, after a line about it if the command alone does not say where the store is."""
    command = "quire keys create --alias me"
    place = store_place(store_url)
    if place.url is None:
        return f"export QUIRE_API_KEY=$({command})"
    if place.file is None:  # the URL may hold a password
        return f"in a shell with this server's QUIRE_STORE_URL:\nexport QUIRE_API_KEY=$({command})"
    url = f"sqlite:///{quote(str(place.file.absolute()))}"
    return f"export QUIRE_API_KEY=$(QUIRE_STORE_URL={url} {command})"


_Act = Callable[[KeyStore, argparse.Namespace], Awaitable[int]]


def _run(act: _Act, namespace: argparse.Namespace) -> int:
    values = {**environment_defaults(_StoreOptions, os.environ), **vars(namespace)}
    options = from_namespace(_StoreOptions, argparse.Namespace(**values))
    if options.store_url == "none":
        raise OptionError("--store-url none: without a store there are no stored keys")
    try:
        place = store_place(options.store_url)
    except ValueError as error:
        raise OptionError(f"--store-url: {error}") from None
    store = KeyStore(place)
    try:
        if act is not _create:
            _check_exists(place)
        return asyncio.run(_act(act, store, namespace))
    except StoreUnavailableError as error:
        why = error if error.__cause__ is None else _reason(error.__cause__, place)
        print(f"quire: {store.place} cannot be used: {why}", file=sys.stderr)
        return 1
    except (NoSuchKeyError, ValueError) as error:
        print(f"quire: {error}", file=sys.stderr)
        return 1


def _check_exists(place: StorePlace) -> None:
    """Raises ValueError for an SQLite file that does not exist: opening the store would make it."""
    if place.file is None:
        return
    try:
        place.file.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{place.file} does not exist; correct --store-url (QUIRE_STORE_URL), or make a first "
            "key with 'quire keys create'"
        ) from None
    except OSError:
        pass  # opening it says what is wrong


def _reason(error: BaseException, place: StorePlace) -> str:
    # Imported late, as all that loads SQLAlchemy.
    from service.store.driver_error import error_sentence
    from service.store.schema import database_url

    return error_sentence(error, database_url(place).password)


async def _act(act: _Act, store: KeyStore, namespace: argparse.Namespace) -> int:
    try:
        await store.prepare()
        return await act(store, namespace)
    finally:
        await store.close()


async def _create(store: KeyStore, namespace: argparse.Namespace) -> int:
    asked = {
        "alias": namespace.alias,
        "scopes": namespace.scope,
        "models": namespace.model,
        "service_class": namespace.service_class,
        "weight": namespace.weight,
        "priority": namespace.priority,
        **{name: getattr(namespace, name) for name in _LIMITS},
    }
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        grant = msgspec.convert(given, KeyGrant)
    except msgspec.ValidationError as error:
        raise ValueError(problem_in(error, KeyGrant).text) from None
    _check_output()
    made = await store.create(grant, namespace.expires)
    await _print_key(store, made)
    print(f"{made.key.id}: {key_summary(made.key)}. The key is not shown again.", file=sys.stderr)
    print(
        f"It is accepted by servers that run with --stored-keys on {store.place}.", file=sys.stderr
    )
    return 0


def _check_output() -> None:
    if sys.stdout is None:  # print() would do nothing
        raise ValueError("stdout is closed, so a key could not be printed; none was made")


async def _print_key(store: KeyStore, made: MadeKey) -> None:
    """Print the key alone to stdout, for KEY=$(quire keys create …). Raises ValueError."""
    try:
        print(made.text, flush=True)
    except OSError as error:
        discard_unwritten(error)
        await store.withdraw(made)  # no one has seen it
        raise ValueError(
            f"the key could not be printed ({error.strerror}), so {made.key.id} was revoked at once"
        ) from None


async def _list(store: KeyStore, namespace: argparse.Namespace) -> int:
    now = time.time()
    keys = [key for key in await store.keys() if namespace.all or key.is_valid(now)]
    if namespace.json:
        print(msgspec.json.format(msgspec.json.encode([_shown(key) for key in keys])).decode())
        return 0
    rows: list[Sequence[str]] = [_COLUMNS]
    for key in keys:
        times = (_date(each) for each in (key.created, key.expires, key.last_used))
        shown, alias = f"{key.shown}…", key.grant.alias
        rows.append((key.id, shown, alias, key.state(now), *times, _allows(key)))
    empty = f"There are no keys in {store.place}; make one with 'quire keys create'."
    print(_table(rows) if keys else empty)
    return 0


async def _show(store: KeyStore, namespace: argparse.Namespace) -> int:
    found = named(await store.keys(), namespace.name)
    if not found:
        raise NoSuchKeyError(f"There is no key with the id or alias '{namespace.name[:64]}'.")
    for key in found:
        print(msgspec.json.format(msgspec.json.encode(_shown(key))).decode())
    return 0


async def _rotate(store: KeyStore, namespace: argparse.Namespace) -> int:
    _check_output()
    made = await store.rotate(namespace.name, overlap=namespace.overlap, expires=namespace.expires)
    await _print_key(store, made)
    print(f"{made.key.id}: {key_summary(made.key)}. The key is not shown again.", file=sys.stderr)
    for key in made.replaced:
        ends = "is revoked" if key.revoked else f"is valid until {_date(key.expires)}"
        print(f"{key.id} ({key.shown}…) {ends}.", file=sys.stderr)
    return 0


async def _revoke(store: KeyStore, namespace: argparse.Namespace) -> int:
    for key in await store.revoke(namespace.name):
        print(f"revoked {key.id} ({key.shown}…) of {key.grant.alias}")
    return 0


def key_summary(key: StoredKey) -> str:
    """Return whose key it is and what it allows, in a line."""
    until = "" if key.expires is None else f", until {_date(key.expires)}"
    return f"a key of {key.grant.alias}, {_allows(key) or 'without limits'}{until}"


def _allows(key: StoredKey) -> str:
    """Return what a key allows beyond or below the usual; empty if nothing does."""
    grant = key.grant
    parts = (
        "" if grant.scopes == tuple(KeyScope) else "scope " + " and ".join(grant.scopes),
        "" if grant.models is None else "models " + " and ".join(grant.models),
        "" if grant.service_class is ServiceClass.STANDARD else f"class {grant.service_class}",
        "" if grant.weight == 1 else f"weight {grant.weight:g}",
        "priority" if grant.priority else "",
        limits_text(grant.limits),
    )
    return ", ".join(filter(None, parts))


def _shown(key: StoredKey) -> dict[str, Any]:
    """Return all but the digest."""
    fields = msgspec.to_builtins(key)
    del fields["digest"]
    return {**fields.pop("grant"), **fields, "state": key.state(time.time())}


def _date(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    try:
        found = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, ValueError):  # earlier releases stored any time
        return "after 9999"
    return found.strftime("%Y-%m-%d %H:%M UTC")


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
