"""The engine as a process: what its socket and its signals promise.

Most tests run the checking model, so that only the forward pass is not real; the last ones run
``python -m engine`` over a real model with random weights.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from engine.inspected import Inspect, Inspected
from engine.messages import (
    FRAME_HEADER,
    MAX_FRAME_BYTES,
    Abort,
    Embed,
    Fatal,
    FinishReason,
    Heartbeat,
    Loading,
    Ready,
    StepOutputs,
    Submit,
    Working,
)
from pocket import MODEL_DIR
from tests.e2e.quire_server import is_running
from tests.engine.checking_runner import continue_alone
from tests.engine.engine_client import EngineClient, running_engine
from tests.engine.tiny_models import VARIANTS, save_model

ROOT = Path(__file__).resolve().parents[3]
FOREVER = 4000  # more output than a test waits for


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engine.sock"


@contextmanager
def checking_engine(path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "tests.engine.checking_process", str(path), *options]
    with running_engine(argv, path) as process:
        yield process


@pytest.fixture
def engine(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with checking_engine(path, "--step-seconds", "0.003") as process:
        yield process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of an engine that several tests use, each leaving it idle."""
    path = tmp_path_factory.mktemp("shared") / "engine.sock"
    with checking_engine(path, "--step-seconds", "0.003"):
        yield path


def raw(body: object) -> bytes:
    data = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
    return FRAME_HEADER.pack(len(data)) + data


# --- connecting ---------------------------------------------------------------------------------


def test_the_socket_answers_while_the_model_loads_and_reports_progress(path: Path) -> None:
    with checking_engine(path, "--load-seconds", "1"):
        early = EngineClient(path)
        assert early.wait(Loading) == Loading("weights", 1, 2)
        ready = early.wait(Ready)
        assert 1 <= ready.load_seconds < 30
        late = EngineClient(path)
        assert late.wait(Ready) == ready
        assert not any(isinstance(message, Loading) for message in late.heard)


def test_waiting_for_other_hosts_is_not_load_time(path: Path) -> None:
    """From which API workers conclude how long the next engine will take."""
    with checking_engine(path, "--wait-seconds", "2", "--load-seconds", "0.1"):
        assert 0.1 <= EngineClient(path).wait(Ready).load_seconds < 2


def test_only_this_user_can_open_the_socket(path: Path, engine: subprocess.Popen[bytes]) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_work_sent_while_the_model_loads_is_done_afterwards(path: Path) -> None:
    with checking_engine(path, "--load-seconds", "0.5"):
        client = EngineClient(path)
        client.submit(1, [1, 2, 3], 5)
        client.wait_finished(1)
        assert client.tokens[1] == continue_alone([1, 2, 3], 5, 1000)


def test_the_kv_cache_can_be_looked_into_while_sequences_run_and_while_none_does(
    shared: Path,
) -> None:
    client = EngineClient(shared)
    client.submit(1, [1, 2, 3], 60)
    client.wait(StepOutputs, lambda step: bool(step.token_ids))
    client.send(Inspect(5, prefixes=10))
    busy = client.wait(Inspected)
    assert busy.number == 5
    assert busy.kv is not None
    assert [one.request_id for one in busy.kv.holders] == ["r1"]
    assert busy.kv.active == busy.kv.holders[0].blocks > 0
    assert busy.prefixes is not None
    client.wait_finished(1)
    client.send(Inspect(6))
    idle = client.wait(Inspected)
    assert idle.number == 6
    assert idle.kv is not None
    assert (idle.kv.active, idle.kv.holders) == (0, ())
    assert idle.kv.cached + idle.kv.free == idle.kv.blocks


def test_each_connection_gets_only_its_own_tokens(shared: Path) -> None:
    alice, bob = EngineClient(shared), EngineClient(shared)
    alice.submit(1, [1, 2, 3], 20)
    bob.submit(1, [4, 5], 30)
    alice.wait_finished(1)
    bob.wait_finished(1)
    assert alice.tokens == {1: continue_alone([1, 2, 3], 20, 1000)}
    assert bob.tokens == {1: continue_alone([4, 5], 30, 1000)}


def test_more_sequences_than_slots_all_finish(shared: Path) -> None:
    client = EngineClient(shared)
    for handle in range(40):
        client.submit(handle, [handle + 1, 7], 10)
    client.wait_finished(*range(40))
    for handle in range(40):
        assert client.tokens[handle] == continue_alone([handle + 1, 7], 10, 1000)


