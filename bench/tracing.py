"""What telemetry costs the API worker for each request, by the share of requests that is traced.

    python -m bench.tracing [--requests N]

The same records go through telemetry as in the worker (metrics, log line, spans with events and
links to steps, which are exported over HTTP to a receiver in another process), with no endpoint and
at several sampling ratios, in rounds that take turns. CPU time of all threads, microseconds a
request, the best round of each; the export thread's share is included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from bench.report import print_table
from engine.messages import Finished, FinishReason
from observability.admin_api import EventKind
from observability.logging import configure
from observability.otlp import OtlpTracer
from observability.tracing import Tracer
from service.engine.happenings import Happening, LongStep
from service.telemetry.record import Interval, RequestRecord
from service.telemetry.requests import Telemetry

ROUNDS = 6
_RECEIVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextmanager
def trace_receiver() -> Iterator[str]:
    """An OTLP endpoint in another process that accepts everything; gives its address."""
    command = [sys.executable, "-c", _RECEIVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        try:
            yield f"http://127.0.0.1:{receiver.stdout.readline().strip()}"
        finally:
            receiver.terminate()


def answered(index: int) -> RequestRecord:
    """A streamed answer of 16 tokens that went through every phase but flush."""
    begin = 1000.0
    sequence = Finished(
        handle=index,
        reason=FinishReason.LENGTH,
        prompt_tokens=20 + index % 500,
        cached_tokens=16,
        output_tokens=16,
        preemptions=0,
        arrival_time=begin,
        queued_time=begin + 0.004,
        first_scheduled_time=begin + 0.005,
        first_token_time=begin + 0.010,
        last_token_time=begin + 0.100,
        finished_time=begin + 0.100,
    )
    return RequestRecord(
        request_id=f"req_{uuid.uuid4().hex}",
        route="chat_completions",
        http_method="POST",
        http_route="/v1/chat/completions",
        received_time=begin,
        received_wall_ns=time.time_ns(),
        model="m",
        operation="chat",
        response_id=f"chatcmpl-{uuid.uuid4().hex}",
        stream=True,
        max_tokens=16,
        temperature=1.0,
        top_p=1.0,
        status=200,
        outcome="length",
        waiting=0,
        finish_reasons=["length"],
        prompt_tokens=sequence.prompt_tokens,
        cached_tokens=16,
        output_tokens=16,
        intervals=[
            Interval("receive", begin, begin + 0.001),
            Interval("render", begin + 0.0015, begin + 0.002),
            Interval("tokenize", begin + 0.002, begin + 0.003),
        ],
        prepared_time=begin + 0.0035,
        first_token_time=begin + 0.011,
        last_token_time=begin + 0.100,
        ended_time=begin + 0.101,
        sequences=[sequence],
        choices_happenings=[
            *(
                (0, Happening(EventKind.OUTPUT, begin + 0.01 + 0.006 * number, number))
                for number in (1, 2, 4, 8, 16)
            ),
            (0, Happening(EventKind.GAP, begin + 0.05, 0.025)),
        ],
        # which 32 requests have in common
        longest_steps=[
            LongStep(begin + index // 32 + 0.01 * one, 0.03, 64, 32) for one in (1, 2, 3)
        ],
    )


def measured(telemetry: Telemetry, requests: int, tracer: Tracer | None) -> float:
    """CPU seconds of one round."""
    records = [answered(index) for index in range(requests)]
    begin = time.process_time()
    for record in records:
        telemetry.request_started(record)
        telemetry.request_described(record)
        telemetry.first_token(record)
        telemetry.request_finished(record)
    if isinstance(tracer, OtlpTracer):
        tracer.flush()
    return time.process_time() - begin


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tracing", description=__doc__)
    parser.add_argument("--requests", type=int, default=700, help="in each round (%(default)s)")
    requests = parser.parse_args(argv).requests
    with trace_receiver() as endpoint, open(os.devnull, "wb", buffering=0) as nowhere:
        configure(log_format="json", stream=nowhere)
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        os.environ["OTEL_TRACES_SAMPLER"] = "traceidratio"
        tracers: dict[str, Tracer | None] = {"no endpoint": None}
        for ratio in (0.0, 0.01, 0.1, 1.0):
            os.environ["OTEL_TRACES_SAMPLER_ARG"] = str(ratio)
            tracers[f"{ratio:.0%}"] = OtlpTracer("http/protobuf", version="bench")
        sides = {
            name: Telemetry(["m"], version="bench", tracer=tracer)
            for name, tracer in tracers.items()
        }
        found: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, telemetry in sides.items():
                seconds = measured(telemetry, requests, tracers[name])
                found[name].append(seconds / requests * 1e6)
        least = {name: min(rounds) for name, rounds in found.items()}
        print_table(
            [
                {"traced": name, "us": us, "more than without": us - least["no endpoint"]}
                for name, us in least.items()
            ]
        )
        for name, tracer in tracers.items():
            if tracer is not None and tracer.dropped_spans():
                print(f"{name}: {tracer.dropped_spans()} spans were dropped, so it is too low")
        for telemetry in sides.values():
            telemetry.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
