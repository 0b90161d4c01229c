"""The client by itself against the fake: what a small context cannot show."""

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from harness.errors import ServerError, SetupError
from harness.serving import bounded
from harness.serving import client as client_module
from harness.serving.client import Client
from tests.faults import changes as c
from tests.faults.fake_server import FakeServer
from tests.faults.fault import JAPANESE


def test_a_prefill_may_be_far_longer_than_one_event_usually_is() -> None:
    """llama-server repeats the prompt in its last event."""
    prompt = "lantern\u3042\x07\n" * 200_000
    with FakeServer(n_ctx=10_000_000) as server:
        client = Client(server.url)
        exchange = client.prefill(prompt, reuse=False)
        client.close()
    assert exchange.new_tokens == 800_000


def test_wherever_bytes_are_split_the_answer_is_the_same() -> None:
    def answer(size: int) -> str:
        with FakeServer(c.all_of(c.around(JAPANESE), c.wire(c.split(size)))) as server:
            client = Client(server.url)
            exchange = client.chat("Q1: X CODE?", max_tokens=8, reuse=False)
            client.close()
            return exchange.content

    assert {answer(size) for size in range(1, 12)} == {f"{JAPANESE}Q1=?"}


def test_progress_is_told_while_the_prefill_runs() -> None:
    seen: list[tuple[int, int]] = []

    def on_progress(done: int, total: int) -> None:
        seen.append((done, total))

    with FakeServer() as server:
        client = Client(server.url)
        exchange = client.prefill("a\n" * 500, reuse=False, on_progress=on_progress)
        client.close()
    assert seen == [(0, 1000), (1000, 1000)]
    assert [p.processed_tokens for p in exchange.progress] == [0, 1000]


def test_nobody_there_is_said_with_the_address() -> None:
    server = FakeServer()
    server.close()
    client = Client(server.url)
    with pytest.raises(ServerError, match="nothing answers at http://127") as caught:
        client.chat("Hello", max_tokens=1, reuse=False)
    client.close()
    assert caught.value.cause == "SERVER_DIED"
    assert "correct --server-url" in str(caught.value)


def test_only_events_with_text_are_counted_as_tokens() -> None:
    empty = c.event({"choices": [{"index": 0, "delta": {"content": ""}}]})
    with FakeServer(c.wire(c.put(0.5, empty, empty, empty))) as server:
        client = Client(server.url)
        exchange = client.chat("Hello", max_tokens=8, reuse=False, ignore_eos=True)
        client.close()
    assert len(exchange.token_event_ms) == 8
    assert exchange.predicted_tokens == 8


class Drip(httpx2.SyncByteStream):
    def __init__(self, part: bytes = b" ") -> None:
        self._part = part

    def __iter__(self) -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield self._part


def small(**response: object) -> Client:
    """A client whose server answers everything with this."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, **response))  # type: ignore[arg-type]
    return Client("http://x", transport=transport)


def test_a_small_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_SMALL_LIMIT_S", 0.3)
    with pytest.raises(
        ServerError, match=r"did not finish an answer to /props within 0.3 s"
    ) as error:
        small(stream=Drip()).get("/props")
    assert error.value.cause == "STALLED"


def test_a_server_that_never_ends_its_headers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_SMALL_LIMIT_S", 0.2)
    monkeypatch.setattr(bounded, "_MARGIN_S", 0.1)

    def respond(_: httpx2.Request) -> httpx2.Response:
        time.sleep(2)
        return httpx2.Response(200)

    client = Client("http://x", transport=httpx2.MockTransport(respond))
    with pytest.raises(ServerError, match="did not finish an answer to /props"):
        client.get("/props")


def test_a_small_answer_is_not_large() -> None:
    with pytest.raises(ServerError, match="more than 8 MiB in answer to /props"):
        small(stream=Drip(b"x" * (1 << 20))).get("/props")


def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    with pytest.raises(ServerError, match="compresses its answer"):
        small(stream=Drip(bomb), headers={"content-encoding": "gzip"}).get("/props")


def test_reasoning_by_its_other_name_is_reasoning() -> None:
    event = {"choices": [{"index": 0, "delta": {"reasoning": "hm"}}]}
    with FakeServer(c.wire(c.put(0, c.event(event)))) as server:
        client = Client(server.url)
        exchange = client.chat("Q1: X CODE?", max_tokens=8, reuse=False)
        client.close()
    assert exchange.reasoning == "hm"
    assert "hm" not in exchange.content


def test_the_model_that_was_named_is_measured() -> None:
    listing = httpx2.ByteStream(b'{"data": [{"id": "first"}, {"id": "second"}]}')
    client = small(stream=listing)
    assert client.listed_model() == {"id": "first"}
    assert client.listed_model("second") == {"id": "second"}
    assert client.model == "second"


def test_a_certificate_that_is_not_trusted_is_named() -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")

    client = Client("https://x", transport=httpx2.MockTransport(refuse))
    with pytest.raises(ServerError, match=r"not trusted here .*SSL_CERT_FILE") as error:
        client.get("/props")
    assert error.value.cause == "SETUP"


def test_a_file_without_certificates_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(SetupError, match="holds no certificates"):
        Client("https://x")