def test_a_second_engine_does_not_take_a_live_socket(
    path: Path, engine: subprocess.Popen[bytes]
) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "tests.engine.checking_process", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode != 0
    assert "another engine listens" in second.stderr
    client = EngineClient(path)
    client.wait(Ready)


# --- leaving ------------------------------------------------------------------------------------


def test_a_connection_that_closes_frees_its_blocks(shared: Path) -> None:
    leaver, stayer = EngineClient(shared), EngineClient(shared)
    for handle in range(12):  # running and waiting ones
        leaver.submit(handle, [handle + 1] * 20, FOREVER)
    stayer.wait(StepOutputs, lambda step: step.stats.running == 8 and step.stats.waiting == 4)
    leaver.close()
    beat = stayer.wait(Heartbeat)
    assert (beat.stats.running, beat.stats.waiting, beat.stats.kv_blocks_active) == (0, 0, 0)


def test_an_abort_is_answered_and_frees_the_blocks(shared: Path) -> None:
    client = EngineClient(shared)
    client.submit(1, [1, 2, 3], FOREVER)
    client.wait(StepOutputs, lambda step: bool(step.handles))
    client.send(Abort([1]))
    client.wait_finished(1)
    assert client.finished[1].reason is FinishReason.ABORT
    assert client.finished[1].output_tokens == len(client.tokens[1])
    assert client.wait(Heartbeat).stats.kv_blocks_active == 0


# --- idling -------------------------------------------------------------------------------------


def test_an_idle_engine_gives_a_sign_of_life_each_second_and_spends_no_time(
    path: Path, engine: subprocess.Popen[bytes]
) -> None:
    client = EngineClient(path)
    client.wait(Heartbeat)
    cpu, wall = cpu_seconds(engine.pid), time.monotonic()
    client.wait(Heartbeat)
    client.wait(Heartbeat)
    client.wait(Heartbeat)
    assert 2.5 < time.monotonic() - wall < 10
    assert cpu_seconds(engine.pid) - cpu < 0.1


def test_a_long_step_is_reported_while_it_runs_to_every_connection(path: Path) -> None:
    with checking_engine(path, "--step-seconds", "3"):
        asker, other = EngineClient(path), EngineClient(path)
        asker.wait(Ready)
        asker.submit(1, [1, 2, 3], 1)
        for client in (asker, other):
            assert client.wait(Working).step_seconds >= 1
        asker.wait_finished(1)
        assert asker.finished[1].output_tokens == 1


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- nonsense -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(FRAME_HEADER.pack(5) + b"\xc1\xc1\xc1\xc1\xc1", id="not msgpack"),
        pytest.param(raw({"type": "resubmit"}), id="unknown message"),
        pytest.param(raw({"type": "submit", "prompt_token_ids": [1]}), id="no handle"),
        pytest.param(raw({"type": "submit", "handle": 2**63}), id="handle out of range"),
        pytest.param(raw({"type": "abort", "handles": "all"}), id="mistyped abort"),
        pytest.param(raw(b""), id="empty frame"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n", id="another protocol"),
        pytest.param(FRAME_HEADER.pack(MAX_FRAME_BYTES + 1), id="too large a header"),
    ],
)
def test_nonsense_closes_only_the_connection_it_came_from(shared: Path, nonsense: bytes) -> None:
    good, bad = EngineClient(shared), EngineClient(shared)
    good.submit(1, [1, 2, 3], 200)
    bad.submit(1, [1, 2, 3], FOREVER)
    good.wait(StepOutputs, lambda step: step.stats.running == 2)
    bad.socket.sendall(nonsense)
    bad.wait_closed()
    good.wait_finished(1)
    assert good.tokens[1] == continue_alone([1, 2, 3], 200, 1000)
    assert good.wait(Heartbeat).stats.kv_blocks_active == 0


def test_a_malformed_submission_is_answered_and_its_connection_stays_open(shared: Path) -> None:
    client = EngineClient(shared)
    client.submit(1, [1, 2, 3], 50)
    broken = {"type": "submit", "handle": 2, "request_id": "r", "prompt_token_ids": [1],
              "arrival_time": 0.0,
              "task": {"type": "generate", "params": {"max_tokens": 0}}}  # fmt: skip
    client.socket.sendall(raw(broken))
    client.wait_finished(1, 2)
    assert client.finished[2].reason is FinishReason.ERROR
    assert "max_tokens" in str(client.finished[2].error)
    assert client.finished[1].reason is FinishReason.LENGTH


