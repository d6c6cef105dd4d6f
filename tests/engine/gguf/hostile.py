"""Makes GGUF files that lie: from a small right one, by changing its bytes or its fields."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import gguf
import numpy as np

Field = tuple[str, bytes]

_STRING, _ARRAY = 8, 9
_HUGE = (0, 1, 3, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62) + 1, (1 << 64) - 1)


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def small_file(path: Path) -> Path:
    """Write a right file with keys of every type and tensors of several."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.uint32", 7)
    writer.add_int8("a.int8", -3)
    writer.add_uint8("a.uint8", 200)
    writer.add_int16("a.int16", -300)
    writer.add_uint16("a.uint16", 60000)
    writer.add_int32("a.int32", -70000)
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_uint64("a.uint64", 1 << 60)
    writer.add_int64("a.int64", -(1 << 60))
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "Grüße")
    writer.add_array("a.strings", ["one", "two", ""])
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.floats", [0.5, 1.5])
    random = np.random.default_rng(0)
    for name, kind, shape in (
        ("plain", "F32", (3, 8)),
        ("half", "F16", (2, 4)),
        ("eight", "Q8_0", (4, 64)),
        ("four", "Q4_0", (2, 32)),
    ):
        values = random.standard_normal(shape, dtype=np.float32)
        dtype = getattr(gguf.GGMLQuantizationType, kind)
        writer.add_tensor(name, gguf.quantize(values, dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _key(random: Random) -> list[Field]:
    kind = random.choice([*range(14), 255, 1 << 31])
    value = random.randbytes(random.randrange(12))
    if kind == _STRING:
        value = text("x" * random.randrange(20))
    if kind == _ARRAY:
        element = random.choice([*range(14)])
        value = struct.pack("<IQ", element, random.choice(_HUGE)) + random.randbytes(24)
    return [
        ("key", text(random.choice(["general.alignment", "a", "a", "b" * random.randrange(2000)]))),
        ("type", struct.pack("<I", kind)),
        ("value", value),
    ]


def _info(random: Random) -> list[Field]:
    dims = [random.choice([1, 2, 32, 64, 256, *_HUGE]) for _ in range(random.randrange(6))]
    return [
        ("name", text(random.choice(["t", "u", "v" * random.randrange(2000)]))),
        ("dims", struct.pack("<I", random.choice([len(dims)] * 5 + [0, 5, 1 << 31]))),
        ("shape", struct.pack(f"<{len(dims)}Q", *dims)),
        ("kind", struct.pack("<I", random.choice([0, 1, 2, 8, 12, 14, 4, 5, 99, 1 << 31]))),
        ("offset", struct.pack("<Q", random.choice([0, 0, 32, 64, 4096, 31, *_HUGE]))),
    ]


def built(random: Random) -> bytes:
    """A file of random fields, of which most are allowed."""
    keys, infos = random.randrange(4), random.randrange(4)
    head = [
        ("magic", random.choice([b"GGUF"] * 9 + [b"GGML"])),
        ("version", struct.pack("<I", random.choice([3] * 9 + [2, 1, 4, 3 << 24]))),
        ("tensors", struct.pack("<Q", random.choice([infos] * 9 + list(_HUGE)))),
        ("keys", struct.pack("<Q", random.choice([keys] * 9 + list(_HUGE)))),
    ]
    fields = head + [f for _ in range(keys) for f in _key(random)]
    fields += [f for _ in range(infos) for f in _info(random)]
    data = b"".join(value for _, value in fields) + bytes(random.randrange(5000))
    return data[: random.randrange(len(data))] if random.random() < 0.2 else data


def changed(right: bytes, random: Random) -> bytes:
    """A right file with a few bytes changed, numbers overwritten, or its end cut off."""
    data = bytearray(right)
    # Mostly in the header, which is the part with a meaning.
    most = 700 if random.random() < 0.9 else len(data)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(most)
        if random.random() < 0.5:
            data[place] = random.randrange(256)
        else:
            data[place : place + 8] = struct.pack("<Q", random.choice(_HUGE))
    if random.random() < 0.3:
        del data[random.randrange(len(data)) :]
    return bytes(data)


def hostile_file(right: bytes, seed: int) -> bytes:
    random = Random(seed)
    return built(random) if random.random() < 0.5 else changed(right, random)
