"""Random requests over HTTP and gRPC, made from the product's own schemas.

    python -m bench.fuzz --requests 5000

HTTP bodies are drawn from the server's OpenAPI document, gRPC messages from the descriptors; some
are then broken: a value of another type, beyond its bound, missing, unknown, or bytes that are not
a message at all. No answer may be a fault of the server, the worker and the engine must live, and a
client that streams a known text meanwhile must get it every time. The worker's memory is
compared after the first fifth and at the end.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bench.report import print_table, write_result
from bench.soak.server import resident_mib
from service.proto.quire.v1 import quire_pb2 as pb
from tests.e2e.quire_server import QuireServer, command_of, descendants, free_port

_MODEL = "simulated:instant,output=4-8,context=2048"
_NAME = "m"
_MOST_GROWTH_MIB = 64.0
_TEXTS = ("", "x", "Hello!", "\0", "ä" * 40, "\U0001f600", "null", "x" * 5000, "a\nb", "{}", "-1")
_NUMBERS = (0, 1, -1, 2, 7, 0.5, 1e308, -1e308, 2**31, 2**63, 2**64, 1e-9)
_FAULTS = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNIMPLEMENTED,
)
_DEEPEST = 6
_METHODS = {
    "Chat": pb.ChatRequest,
    "Generate": pb.GenerateRequest,
    "Embed": pb.EmbedRequest,
    "ListModels": pb.ListModelsRequest,
    "Abort": pb.AbortRequest,
}


class Bodies:
    """Draws JSON values from schemas. ``breaks``: the chance that a value is made invalid."""

    def __init__(self, document: dict[str, Any], dice: random.Random, breaks: float) -> None:
        self._schemas = document["components"]["schemas"]
        self._dice = dice
        self._breaks = breaks

    def draw(self, schema: Any, depth: int = 0) -> Any:
        dice = self._dice
        if dice.random() < self._breaks:
            return dice.choice((None, True, [], {}, *_TEXTS, *_NUMBERS))
        if "$ref" in schema:
            return self.draw(self._schemas[schema["$ref"].rpartition("/")[2]], depth + 1)
        if "default" in schema and dice.random() < 0.3:
            return schema["default"]
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self.draw(dice.choice(schema[key]), depth)
        if "enum" in schema:
            return dice.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        kind = schema.get("type", "string")
        return self._of_type(dice.choice(kind) if isinstance(kind, list) else kind, schema, depth)

    def _of_type(self, kind: str, schema: Any, depth: int) -> Any:
        dice = self._dice
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                count = schema.get("minItems", 0)
                count += 0 if depth > _DEEPEST else dice.randrange(3)
                return [self.draw(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "integer":
                low = schema.get("minimum", 0)
                return dice.choice((low, schema.get("maximum", low + 50), low + dice.randrange(50)))
            case "number":
                return dice.uniform(schema.get("minimum", 0), schema.get("maximum", 2))
            case "boolean":
                return dice.random() < 0.5
            case "null":
                return None
        return dice.choice(_TEXTS)

    def _object(self, schema: Any, depth: int) -> dict[str, Any]:
        dice, required = self._dice, schema.get("required", ())
        drawn = {
            name: self.draw(field, depth + 1)
            for name, field in schema.get("properties", {}).items()
            if name in required or (depth < _DEEPEST and dice.random() < 0.15)
        }
        if "model" in drawn and dice.random() < 0.9:
            drawn["model"] = _NAME  # otherwise most would end there
        if drawn and dice.random() < self._breaks:
            del drawn[dice.choice(list(drawn))]
        if dice.random() < self._breaks:
            drawn[dice.choice(_TEXTS)] = 1
        return drawn


def message_of(kind: type[Message], dice: random.Random, depth: int = 0) -> Message:
    """Return a message of this type with some random fields."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if dice.random() < 0.7:
            continue
        count = dice.randrange(3) if field.is_repeated else 1
        for _ in range(count):
            _set(made, field, dice, depth)
    return made


def _set(made: Any, field: Any, dice: random.Random, depth: int) -> None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return  # their keys and values are drawn elsewhere as fields of messages
    if entry is not None:
        if depth < _DEEPEST:
            drawn = message_of(entry._concrete_class, dice, depth + 1)
            target = getattr(made, field.name)
            (target.add() if field.is_repeated else target).CopyFrom(drawn)
        return
    value = _scalar(field, dice)
    if field.is_repeated:
        getattr(made, field.name).append(value)
    else:
        setattr(made, field.name, value)