def test_a_malformed_text_to_embed_is_answered_too(shared: Path) -> None:
    client = EngineClient(shared)
    broken = {"type": "submit", "handle": 2, "request_id": "r", "prompt_token_ids": [1],
              "arrival_time": 0.0, "task": {"type": "embed", "dimensions": 0}}  # fmt: skip
    client.socket.sendall(raw(broken))
    client.wait_finished(2)
    assert client.finished[2].reason is FinishReason.ERROR
    assert "dimensions" in str(client.finished[2].error)


def test_a_model_without_vectors_says_so(shared: Path) -> None:
    client = EngineClient(shared)
    client.send(
        Submit(handle=3, request_id="r", prompt_token_ids=[1], task=Embed(), arrival_time=0.0)
    )
    client.wait_finished(3)
    assert client.finished[3].error == "checking does not support embeddings"


def test_a_handle_used_twice_closes_the_connection(shared: Path) -> None:
    client, other = EngineClient(shared), EngineClient(shared)
    client.submit(1, [1], FOREVER)
    client.submit(1, [2], FOREVER)
    client.wait_closed()
    assert other.wait(Heartbeat).stats.kv_blocks_active == 0


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_runs_says_so_and_leaves_nothing(
    path: Path, engine: subprocess.Popen[bytes], signal_number: signal.Signals
) -> None:
    client = EngineClient(path)
    for handle in range(12):
        client.submit(handle, [handle + 1], FOREVER)
    client.wait(StepOutputs, lambda step: step.stats.waiting == 4)
    engine.send_signal(signal_number)
    client.wait_closed()
    assert {f.reason for f in client.finished.values()} == {FinishReason.ABORT}
    assert len(client.finished) == 12
    assert engine.wait(30) == 0
    assert not path.exists()


def test_sigusr1_writes_the_stacks_to_the_log_and_the_engine_continues(
    path: Path, tmp_path: Path
) -> None:
    model = f"simulated:tokenizer={ROOT / 'pocket' / 'weights'}"
    argv = [sys.executable, "-m", "engine", "--model", model, "--socket", str(path)]
    log = tmp_path / "log"
    with log.open("ab") as stderr, running_engine(argv, path, stderr) as process:
        client = EngineClient(path)
        client.wait(Ready)
        process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while not re.search(r"loop/process\.py\", line \d+ in", logged := log.read_text()):
            assert time.monotonic() < deadline, logged
            time.sleep(0.01)
        client.wait(Heartbeat)
        client.close()


def test_a_signal_while_the_model_loads_ends_the_process(path: Path) -> None:
    with checking_engine(path, "--load-seconds", "600") as process:
        EngineClient(path).wait(Loading)
        process.terminate()
        assert process.wait(30) == 0
        assert not path.exists()


