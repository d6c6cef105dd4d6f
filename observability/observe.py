"""``python -m observability.observe``: Prometheus and alertmanager with Quire's rules against a
running server, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from observability.alerts.files import RULES

PROMETHEUS = "prometheus"
ALERTMANAGER = "prometheus-alertmanager"
_PACKAGES = {PROMETHEUS: "prometheus", ALERTMANAGER: "prometheus-alertmanager"}
_START_SECONDS = 30.0
_INTERVALS = (0.1, 3600.0)
_NO_METRICS = (
    "{} does not answer (yet). With API keys it is on the admin port: --target 127.0.0.1:18000"
)
_KEY_NEEDED = "{} needs a key with the scope read: --key-file FILE"
_KEY_REFUSED = "{} refuses the key in {}"


class Addresses(NamedTuple):
    prometheus: str
    alertmanager: str


class NotStartedError(Exception):
    """A program is missing or did not start; the message says which and what to do."""


def missing_programs() -> list[str]:
    """Return the Debian packages to install."""
    return [package for program, package in _PACKAGES.items() if shutil.which(program) is None]


def prometheus_config(
    target: str, rules: Path, alertmanager: str, seconds: float, key_file: Path | None = None
) -> Mapping[str, object]:
    """``target``: host and port of the server. ``seconds``: between scrapes. ``key_file``: has the
    key that /metrics needs, if any."""
    milliseconds = f"{round(seconds * 1000)}ms"
    job: dict[str, object] = {"job_name": "quire", "static_configs": [{"targets": [target]}]}
    if key_file is not None:
        job["authorization"] = {"credentials_file": str(key_file.resolve())}
    return {
        "global": {
            "scrape_interval": milliseconds,
            "scrape_timeout": milliseconds,
            "evaluation_interval": milliseconds,
        },
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [job],
    }


def alertmanager_config(webhook: str | None) -> Mapping[str, object]:
    """``webhook``: receives the alerts, if any, at most a second after they fire."""
    receiver: dict[str, object] = {"name": "all"}
    if webhook is not None:
        receiver["webhook_configs"] = [{"url": webhook, "send_resolved": True}]
    route = {
        "receiver": "all",
        "group_by": ["alertname", "instance"],
        "group_wait": "1s",
        "group_interval": "1s",
        "repeat_interval": "4h",
    }
    return {"route": route, "receivers": [receiver]}


@contextmanager
def observing(
    target: str,
    directory: Path,
    *,
    rules: Path = RULES,
    webhook: str | None = None,
    seconds: float = 5.0,
    key_file: Path | None = None,
    port: int = 0,
    alertmanager_port: int = 0,
) -> Iterator[Addresses]:
    """Run both programs; ``directory`` has their files, ports of 0 are any free ones. Raises
    NotStartedError."""
    if missing := missing_programs():
        raise NotStartedError(f"not installed: apt-get install {' '.join(missing)}")
    prometheus = f"127.0.0.1:{port or _free_port()}"
    alertmanager = f"127.0.0.1:{alertmanager_port or _free_port()}"
    first, second = directory / "prometheus.json", directory / "alertmanager.json"
    config = prometheus_config(target, rules.resolve(), alertmanager, seconds, key_file)
    first.write_text(json.dumps(config))  # JSON is YAML
    second.write_text(json.dumps(alertmanager_config(webhook)))
    with ExitStack() as running:
        running.enter_context(
            _process(
                [
                    ALERTMANAGER,
                    f"--config.file={second}",
                    f"--storage.path={directory / 'alerts'}",
                    f"--web.listen-address={alertmanager}",
                    "--cluster.listen-address=",
                    "--log.level=error",
                ],
                f"http://{alertmanager}/-/ready",
            )
        )
        running.enter_context(
            _process(
                [
                    PROMETHEUS,
                    f"--config.file={first}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address={prometheus}",
                    "--enable-feature=exemplar-storage",
                    "--log.level=error",
                ],
                f"http://{prometheus}/-/ready",
            )
        )
        yield Addresses(f"http://{prometheus}", f"http://{alertmanager}")


@contextmanager
def _process(command: list[str], ready_url: str) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        _wait(lambda: _answers(ready_url), process, command[0])
        yield
    finally:
        process.terminate()
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str) -> None:
    tick = threading.Event()
    for _ in range(round(_START_SECONDS / 0.05)):
        if process.poll() is not None:
            raise NotStartedError(f"{name} ended with status {process.returncode}, see above")
        if ready():
            return
        tick.wait(0.05)
    raise NotStartedError(f"{name} did not answer within {_START_SECONDS:g} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):  # noqa: S310 - our own address
            return True
    except OSError:
        return False


def metrics_problem(target: str, key_file: Path | None) -> str | None:
    """Say why the metrics of ``target`` cannot be read now."""
    url = f"http://{target}/metrics"
    request = urllib.request.Request(url)
    try:
        if key_file is not None:
            request.add_header("authorization", f"Bearer {key_file.read_text().strip()}")
        with urllib.request.urlopen(request, timeout=1):  # noqa: S310 - http
            return None
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED:
            return _NO_METRICS.format(url)
        return _KEY_NEEDED.format(url) if key_file is None else _KEY_REFUSED.format(url, key_file)
    except OSError as error:
        if key_file is not None and error.filename == str(key_file):
            return f"cannot read {key_file}: {error.strerror}"
        return _NO_METRICS.format(url)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def target(text: str) -> str:
    """Return host and port of a server, from those or from its URL."""
    try:
        parts = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        port = None
    if port is None or text.removeprefix("http://").removesuffix("/") != parts.netloc:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, or http://HOST:PORT (got {text!r})")
    return parts.netloc


def _rules(text: str) -> Path:
    path = Path(text)
    if not path.is_file():  # Prometheus would start without any rules
        raise argparse.ArgumentTypeError(f"no such file: {text}")
    return path


def _interval(text: str) -> float:
    least, most = _INTERVALS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        raise argparse.ArgumentTypeError(f"must be {least:g} to {most:g} seconds (got {text!r})")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make observe ARGS=…", description=__doc__)
    parser.add_argument(
        "--target", type=target, default="127.0.0.1:8000", help="host:port of the server"
    )
    parser.add_argument("--key-file", type=Path, help="has the key that /metrics needs, if any")
    parser.add_argument("--webhook", help="URL that receives the alerts")
    parser.add_argument("--rules", type=_rules, default=RULES, help="rule file")
    parser.add_argument("--interval", type=_interval, default=5.0, help="seconds between scrapes")
    parser.add_argument("--port", type=int, default=9090, help="of Prometheus; 0: any free one")
    parser.add_argument(
        "--alertmanager-port", type=int, default=9093, help="of alertmanager; 0: any free one"
    )
    return parser


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    if problem := metrics_problem(options.target, options.key_file):
        print(problem, file=sys.stderr)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="quire-observe-") as directory,
            observing(
                options.target,
                Path(directory),
                rules=options.rules,
                webhook=options.webhook,
                seconds=options.interval,
                key_file=options.key_file,
                port=options.port,
                alertmanager_port=options.alertmanager_port,
            ) as addresses,
        ):
            print(f"Prometheus    {addresses.prometheus}", flush=True)
            print(f"  rules       {addresses.prometheus}/rules", flush=True)
            print(f"alertmanager  {addresses.alertmanager}", flush=True)
            print("Ctrl-C stops both.", flush=True)
            stop.wait()
    except NotStartedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