def _scalar(field: Any, dice: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = dice.choice(_TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return dice.random() < 0.5
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return dice.choice((0.0, 0.5, 1.0, -1.0, 1e30, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return dice.choice((0, 1, 7, 2**31))
        case FieldDescriptor.CPPTYPE_ENUM:
            return dice.choice([value.number for value in field.enum_type.values])
    return dice.choice((0, 1, 2, 7, -1, 2**31 - 1))


class Fuzzer:
    """Sends requests and notes what was wrong. One for each thread."""

    def __init__(self, port: int, grpc_port: int, document: dict[str, Any], seed: int) -> None:
        self._dice = random.Random(seed)
        self._bodies = Bodies(document, self._dice, breaks=0.01)
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self._routes = [
            (path, operation["requestBody"]["content"]["application/json"]["schema"])
            for path, item in document["paths"].items()
            if "requestBody" in (operation := item.get("post", {}))
        ]
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, count: int) -> None:
        for number in range(count):
            if number % 3:
                self._by_http()
            else:
                self._by_grpc()
        self._http.close()
        self._channel.close()

    def _by_http(self) -> None:
        path, schema = self._dice.choice(self._routes)
        body = json.dumps(self._bodies.draw(schema)).encode()
        if self._dice.random() < 0.02:
            body = body[: self._dice.randrange(len(body))] + self._dice.randbytes(3)
        headers = {"content-type": "application/json"}
        try:
            self._http.request("POST", path, body, headers)
            reply = self._http.getresponse()
            said = reply.read()
        except (http.client.HTTPException, OSError) as error:
            self._http.close()
            self._note(f"HTTP {type(error).__name__}", f"{path} {error!r} {body[:2000]!r}")
            return
        fault = f"{path}: {said[:300]!r} {body[:2000]!r}" if reply.status >= 500 else ""
        self._note(f"HTTP {reply.status}", fault)

    def _by_grpc(self) -> None:
        name = self._dice.choice(list(_METHODS))
        sent = message_of(_METHODS[name], self._dice).SerializeToString()
        if self._dice.random() < 0.1:
            sent = self._dice.randbytes(self._dice.randrange(64))
        call = self._channel.unary_stream(f"/quire.v1.Quire/{name}")
        code = grpc.StatusCode.OK
        details = ""
        try:
            for _ in call(sent, timeout=60):
                pass
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        is_fault = code in _FAULTS or code is grpc.StatusCode.DEADLINE_EXCEEDED
        self._note(f"gRPC {code.name}", f"{name}: {details} {sent[:2000]!r}" if is_fault else "")

    def _note(self, result: str, fault: str) -> None:
        self.counts[result] += 1
        if fault:
            self.wrong.append(f"{result} {fault}")


class Companion(threading.Thread):
    """Streams the same seeded text again and again. ``different``: how often the text differed."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.stopping = threading.Event()
        self.told = self.different = 0
        self.text = self.tell()

    def tell(self) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        body = {"prompt": "Once", "max_tokens": 40, "seed": 1, "ignore_eos": True, "stream": True}
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        events = connection.getresponse().read().split(b"data: ")
        connection.close()
        chunks = [json.loads(event) for event in events if event.startswith(b"{")]
        return "".join(one["choices"][0]["text"] for one in chunks if one["choices"]).encode()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.different += self.tell() != self.text
            except (OSError, http.client.HTTPException, ValueError):
                self.different += 1
            self.told += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-write", dest="write", action="store_false", help="write no result")
    args = parser.parse_args()
    rpc = free_port()
    with QuireServer(_MODEL, "--served-model-name", _NAME, "--grpc-port", str(rpc)) as server:
        return _fuzz(server, rpc, args)


def _fuzz(server: QuireServer, rpc: int, args: argparse.Namespace) -> int:
    assert server.process is not None
    children = descendants(server.process.pid)
    worker = next(pid for pid in children if b"service.worker" in command_of(pid))
    document = json.loads(server.get("/openapi.json")[1])
    companion = Companion(server.port)
    companion.start()
    weights, begin = [], time.monotonic()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for part in range(5):
        share = args.requests // 5 // args.threads
        seeds = (args.seed + part * args.threads + number for number in range(args.threads))
        fuzzers = [Fuzzer(server.port, rpc, document, seed) for seed in seeds]
        with ThreadPoolExecutor(args.threads) as pool:
            list(pool.map(lambda fuzzer, n=share: fuzzer.run(n), fuzzers))
        for fuzzer in fuzzers:
            counts += fuzzer.counts
            wrong += fuzzer.wrong
        server.output()
        weights.append(resident_mib(worker) or 0.0)
    seconds = time.monotonic() - begin
    companion.stopping.set()
    companion.join(60)
    grown = weights[-1] - weights[0]
    if grown > _MOST_GROWTH_MIB:
        wrong.append(f"the worker grew by {grown:.0f} MiB, or is another")
    if companion.different or not companion.text:
        wrong.append(f"{companion.different} of {companion.told} texts differed")
    if server.output().count('"event":"died"'):
        wrong.append("a process died")
    rows = [{"answer": name, "requests": count} for name, count in sorted(counts.items())]
    print_table(rows)
    print(
        f"{counts.total() / seconds:.0f} requests a second; the worker grew by {grown:.1f} MiB; "
        f"{companion.told} texts meanwhile, {companion.different} differed"
    )
    for line in wrong[:20]:
        print(f"WRONG: {line}", file=sys.stderr)
    if args.write:
        facts: dict[str, Any] = {"requests": counts.total(), "seconds": seconds, "grown_mib": grown}
        facts |= {"texts": companion.told, "different": companion.different}
        print(write_result("fuzz", rows, **facts, wrong=len(wrong)))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