def test_a_signal_ends_the_process_though_its_cleanup_hangs(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with checking_engine(path, "--load-seconds", "600", "--cleanup-seconds", "600") as process:
        EngineClient(path).wait(Loading)
        process.terminate()
        assert process.wait(30) == 1
    assert "checking_process.py" in capfd.readouterr().err  # in the stack


def test_a_model_that_does_not_load_is_reported_before_the_process_ends(path: Path) -> None:
    with checking_engine(path, "--load-seconds", "0.5", "--fail-to-load") as process:
        client = EngineClient(path)
        assert client.wait(Fatal) == Fatal("no weights here")
        assert process.wait(30) == 1
        assert not path.exists()


def test_a_model_directory_at_fault_is_a_sentence_in_the_log_and_no_traceback(
    path: Path, tmp_path: Path
) -> None:
    save_model(VARIANTS["qwen3"], tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"cut short")
    argv = [sys.executable, "-m", "engine", "--model", str(tmp_path / "model")]
    argv += ["--device", "cpu", "--socket", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    logged = done.stdout + done.stderr
    assert "the engine cannot start: cannot read" in logged
    assert "Traceback" not in logged


def test_a_script_at_fault_is_a_sentence_in_the_log_and_no_traceback(
    path: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"reply": "yes"}\n{"answer": "no"}\n')
    model = f"simulated:script={script},tokenizer={MODEL_DIR}"
    argv = [sys.executable, "-m", "engine", "--model", model]
    done = subprocess.run(
        [*argv, "--socket", str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    logged = done.stdout + done.stderr
    assert "script.jsonl, line 2: Object contains unknown field `answer`" in logged
    assert "Traceback" not in logged


def test_a_model_that_stops_working_is_reported_before_the_process_ends(
    path: Path, engine: subprocess.Popen[bytes]
) -> None:
    client = EngineClient(path)
    client.submit(1, [1, 2, 3], 10, request_id="break")
    assert "the step failed" in client.wait(Fatal).error
    assert engine.wait(30) == 1
    assert not path.exists()


def test_an_engine_killed_by_a_step_has_reported_which_sequences_ran(
    path: Path, engine: subprocess.Popen[bytes]
) -> None:
    client = EngineClient(path)
    client.submit(1, [1, 2, 3], 10, request_id="kill")
    client.wait_closed()
    steps = [message for message in client.heard if isinstance(message, StepOutputs)]
    assert [admitted.handle for step in steps for admitted in step.admitted] == [1]
    assert engine.wait(30) == -signal.SIGKILL


def test_a_socket_left_behind_by_a_killed_engine_is_replaced(path: Path) -> None:
    with checking_engine(path) as process:
        EngineClient(path).wait(Ready)
        process.kill()
        process.wait()
    assert path.exists()
    with checking_engine(path) as process:
        wait_until_listening(path)
        EngineClient(path).wait(Ready)


def wait_until_listening(path: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except (ConnectionRefusedError, FileNotFoundError):
                time.sleep(0.01)
            else:
                return
    raise TimeoutError("nobody listens")


def test_no_engine_outlives_the_process_that_started_it(path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'tests.engine.checking_process',"
        " sys.argv[1]])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    engine_pid = int(parent.stdout.readline())
    wait_until_listening(path)
    client = EngineClient(path)
    client.wait(Ready)
    client.submit(1, [1], FOREVER)
    parent.kill()
    parent.wait()
    client.wait_closed()
    deadline = time.monotonic() + 30
    while is_running(engine_pid):
        assert time.monotonic() < deadline, "an orphan"
        time.sleep(0.01)
    assert not path.exists()


# --- with a real model --------------------------------------------------------------------------

TINY_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
    "torch_dtype": "float32",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(TINY_QWEN3))
    return directory


def dummy_model(model: Path) -> list[str]:
    return [sys.executable, "-m", "engine", "--model", str(model), "--load-format", "dummy",
            "--device", "cpu", "--threads", "1", "--num-kv-blocks", "256"]  # fmt: skip


def continue_prompt(model: Path, *options: str) -> list[dict[str, object]]:
    run = subprocess.run(
        [*dummy_model(model), "--prompt-token-ids", "1,2,3", "--ignore-eos", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--model", "/nowhere"), 1, "/nowhere is not a directory"),
        (("--model", "simulated:step=20s"), 2, "at most 10s, not '20s'"),
        (("--model", "/nowhere", "--prompt-token-ids", "1,b"), 2, "must be whole numbers"),
        (("--model", "/nowhere", "--prompt-token-ids", ""), 2, "must be whole numbers"),
    ],
)
def test_what_the_engine_cannot_run_is_said_in_a_sentence(
    options: tuple[str, ...], status: int, words: str
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "engine", "--prompt-token-ids", "1,2", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stdout) == (status, "")
    *before, error = run.stderr.splitlines()
    assert error.startswith("python -m engine: error: ")
    assert words in error
    assert len(before) <= 1


def test_a_real_engine_serves_stops_on_sigterm_and_generates_the_same_without_a_socket(
    model: Path, path: Path
) -> None:
    with running_engine([*dummy_model(model), "--socket", str(path)], path) as process:
        first, second = EngineClient(path), EngineClient(path)
        ready = first.wait(Ready)
        assert (ready.architecture, ready.vocab_size) == ("Qwen3ForCausalLM", 512)
        assert ready.num_kv_blocks == 256
        first.submit(1, [1, 2, 3], 16)
        second.submit(1, [4] * 300, FOREVER)
        first.wait_finished(1)
        second.close()
        stats = first.wait(Heartbeat).stats
        assert stats.kv_blocks_active == 0
        assert stats.prompt_tokens_computed == 303
        process.terminate()
        assert process.wait(30) == 0
    *tokens, record = continue_prompt(model, "--max-tokens", "16")
    assert [line["token_id"] for line in tokens] == first.tokens[1]
    assert (record["reason"], record["prompt_tokens"], record["output_tokens"]) == ("length", 3, 16)


def test_a_wrong_flag_is_named_and_nothing_starts(model: Path, path: Path) -> None:
    run = subprocess.run(
        [*dummy_model(model), "--socket", str(path), "--max-num-seqs", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert "--max-num-seqs: Expected `int` >= 1 (got '0')" in run.stderr
    assert not path.exists()
