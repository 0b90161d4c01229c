"""Reduced mode against a real server that shows nothing but its OpenAI-compatible endpoints."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.records.lines import RunRecord
from harness.records.samples import caching_at
from harness.serving.client import Client
from harness.serving.launch import LaunchSpec, RunningServer, free_port, wait_until_ready
from tests.e2e.conftest import Bench, embedded_argv

pytestmark = pytest.mark.slow

OWN_FIELDS = ("cache_prompt", "id_slot", "return_progress")


@contextmanager
def other_server(folder: Path, *flags: str) -> Iterator[str]:
    """A server like vLLM or Ollama: chat completions with `usage`, nothing of llama-server's."""
    port = free_port()
    argv = embedded_argv(port, "-c", "4096", "-np", "1", "-t", "1", *flags)
    spec = LaunchSpec(argv, port, folder / "other.log")
    server = RunningServer(spec)
    try:
        client = Client(spec.base_url)
        wait_until_ready(server, client, limit_s=120.0)
        client.close()
        with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as front:
            front.upstream = port  # type: ignore[attr-defined]
            threading.Thread(target=front.serve_forever, args=(0.02,), daemon=True).start()
            yield f"http://127.0.0.1:{front.server_address[1]}"
            front.shutdown()
    finally:
        server.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        known = self.path == "/v1/models"
        body = json.dumps({"object": "list", "data": [{"id": "other"}]} if known else {}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        assert not set(OWN_FIELDS) & set(asked)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream)  # type: ignore[attr-defined]
        upstream.request("POST", self.path, json.dumps(asked), {"Content-Type": "application/json"})
        answer = upstream.getresponse()
        self.send_response(answer.status)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for line in answer:
            self.wfile.write(_plain(line))
        upstream.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _plain(line: bytes) -> bytes:
    """An event without what only llama-server says."""
    if not line.startswith(b"data: {"):
        return line
    body = json.loads(line.removeprefix(b"data: "))
    body.pop("timings", None)
    if usage := body.get("usage"):
        usage.pop("prompt_tokens_details", None)
    return b"data: " + json.dumps(body).encode() + b"\n"


@pytest.mark.parametrize(("flags", "kept"), [((), True), (("--no-cache-prompt",), False)])
def test_an_unknown_server_is_measured_by_the_client_and_its_caching_told_from_times(
    bench: Bench, tmp_path: Path, flags: tuple[str, ...], kept: bool
) -> None:
    with other_server(tmp_path, *flags) as url:
        short = ("--ctx=1024", "--repeats=3", "--generate-tokens=128", "--remeasure=0")
        done = bench.pytest("-m", "long", "-v", *short, f"--server-url={url}")
    assert done.code == 0, done.text
    said = " ".join(done.text.split())
    assert "missing: prefill by batch, proof of what was reused" in said
    (record,) = bench.records()
    _expect_measured(record)
    assert caching_at(record.rungs[0]).kept is kept
    assert ("the server keeps prompts" in said) is kept
    assert ("there is no warm TTFT, only a cold one" in said) is not kept
    rung = record.rungs[0]
    assert rung.cold_ttft_ms == rung.prefills[-1].wall_ms


def _expect_measured(record: RunRecord) -> None:
    (rung,) = record.rungs
    assert record.header.server.reduced
    assert all(p.server_ms is None and p.new_tokens > 700 for p in rung.prefills)
    assert len(rung.generations) >= 3
    assert all(g.server_ms is None and g.predicted_tokens > 1 for g in rung.generations)
    assert [a.needles_right for a in rung.asks] == [5, 5, 5]
