"""Follows a generation to its end: as a stream of any API, or until its answer is complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from observability.logging import get_logger
from service.errors import InternalError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import TextDelta
from service.output.tags import MOST_SPACE
from service.serving.exchange import Exchange

_log = get_logger()

Piece = TypeVar("Piece")
Piece_co = TypeVar("Piece_co", covariant=True)
Piece_contra = TypeVar("Piece_contra", contravariant=True)


# What surrounds a text as JSON in a chunk that says nothing else.
TextFrame = tuple[bytes, bytes]

_NOT_PLAIN = -2


class AnswerStream(Protocol[Piece_co]):
    """Encodes a stream (as SSE bytes, for example). Call ``begin``, ``advance`` as often as needed,
    then ``end``, or at any point ``fail``, which returns the API's event for a failed stream. The
    pieces of an ``advance`` are encoded lazily, each with bounded work; an event may be split among
    several.

    ``text_frame`` is not None if the pieces are bytes and, until ``advance`` is called again, each
    ``TextDelta`` of the only choice becomes a chunk that differs in nothing but the text. Whoever
    sends such chunks calls ``passed`` before ``advance`` or ``end``."""

    def text_frame(self) -> TextFrame | None: ...

    def passed(self, choice: Choice) -> None: ...

    def begin(self) -> Piece_co: ...

    def advance(self, choices: list[Choice]) -> Iterable[Piece_co]: ...

    def end(self) -> Piece_co: ...

    def fail(self, error: QuireError) -> Piece_co: ...


class Answer(Protocol):
    """Encodes a complete answer. Call ``follow`` as tokens arrive and ``whole`` (possibly twice) at
    the end; it returns the answer's JSON in pieces that are encoded lazily, each with bounded work.
    """

    def follow(self, choices: list[Choice]) -> None: ...

    def whole(self) -> Iterable[bytes]: ...

    def stream(self) -> AnswerStream[bytes]: ...


# Awaited when an answer is ready, before its end is sent. False: what the end says is no longer
# true, so it must be encoded again. Raises QuireError if the end must not be sent as a success.
Commit = Callable[[], Awaitable[bool]]


async def complete(exchange: Exchange, generation: Generation, answer: Answer) -> None:
    """Return once the whole answer is generated. Raises QuireError when the engine fails."""
    while not generation.done:
        answer.follow(await generation.advance())
        if generation.first_token_time is not None:
            exchange.note_first_token(generation.first_token_time)


class Sender(Protocol[Piece_contra]):
    """``write`` sends a piece; False: await ``drained`` before the next one."""

    def write(self, piece: Piece_contra, /) -> bool: ...

    async def drained(self) -> None: ...


class Outlet(Generic[Piece]):
    """Where a stream's pieces may be sent in the call that takes the tokens, without waking its
    task. The task's reader sets ``sender`` before it reads, if it takes pieces so."""

    def __init__(self) -> None:
        self.sender: Sender[Piece] | None = None


class _Push(Generic[Piece]):
    """Sends what the engine's messages bring, one piece for each, while the sender keeps up."""

    __slots__ = (
        *("_advance", "_choices", "_error", "_full", "_generation", "_only", "_over", "_rest"),
        *("_sender", "_write"),
    )

    def __init__(
        self, generation: Generation, stream: AnswerStream[Piece], sender: Sender[Piece]
    ) -> None:
        self._generation = generation
        self._choices = generation.choices
        self._only = self._choices[0] if len(self._choices) == 1 else None
        self._advance = stream.advance
        self._sender = sender
        self._write = sender.write
        # Done when the task has to continue: one of the following says why.
        self._over: asyncio.Future[None] | None = None
        self._full = False
        self._rest: Iterable[Piece] = ()
        self._error: Exception | None = None

    async def run(self) -> Iterable[Piece]:
        """Return when the generation is done, or what comes next needs the task: the pieces that
        were not sent. Raises what taking or encoding tokens raised."""
        self._full, self._rest, self._error = False, (), None
        waker, only = self._generation.waker, self._only
        over = self._over = asyncio.get_running_loop().create_future()
        if only is not None:
            only.sequence.follower = self._take
        waker.follow(self._take)
        try:
            await over
        finally:
            self._over = None
            waker.unfollow()
            self._settle()
            if only is not None:
                only.sequence.follower = None
                if len(only.sequence.generated) > only.count:
                    waker.wake()  # the calls for these tokens came, or will come, too late
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # whose traceback refers to this call
        if self._full:
            await self._sender.drained()
        return self._rest

    def _take(self) -> None:
        """Send what has arrived, or let the task continue."""
        over, generation, only = self._over, self._generation, self._only
        if over is None or over.done():
            return
        try:
            if only is not None and only.advance_by_one():
                generation.waker.clear()
                pieces = self._advance(self._choices)
            else:
                pieces = self._advance(generation.collect())
            if type(pieces) is not tuple or len(pieces) > 1:
                self._rest = pieces
            else:
                self._full = any(pieces) and not self._write(pieces[0])
                if not (self._full or generation.done or generation.behind):
                    return
        except Exception as error:
            self._error = error
        over.set_result(None)

    def _settle(self) -> None:
        """Give back what is held of other objects' state: nothing here."""


