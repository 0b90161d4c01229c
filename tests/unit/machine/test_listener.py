import os
import socket
from collections.abc import Iterator

import pytest

from harness.machine.listener import server_pid


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "http://localhost:{}/v1", "127.0.0.1:{}"])
def test_the_process_that_listens_here_is_found(port: int, form: str) -> None:
    assert server_pid(form.format(port)) == os.getpid()


def test_a_port_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    assert server_pid(f"http://127.0.0.1:{free}") is None


@pytest.mark.parametrize("host", ["192.0.2.7", "nowhere.invalid"])
def test_another_machine_is_not_this_one(port: int, host: str) -> None:
    assert server_pid(f"http://{host}:{port}") is None
