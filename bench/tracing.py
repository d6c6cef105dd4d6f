"""Measures what tracing costs the API worker: its CPU time for the spans of one request.

    python -m bench.tracing [--requests N]

A request's record is converted to spans, encoded, queued and exported over HTTP to a receiver in
another process, by the same code as in the worker. ``finish`` is everything else that telemetry
does at the end of a request: metrics and the log line. The best of several rounds, in microseconds
of CPU time of all threads; the export thread's share is included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from engine.messages import Finished, FinishReason
from observability.logging import configure
from observability.otlp import OtlpTracer
from service.telemetry.record import Interval, RequestRecord
from service.telemetry.requests import Telemetry
from service.telemetry.spans import phase_spans, server_span

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
    )


def best(work: Callable[[list[RequestRecord]], None], requests: int) -> float:
    """CPU microseconds for each request."""
    found = []
    for _ in range(ROUNDS):
        records = [answered(index) for index in range(requests)]
        begin = time.process_time()
        work(records)
        found.append(time.process_time() - begin)
    return min(found) / requests * 1e6


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tracing", description=__doc__)
    parser.add_argument("--requests", type=int, default=700, help="in each round (%(default)s)")
    requests = parser.parse_args(argv).requests
    command = [sys.executable, "-c", _RECEIVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = receiver.stdout.readline().strip()
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        tracer = OtlpTracer("http/protobuf", version="bench")

        def traced(records: list[RequestRecord]) -> None:
            for record in records:
                tracer.write(tracer.begin(None, None), server_span(record), phase_spans(record))
            tracer.flush()

        spans = 1 + len(list(phase_spans(answered(0))))
        print(f"spans: {best(traced, requests):.0f} us of CPU a request with {spans} spans")
        if tracer.dropped_spans():
            print(f"{tracer.dropped_spans()} spans were dropped: the figure is too low")
        tracer.close()
        receiver.terminate()
    with open(os.devnull, "wb", buffering=0) as nowhere:
        configure(log_format="json", stream=nowhere)
        telemetry = Telemetry(["m"], version="bench")

        def finished(records: list[RequestRecord]) -> None:
            for record in records:
                telemetry.request_started(record)
                telemetry.request_finished(replace(record))

        print(f"finish: {best(finished, requests):.0f} us of CPU a request")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