class _TextPush(_Push[bytes]):
    """Also logs and sends plain tokens (see ``PlainTexts``) itself.

    With hundreds of streams most of a token's time goes into fetching the stream's objects from
    memory. So what a plain token needs is held here, close together, and is given back to its
    owners before anything else is done.
    """

    __slots__ = (
        *("_count", "_covered", "_log", "_passed", "_prefix", "_quoted", "_send", "_sequence"),
        *("_holds_space", "_space", "_suffix", "_text_frame", "_whole"),
    )

    def __init__(
        self,
        generation: Generation,
        stream: AnswerStream[bytes],
        sender: Sender[bytes],
    ) -> None:
        super().__init__(generation, stream, sender)
        self._text_frame = stream.text_frame
        self._passed = stream.passed
        self._prefix = self._suffix = b""
        choice = self._choices[0]
        self._sequence = choice.sequence
        self._log = choice.events
        self._send = sender.write
        self._count = _NOT_PLAIN  # else the number of tokens processed
        self._covered = 0  # by events
        self._space = ""  # of the processed tokens without an event yet
        self._holds_space = False
        self._whole: Sequence[str] = ()
        self._quoted: Mapping[str, bytes] = {}

    def _take(self) -> None:
        sequence = self._sequence
        generated = sequence.generated
        count = len(generated)
        if count == self._count + 1 and sequence.finished is None and sequence.failure is None:
            token, whole = generated[-1], self._whole
            text = whole[token] if token < len(whole) else ""
            space = self._space
            if space and text:  # some tokens have no text by themselves
                text = space + text
            quoted = self._quoted.get(text)
            if quoted is not None:
                self._log.append(TextDelta(text, self._covered, count))
                self._count = self._covered = count
                self._space = ""
                try:
                    if self._send(self._prefix + quoted + self._suffix):
                        return
                    self._full = True
                except Exception as error:
                    self._error = error
                self._settle()
                self._continue_task()
                return
            if self._holds_space and text.isspace() and len(text) <= MOST_SPACE:
                self._space = text
                self._count = count
                return
        elif count == self._count and not self._generation.waker.is_woken:
            return  # another call has sent the token
        try:
            self._settle()
        except Exception as error:
            self._error = error
            self._continue_task()
            return
        super()._take()
        self._hold()

    def _continue_task(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _hold(self) -> None:
        frame, over = self._text_frame(), self._over
        if frame is None or over is None or over.done():
            return
        choice = self._choices[0]
        texts = choice.plain_texts()
        if texts is not None:
            self._prefix, self._suffix = frame
            self._whole, self._quoted, self._holds_space, self._covered = texts
            self._count = choice.count

    def _settle(self) -> None:
        count, self._count = self._count, _NOT_PLAIN
        if count != _NOT_PLAIN:
            choice = self._choices[0]
            choice.passed(self._covered, count)
            self._space = ""
            self._passed(choice)


def _new_push(
    generation: Generation, stream: AnswerStream[Piece], sender: Sender[Piece]
) -> _Push[Piece]:
    if len(generation.choices) > 1:
        return _Push(generation, stream, sender)
    # A stream whose pieces are not bytes has no text frame, so it is never sent bytes.
    return cast(_Push[Piece], _TextPush(generation, cast(Any, stream), cast(Any, sender)))


async def stream_events(
    exchange: Exchange,
    generation: Generation,
    stream: AnswerStream[Piece],
    commit: Commit | None = None,
    outlet: Outlet[Piece] | None = None,
    left: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Piece, None]:
    """Yield the stream's pieces, up to its own last event, for success or failure; but not those
    that could be sent to the ``outlet``. ``left`` is called if the stream has begun and its reader
    leaves before its end."""
    try:
        opening = stream.begin()
        if opening:
            yield opening
        first = True
        push: _Push[Piece] | None = None
        while not generation.done:
            if push is None or generation.behind:
                pieces = stream.advance(await generation.advance())
            else:
                pieces = await push.run()
            if first and generation.first_token_time is not None:
                exchange.note_first_token(generation.first_token_time)
                first = False
                if outlet is not None and outlet.sender is not None:
                    push = _new_push(generation, stream, outlet.sender)
            further = False
            for piece in pieces:
                if further:
                    await asyncio.sleep(0)
                if piece:
                    yield piece
                further = True
        ending = stream.end()
        if commit is not None and not await commit():
            ending = stream.end()
        exchange.succeed(outcome_of(generation))
        yield ending
    except (GeneratorExit, asyncio.CancelledError):
        left()
        raise
    except Exception as error:
        yield _failed(exchange, stream, error)


def _failed(exchange: Exchange, stream: AnswerStream[Piece], error: Exception) -> Piece:
    """Record that the stream ends with this error, and return its last event."""
    if not isinstance(error, QuireError):
        _log.exception("a stream failed", request_id=exchange.record.request_id)
        error = InternalError("The server had an error while processing the request.")
    exchange.fail(error)
    return stream.fail(error)


def outcome_of(generation: Generation) -> str:
    """Return the request's outcome, which is its first choice's finish reason."""
    finished = generation.choices[0].finished
    assert finished is not None
    return finished.reason
