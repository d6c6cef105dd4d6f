"""Makes safetensors files that lie: from random headers, or by changing a right file."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

_DTYPES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "F8_E4M3": 1, "BOOL": 1, "F64": 8}
_HUGE = (-1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 64) - 1, 1 << 70, 1.5, "8", None)


def _entry(random: Random, begin: int) -> tuple[dict[str, Any], int]:
    """A tensor that begins at ``begin``, mostly a right one, and where it ends."""
    dtype = random.choice(list(_DTYPES))
    shape: list[Any] = [random.randrange(6) for _ in range(random.randrange(4))]
    size = _DTYPES[dtype]
    for count in shape:
        size *= count
    offsets: list[Any] = [begin, begin + size]
    entry: dict[str, Any] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    match random.randrange(30):
        case 0:
            entry["dtype"] = random.choice(["F7", "", None, 4, "f32", "x" * 5000])
        case 1:
            entry["shape"] = random.choice(
                [shape * 2 + [2], _HUGE[0], None, [random.choice(_HUGE)]]
            )
        case 2 | 3:
            offsets[random.randrange(2)] = random.choice(_HUGE)
        case 4:
            entry["data_offsets"] = random.choice([[], [begin], [offsets[1], begin + 9, 0], None])
        case 5:
            offsets[0] = max(0, begin - random.randrange(1, 9))  # overlaps the one before
        case 6:
            offsets[1] += random.randrange(1, 9)
        case 7:
            del entry[random.choice(list(entry))]
    return entry, begin + size


def built(random: Random) -> bytes:
    """A file of random tensors, of which most are right."""
    header: dict[str, Any] = {}
    end = 0
    for number in range(random.randrange(5)):
        entry, end = _entry(random, end)
        header[random.choice([f"t{number}"] * 9 + ["", "t0", "é" * 1000])] = entry
    if random.random() < 0.2:
        header["__metadata__"] = random.choice([{"format": "pt"}, {"a": 1}, [], "x", None, {}])
    text = json.dumps(header, ensure_ascii=random.random() < 0.5).encode()
    text += b" " * random.choice([0, 0, 1, 8])
    length = random.choice(
        [len(text)] * 9 + [0, len(text) - 1, len(text) + 1, 1 << 40, (1 << 64) - 1]
    )
    data = struct.pack("<Q", max(0, length)) + text + bytes(random.choice([end] * 9 + [0, end + 1]))
    return data[: random.randrange(len(data))] if random.random() < 0.1 else data


def changed(right: bytes, random: Random) -> bytes:
    """A right file with a few bytes of its header changed, a part of it repeated, or cut."""
    data = bytearray(right)
    header = 8 + struct.unpack_from("<Q", right)[0]
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(header)
        match random.randrange(4):
            case 0:
                data[place] = random.randrange(256)
            case 1:
                data[place] = random.choice(b'0123456789[]{},:"-')
            case 2:
                struct.pack_into(
                    "<Q", data, 0, random.choice([0, 1, header, 1 << 33, (1 << 64) - 1])
                )
            case _:
                data[place:place] = data[place : place + random.randrange(40)]
    if random.random() < 0.2:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def hostile_file(right: bytes, seed: int) -> bytes:
    random = Random(seed)
    return built(random) if random.random() < 0.5 else changed(right, random)
