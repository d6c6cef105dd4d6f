"""The ``quire`` command as it is typed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cli import main
from service.hub.place import ModelPlace, Record
from tests.e2e.quire_server import ROOT, QuireServer, until
from tests.service.tiny_checkpoint import write_tiny_checkpoint

SMALL = ("--load-format", "dummy", "--threads", "1", "--kv-cache-memory", str(64 << 20))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    checkpoint = write_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")
    with QuireServer(str(checkpoint), *SMALL) as running:
        yield running


def quire(
    *arguments: str, text: str = "", environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments],
        cwd=ROOT,
        input=text,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_version_and_help_name_the_commands() -> None:
    assert re.fullmatch(r"quire \S+\n", quire("--version").stdout)
    shown = quire("--help").stdout
    for command in ("serve", "chat", "dashboard", "doctor"):
        assert re.search(rf"^    {command}\s", shown, re.MULTILINE)


def test_serves_help_shows_each_flag_with_its_bounds_default_and_variable() -> None:
    shown = " ".join(quire("serve", "--help").stdout.split())
    for words in (
        "--port N",
        "QUIRE_PORT",
        "--max-num-seqs N",
        "QUIRE_MAX_NUM_SEQS",
        "--served-model-name",
        "--drain-timeout",
        "default: 30.0",
    ):
        assert words in shown


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        (("--port", "99999"), {}, "--port"),
        (("--max-num-seqs", "0"), {}, "--max-num-seqs"),
        (("--dtype", "int3"), {}, "--dtype"),
        (("--no-such-flag",), {}, "--no-such-flag"),
        (("--model", "B"), {"QUIRE_MODEL": "C"}, "and B; give one of them"),
        ((), {"QUIRE_PORT": "http"}, "QUIRE_PORT"),
        ((), {"QUIRE_API_KEY": ""}, "QUIRE_API_KEY: must not be empty"),
        (("--api-key", ""), {}, "--api-key: must not be empty"),
        ((), {"QUIRE_ADMIN_KEY": "read:me="}, "--admin-key: key 1 is empty after 'read:me='"),
    ],
)
def test_a_wrong_setting_is_a_usage_error_that_names_it(
    arguments: tuple[str, ...], environ: dict[str, str], words: str, tmp_path: Path
) -> None:
    model = str(write_tiny_checkpoint(tmp_path / "m"))
    done = quire("serve", model, *arguments, environ=environ)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("arguments", "usage", "error"),
    [
        (
            ("serve", "--max-model-lenn", "3"),
            "usage: quire serve [MODEL]",
            "quire serve: error: unknown arguments: --max-model-lenn (nearest: --max-model-len)",
        ),
        (
            ("keys", "list", "--al"),
            "usage: quire keys list",
            "quire keys list: error: unknown arguments: --al (nearest: --all)",
        ),
        (
            ("keys", "--jsn", "list"),
            "usage: quire keys",
            "quire keys list: error: unknown arguments: --jsn (nearest: --json)",
        ),
        (
            ("serve", "\u2014api-key=sk-1"),
            "usage: quire serve [MODEL]",
            "quire serve: error: unknown arguments: \u2014api-key (nearest: --api-key)",
        ),
        (
            ("keys", "-store-url", "postgresql://u:pw@h/db", "list"),
            "usage: quire keys [-h] ACTION",
            "quire keys: error: argument ACTION: unknown; it must be one of create, list, show, "
            "rotate, revoke; flags follow it",
        ),
    ],
)
def test_an_unknown_flag_shows_the_command_s_usage_and_the_nearest_one(
    arguments: tuple[str, ...], usage: str, error: str
) -> None:
    done = quire(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(usage)
    assert done.stderr.splitlines()[-1] == error


def test_a_misspelt_variable_is_logged_without_its_value() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = quire("serve", "--port", port, environ={"QUIRE_API_KEYS": "sk-0123456789"})
    assert "cannot listen" in done.stderr  # so it ended
    [line] = [line for line in done.stderr.splitlines() if "unknown variable" in line]
    logged = json.loads(line)
    assert (logged["level"], logged["name"]) == ("warning", "QUIRE_API_KEYS")
    assert logged["nearest"] == "QUIRE_API_KEY"
    assert "sk-0123456789" not in done.stdout + done.stderr


def test_a_revision_is_of_a_name(tmp_path: Path) -> None:
    done = quire("serve", str(tmp_path), "--revision", "v2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--revision" in done.stderr
    assert "is not a name on the hub" in done.stderr


def test_a_directory_without_a_model_is_reported_before_anything_starts(tmp_path: Path) -> None:
    done = quire("serve", str(tmp_path))
    assert done.returncode == 1
    assert "config.json" in done.stderr
    assert "or a name on the hub (OWNER/NAME)" in done.stderr
    assert done.stdout == ""


def test_a_model_s_own_words_do_not_reach_the_terminal_as_commands(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "tiny")
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"model_type": "\x1b]0;title\x07", "architectures": ["\x1b]0;title\x07"]}
    (checkpoint / "config.json").write_text(json.dumps(config))
    done = quire("serve", str(checkpoint), "--port", "0", "--admin-port", "0")
    assert done.returncode == 1
    assert "\u241b]0;title\u2407" in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-model-len", "99999"), "--max-model-len 99999 exceeds the model's 4096 positions"),
        (("--tensor-parallel-size", "64"), "--tensor-parallel-size 64 does not divide this model"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_reported_before_anything_starts(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    model = str(write_tiny_checkpoint(tmp_path / "m"))
    arguments = (model, *arguments, "--port", "0")
    served, examined = (quire(command, *arguments) for command in ("serve", "doctor"))
    assert (served.returncode, served.stdout) == (1, "")
    assert served.stderr.startswith(f"quire: {words}")
    assert examined.returncode == 1
    assert f" FAIL  model        {words}" in examined.stdout


def test_the_doctor_finds_no_fault_with_a_name_that_is_not_downloaded(tmp_path: Path) -> None:
    cache = str(tmp_path / "a cache")
    name = ("acme/tiny:Q8_0", "--revision", "v2", "--download-dir", cache)
    done = quire("doctor", *name, "--port", "0")
    assert done.returncode == 0
    assert " note  model        acme/tiny:Q8_0 is not in the cache as a whole" in done.stdout
    assert f"→ quire pull acme/tiny:Q8_0 --revision v2 --download-dir '{cache}'\n" in done.stdout


def test_the_doctor_finds_a_copy_that_another_program_downloaded(tmp_path: Path) -> None:
    place = ModelPlace.of("acme/tiny", None, str(tmp_path))
    place.set_commit("0" * 40)
    directory = write_tiny_checkpoint(place.snapshot("0" * 40))
    (directory / "model.safetensors").write_bytes(b"weights")
    arguments = ("doctor", "acme/tiny", "--download-dir", str(tmp_path), "--port", "0")
    done = quire(*arguments)
    assert done.returncode == 0
    assert f" note  model        {directory}, " in done.stdout
    assert ", not verified; 'quire serve' would first ask the hub" in done.stdout
    assert f"→ quire pull acme/tiny --download-dir {tmp_path}\n" in done.stdout
    (directory / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    done = quire(*arguments)
    assert done.returncode == 1
    assert "BertForMaskedLM" in done.stdout


def test_a_copy_in_the_cache_that_lacks_the_file_is_said_in_a_sentence(tmp_path: Path) -> None:
    place = ModelPlace.of("acme/tiny:Q8_0", None, str(tmp_path))
    place.set_commit("0" * 40)
    place.write_record("0" * 40, Record(is_whole=True))
    (place.snapshot("0" * 40)).mkdir(parents=True)
    done = quire("serve", "acme/tiny:Q8_0", "--download-dir", str(tmp_path), "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "quire: 'acme/tiny' has no GGUF file; leave out ':Q8_0'\n"


def test_the_doctor_writes_names_that_are_not_text() -> None:
    done = quire("doctor", os.fsdecode(b"/m\xff"), environ={"PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 1
    assert "no such model directory: /m\\udcff" in done.stdout


def test_the_doctor_looks_at_all_else_if_a_gguf_file_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    done = quire("doctor", str(path), "--port", "0")
    assert done.returncode == 1
    assert f" FAIL  model        cannot read {path}" in done.stdout
    assert "  dashboard " in done.stdout


def test_the_doctor_refuses_a_tokenizer_of_an_unsupported_kind(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder": {"type": "CTC"}}))
    done = quire("doctor", str(tmp_path), "--port", "0")
    assert done.returncode == 1
    assert "tokenizer.json: the tokenizer's decoder (CTC) is not supported; " in done.stdout


def test_a_flag_wins_over_a_variable_and_reaches_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_MAX_NUM_SEQS", "3")
    monkeypatch.setenv("QUIRE_MAX_MODEL_LEN", "128")
    model = write_tiny_checkpoint(tmp_path / "m")
    # 64 is the default: leaving it out for the child must not let the variable in again.
    with QuireServer(str(model), *SMALL, "--max-num-seqs", "64") as server:
        (info,) = [key for key in server.metrics() if key.startswith("quire_engine_info")]
    assert 'max_num_seqs="64"' in info
    assert 'max_model_len="128"' in info


# --- chat ---------------------------------------------------------------------------------------


def test_chat_answers_each_line_and_shows_tokens_and_speed(server: QuireServer) -> None:
    before = len(chat_lines(server))
    # Greedy: random weights then repeat themselves and never choose to stop.
    command = ["chat", "--base-url", server.url, "--max-tokens", "7", "--temperature", "0"]
    done = quire(*command, text="Hello\n\nAgain\n")
    assert done.returncode == 0, done.stderr
    said = re.findall(r"\[7 tokens, first after \d+ ms, then [\d.]+ tokens/s\]", done.stdout)
    assert len(said) == 2
    prompts = prompt_tokens_of_two(server, before)
    assert prompts[1] > prompts[0]  # the second question includes the first and its answer


def test_chat_starts_afresh_on_new(server: QuireServer) -> None:
    before = len(chat_lines(server))
    quire("chat", "--base-url", server.url, "--max-tokens", "2", text="Hello\n/new\nHello\n")
    prompts = prompt_tokens_of_two(server, before)
    assert prompts[0] == prompts[1]


def test_chat_says_why_a_server_cannot_be_used(server: QuireServer) -> None:
    done = quire("chat", "--base-url", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be reached" in done.stderr
    done = quire("chat", "--base-url", server.url, "--model", "nobody", text="Hello\n")
    assert "404" in done.stderr
    assert "nobody" in done.stderr


def chat_lines(server: QuireServer) -> list[dict[str, Any]]:
    return [line for line in server.log_lines() if line.get("route") == "chat_completions"]


def prompt_tokens_of_two(server: QuireServer, before: int) -> list[int]:
    """Of the two chats that came after ``before`` others, once both are logged."""
    until(lambda: len(chat_lines(server)) == before + 2, 10, "two log lines")
    return [line["prompt_tokens"] for line in chat_lines(server)[before:]]


def test_a_load_trace_is_played(server: QuireServer, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [0]}\n'
    trace.write_text(line * 3)
    address = server.url.removeprefix("http://")
    played = quire("bench", "--replay", str(trace), "--base-url", address, "--speed", "10")
    assert "requests   3 in" in played.stdout, played.stderr
    assert "failed: 3 HTTP 400\n  HTTP 400: 'prompt' contains token id" in played.stdout
    trace.write_text("not a trace\n")
    refused = quire("bench", "--replay", str(trace), "--base-url", server.url)
    assert refused.returncode == 1
    assert "line 1 is not a valid line of a load trace" in refused.stderr
    refused = quire("bench", "--replay", str(trace), "--base-url", f"{server.url} http://b:1")
    assert "several servers are named" in refused.stderr
    refused = quire("bench", "--replay", str(trace), "--speed", "fast")
    assert "--speed: must be a number from 0.01 to 1000, not 'fast'" in refused.stderr


def test_ctrl_c_stops_the_answer_and_not_the_program(server: QuireServer) -> None:
    # Greedy: random weights then repeat themselves and never choose to stop.
    command = ["chat", "--base-url", server.url, "--max-tokens", "4000", "--temperature", "0"]
    chat = subprocess.Popen(
        [sys.executable, "-u", "-m", "service.cli", *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Tests that run in the background of a shell inherit an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert chat.stdin is not None
    assert chat.stdout is not None
    try:
        chat.stdin.write(b"Tell me a story.\n")
        chat.stdin.flush()
        until(lambda: server.total("quire_sequences_running") == 1, 20, "the answer to begin")
        os.read(chat.stdout.fileno(), 65536)
        chat.send_signal(signal.SIGINT)
        until(lambda: server.total("quire_sequences_running") == 0, 5, "the server to stop too")
        assert chat.poll() is None
        chat.stdin.write(b"/new\n")
        rest, _ = chat.communicate(timeout=20)
        assert b"(stopped)" in rest
        assert chat.returncode == 0
    finally:
        chat.kill()
        chat.wait()
    last = until(lambda: chat_lines(server)[-1:], 5, "the log line")[0]
    assert last["outcome"] == "client_gone"


# --- dashboard ----------------------------------------------------------------------------------


def test_ctrl_c_while_a_command_begins_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*arguments: object, needs_gpu: bool) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.doctor.run", interrupt)
    assert main(["doctor"]) == 130


def test_the_dashboards_own_help_is_shown() -> None:
    done = quire("dashboard", "--help")
    assert done.returncode == 0, done.stderr
    assert "--url" in done.stdout


def test_without_streamlit_the_dashboard_says_how_to_get_it(tmp_path: Path) -> None:
    """Python's path finder does not see it, as on a machine without the extra."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "class Hiding(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        return None if name == 'streamlit' else PathFinder.find_spec(name, path, target)\n"
        "sys.meta_path[:] = [Hiding if f is PathFinder else f for f in sys.meta_path]\n"
    )
    done = quire("dashboard", environ={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "make dashboard" in done.stderr
    # There is no package of this name in any registry, and users must not be advised to fetch one.
    assert f"{sys.executable} -m pip install streamlit httpx" in done.stderr


def test_a_gguf_file_is_not_divided_among_hosts(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.touch()
    done = quire(
        "serve",
        str(path),
        *("--device", "cpu", "--tensor-parallel-size", "2", "--tensor-parallel-hosts", "2"),
        environ={"QUIRE_RANKS_SECRET": "0123456789abcdef"},
    )
    assert done.returncode == 1
    assert "--tensor-parallel-hosts does not support GGUF files" in done.stderr
