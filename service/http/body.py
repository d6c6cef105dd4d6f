"""Reads a request's body within its limits, and notices when the client leaves."""

from __future__ import annotations

import asyncio
import codecs
import zlib
from typing import Protocol

from litestar.types import Receive, Scope

from service.admission.drain import Drain
from service.errors import (
    BodyTooLargeError,
    ClientGoneError,
    InvalidRequestError,
    SlowSenderError,
    UnsupportedMediaTypeError,
)
from service.http.scope import CLIENT_STAYS, exchange_in, header
from service.serving.exchange import Exchange
from service.serving.limits import longest_seconds
from service.tenants.upload_room import Gained
from service.turns import my_turn

# Content types of HTML forms, which a page of any origin may send without a preflight request.
_FORM_TYPES = frozenset(
    {b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"}
)
# For a body that begins to arrive while the server shuts down.
_DRAINING_SECONDS = 1.0
# Decompressed at a time, so that other streams are not delayed.
_INFLATED_BYTES = 256 * 1024
_DEFAULT_SECONDS = 30.0
_LARGE_BYTES = 256 * 1024
# Each costs more than its bytes suggest.
_MOST_GZIP_MEMBERS = 16
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


async def read_body(scope: Scope, receive: Receive, *, limit: int) -> bytes:
    """Return the whole decompressed body ``as_utf8``. Never holds more than ``limit`` bytes of it.

    Raises UnsupportedMediaTypeError for a form's content type or an unknown encoding,
    InvalidRequestError for malformed chunks or UTF-16, BodyTooLargeError once more than ``limit``
    bytes have been announced, received or decompressed, OverloadedError when all arriving bodies
    together need too much memory, SlowSenderError when the bytes arrive too slowly, DrainingError
    when the server begins to shut down meanwhile, ClientGoneError when the client leaves before the
    end.
    """
    _check_type(scope)
    exchange = exchange_in(scope)
    if exchange is None:
        return as_utf8(await _read(scope, receive, None, limit, lambda _: None))
    with exchange.receiving() as gained:
        return as_utf8(await _read(scope, receive, exchange, limit, gained))


def as_utf8(body: bytes) -> bytes:
    """Return a JSON text without the byte order mark that some clients write, which RFC 8259 lets a
    reader ignore. Raises InvalidRequestError for UTF-16."""
    # The first character of JSON is ASCII: half of it is zero in UTF-16.
    if body.startswith(_UTF16_MARKS) or (len(body) > 1 and body[:2].count(0) == 1):
        raise InvalidRequestError(
            "This is not UTF-8 (it looks like UTF-16 or UTF-32). Send JSON in UTF-8."
        )
    return body.removeprefix(codecs.BOM_UTF8)


async def _read(
    scope: Scope, receive: Receive, exchange: Exchange | None, limit: int, gained: Gained
) -> bytes:
    decoder = _decoder(header(scope, b"content-encoding"), limit, gained)
    _check_announced(scope, limit)
    drain = None if exchange is None else exchange.drain
    seconds = _DEFAULT_SECONDS if exchange is None else exchange.receive_timeout
    if drain is not None and drain.refuses:
        seconds = min(seconds, _DRAINING_SECONDS)
    arrival = _Arrival(asyncio.timeout(seconds), drain, seconds)
    try:
        async with arrival.timeout:
            if drain is not None:
                drain.uploads.add(arrival.timeout)
            await _receive_all(receive, decoder, arrival, limit)
    except ClientGoneError:
        if header(scope, b"transfer-encoding") and _client_stays(scope):
            raise InvalidRequestError("The body's chunks are malformed.") from None
        raise
    except TimeoutError:
        if drain is not None and drain.refuses:
            raise drain.refusal() from None
        raise SlowSenderError(
            f"The body arrives too slowly: {arrival.size} bytes in {arrival.elapsed:.0f} s. It may "
            f"not pause for {seconds:g} s."
        ) from None
    finally:
        if drain is not None:
            drain.uploads.discard(arrival.timeout)
    if arrival.size > _LARGE_BYTES:
        await my_turn()  # several that are joined in one iteration of the loop would hold it
    return decoder.whole()


def _client_stays(scope: Scope) -> bool:
    """Return whether the client's connection is open. The HTTP server reports a body that it cannot
    read as if the client had left."""
    stays = scope["state"].get(CLIENT_STAYS)
    return stays is not None and stays()


class _Arrival:
    """The size of the body received so far, and the deadline for more."""

    def __init__(self, timeout: asyncio.Timeout, drain: Drain | None, seconds: float) -> None:
        self.timeout = timeout
        self.size = 0
        self._drain = drain
        self._seconds = seconds
        self._began = asyncio.get_running_loop().time()

    @property
    def elapsed(self) -> float:
        """In seconds."""
        return asyncio.get_running_loop().time() - self._began

    def gained(self, size: int) -> None:
        self.size += size
        if self._drain is not None and self._drain.refuses:
            return  # its deadline is already set
        paced = self._began + longest_seconds(self.size, self._seconds)
        paused = asyncio.get_running_loop().time() + self._seconds
        self.timeout.reschedule(min(paced, paused))


async def _receive_all(receive: Receive, decoder: _Decoder, arrival: _Arrival, limit: int) -> None:
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGoneError("The client left while sending the request.")
        if event["type"] == "http.request":
            piece = event["body"]
            if arrival.size + len(piece) > limit:
                raise BodyTooLargeError(f"The body may have at most {limit} bytes.")
            await decoder.feed(piece)
            if not event["more_body"]:
                return
            arrival.gained(len(piece))


def _check_announced(scope: Scope, limit: int) -> None:
    announced = header(scope, b"content-length")
    if announced and not announced.isdigit():
        raise InvalidRequestError("The Content-Length header is not a number.")
    if len(announced) > 18 or int(announced or 0) > limit:
        raise BodyTooLargeError(f"The body may have at most {limit} bytes.")


async def client_left(receive: Receive) -> None:
    """Return when the client closes its connection. Call it after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _check_type(scope: Scope) -> None:
    kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
    if kind in _FORM_TYPES:
        raise UnsupportedMediaTypeError(
            f"The Content-Type is {kind.decode()}, but bodies are JSON: send the header "
            "'Content-Type: application/json'."
        )


class _Decoder(Protocol):
    async def feed(self, piece: bytes) -> None:
        """Raises BodyTooLargeError, OverloadedError, or InvalidRequestError for data that cannot be
        decompressed."""

    def whole(self) -> bytes:
        """Raises InvalidRequestError if the end is missing."""


class _Plain:
    def __init__(self, gained: Gained) -> None:
        self._gained = gained
        self._pieces: list[bytes] = []

    async def feed(self, piece: bytes) -> None:
        self._gained(len(piece))
        self._pieces.append(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


class _Inflated:
    """Decompresses gzip (one or more members) or deflate, with or without a zlib header."""

    def __init__(self, encoding: str, limit: int, gained: Gained) -> None:
        self._encoding = encoding
        self._limit = limit
        self._gained = gained
        self._pieces: list[bytes] = []
        self._size = 0
        self._members = 0
        self._inflate: zlib._Decompress | None = None

    async def feed(self, piece: bytes) -> None:
        while piece:
            if self._inflate is None or self._inflate.eof:
                self._members += 1
                if self._members > _MOST_GZIP_MEMBERS:
                    raise InvalidRequestError(
                        f"The body has more than {_MOST_GZIP_MEMBERS} {self._encoding} members."
                    )
                self._inflate = zlib.decompressobj(self._window(piece[0]))
            try:
                text = self._inflate.decompress(
                    piece, min(_INFLATED_BYTES, self._limit + 1 - self._size)
                )
            except zlib.error as error:
                raise InvalidRequestError(
                    f"The body is not valid {self._encoding}, its declared Content-Encoding: "
                    f"{error}."
                ) from None
            self._size += len(text)
            if self._size > self._limit:
                raise BodyTooLargeError(
                    f"The body may have at most {self._limit} bytes when decompressed."
                )
            self._gained(len(text))
            self._pieces.append(text)
            piece = self._inflate.unconsumed_tail or self._inflate.unused_data
            if len(text) == _INFLATED_BYTES:
                await asyncio.sleep(0)

    def _window(self, first: int) -> int:
        """Return zlib's ``wbits``. Some clients' deflate has no header; a header's first byte ends
        in 8."""
        if self._encoding == "gzip":
            return 16 + zlib.MAX_WBITS
        return zlib.MAX_WBITS if first & 15 == zlib.DEFLATED else -zlib.MAX_WBITS

    def whole(self) -> bytes:
        if self._inflate is not None and not self._inflate.eof:
            raise InvalidRequestError(f"The {self._encoding} body is truncated.")
        return b"".join(self._pieces)


def _decoder(encoding: bytes, limit: int, gained: Gained) -> _Decoder:
    name = encoding.decode("latin-1").strip().lower()
    match name:
        case "" | "identity":
            return _Plain(gained)
        case "gzip" | "x-gzip" | "deflate":
            return _Inflated(name.removeprefix("x-"), limit, gained)
    raise UnsupportedMediaTypeError(
        f"The Content-Encoding '{name[:80]}' is not supported: send the body as it is, or "
        "compressed with gzip or deflate."
    )
