"""Messages between ranks arrive whole and in order, until the end of the channel."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from engine.ranks.channel import Channel, encode_message
from engine.ranks.messages import Arrived, Beat, FromRank, RankFailed, RankProgress

SAID: list[FromRank] = [
    Arrived(),
    Beat(7),
    RankFailed(3, 40, "ValueError: ä\0", True),
    RankProgress("weights", 1, 2**40),
]


@pytest.fixture
def ends() -> Iterator[tuple[Channel[FromRank], Channel[FromRank], socket.socket]]:
    """Two ends, and the socket of the first."""
    here, there = socket.socketpair()
    ours: Channel[FromRank] = Channel(here, FromRank)
    theirs: Channel[FromRank] = Channel(there, FromRank)
    for end in (here, there):
        end.settimeout(30)
    yield ours, theirs, here
    ours.close()
    theirs.close()


Ends = tuple[Channel[FromRank], Channel[FromRank], socket.socket]


def test_a_frame_is_a_little_endian_length_and_a_message() -> None:
    frame = encode_message(Beat(7))
    (length,) = struct.unpack("<I", frame[:4])
    assert length == len(frame) - 4
    assert msgspec.msgpack.decode(frame[4:]) == {"type": "beat", "calls": 7}


def test_messages_arrive_in_order_whether_they_come_at_once_or_byte_by_byte(ends: Ends) -> None:
    ours, theirs, raw = ends
    frames = b"".join(map(encode_message, SAID))
    ours.send(frames)
    assert [theirs.receive() for _ in SAID] == SAID
    got: list[FromRank] = []
    for place in range(len(frames)):
        raw.sendall(frames[place : place + 1])
        got += theirs.read() or []
    assert got == SAID


def test_a_message_is_waited_for_until_the_deadline_even_if_a_byte_comes_now_and_then(
    ends: Ends,
) -> None:
    ours, theirs, raw = ends
    ours.send(encode_message(Beat(1)))
    began = time.monotonic()
    assert theirs.receive(began + 30) == Beat(1)
    done = threading.Event()

    def trickle() -> None:
        for byte in encode_message(RankFailed(1, 2, "x" * 1000, by_others=False)):
            if done.wait(0.05):
                return
            raw.sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    assert theirs.receive(began + 0.3) is None
    assert 0.2 < time.monotonic() - began < 20  # all of it takes 50
    done.set()
    thread.join()


def test_the_other_end_reads_what_was_sent_and_then_the_end(ends: Ends) -> None:
    ours, theirs, _ = ends
    for message in SAID:
        ours.send(encode_message(message))
    ours.shutdown()
    ours.shutdown()  # again does nothing
    assert [theirs.receive() for _ in SAID] == SAID
    assert theirs.receive() is None
    assert theirs.read() is None
    theirs.send(encode_message(Beat(1)))  # the other direction is open still
    assert ours.read() == [Beat(1)]


def test_a_connection_that_breaks_off_is_an_end_and_sending_to_it_an_error(ends: Ends) -> None:
    ours, theirs, raw = ends
    theirs.send(encode_message(Beat(1)))
    # What lies unread when an end is closed is a reset at the other.
    ours.close()
    assert raw.fileno() == -1
    assert theirs.receive() is None
    assert theirs.read() is None
    with pytest.raises(OSError, match="pipe"):
        theirs.send(encode_message(Beat(2)))


def test_threads_that_send_at_once_do_not_cut_into_each_other(ends: Ends) -> None:
    ours, theirs, _ = ends

    def send(number: int) -> None:
        for _ in range(5):
            ours.send(encode_message(RankFailed(number, 0, str(number) * 100_000, False)))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    got = [theirs.receive() for _ in range(20)]
    for thread in threads:
        thread.join(30)
    for number in range(4):
        assert got.count(RankFailed(number, 0, str(number) * 100_000, False)) == 5
