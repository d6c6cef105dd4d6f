"""Reading a request's body within its bound, and noticing that the client left."""

from __future__ import annotations

from litestar.types import Receive, Scope

from service.errors import BodyTooLargeError, ClientGoneError, InvalidRequestError
from service.routes.exchange import header


async def read_body(scope: Scope, receive: Receive, *, limit: int) -> bytes:
    """The whole body. Raises BodyTooLargeError once more than ``limit`` bytes are announced or have
    come, ClientGoneError when the client leaves before the end."""
    announced = header(scope, b"content-length")
    if announced:
        if not announced.isdigit():
            raise InvalidRequestError("The Content-Length header is not a number.")
        if len(announced) > 18 or int(announced) > limit:
            raise BodyTooLargeError(f"The body may have at most {limit} bytes.")
    pieces: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGoneError("The client left while sending the request.")
        if event["type"] == "http.request":
            piece = event["body"]
            size += len(piece)
            if size > limit:
                raise BodyTooLargeError(f"The body may have at most {limit} bytes.")
            pieces.append(piece)
            if not event["more_body"]:
                return b"".join(pieces)


async def client_left(receive: Receive) -> None:
    """Returns when the client closes its connection; to be called after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
