"""litellm's proxy in front of Quire, called by the official OpenAI SDK: a tool loop of two turns.

The proxy is started and stopped here: it is half of the client."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from openai import OpenAI

URL, MODEL = sys.argv[1:]
PATIENCE_SECONDS = 90
KEY = f"sk-{secrets.token_hex(32)}"


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    models = [
        {
            "model_name": provider,
            "litellm_params": {
                "model": f"{provider}/{MODEL}",
                "api_base": f"{URL}/v1",
                "api_key": "unused",
            },
        }
        for provider in ("openai", "hosted_vllm")
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": models}))  # JSON is YAML
        program = Path(sys.executable).with_name("litellm")
        proxy = subprocess.Popen(
            [program, "--config", config, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env={**os.environ, "LITELLM_MASTER_KEY": KEY},
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_ready(proxy, f"http://127.0.0.1:{port}/health/liveliness")
            client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY)
            for model in ("openai", "hosted_vllm"):
                talk(client, model)
        finally:
            proxy.terminate()
            proxy.wait(20)


def wait_until_ready(proxy: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert proxy.poll() is None, "the proxy ended"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)  # between attempts; tests.e2e's ``until`` is not in this environment
    raise TimeoutError("the proxy is not ready")


def talk(client: OpenAI, model: str) -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
    messages = [{"role": "user", "content": "LOOK-UP the weather in Paris."}]
    first = client.chat.completions.create(model=model, messages=messages, tools=tools)
    message = first.choices[0].message
    messages.append(message)
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": "18"} for call in message.tool_calls
    ]
    second = client.chat.completions.create(model=model, messages=messages, tools=tools)
    assert second.choices[0].message.content == "Paris has 18.", (model, second)


main()
