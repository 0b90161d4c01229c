"""Which process of this machine answers at a URL, so that a server started by hand is known."""

import contextlib
import socket
from urllib.parse import SplitResult, urlsplit

import psutil


def server_pid(url: str) -> int | None:
    """PID of the local process that listens where `url` points.

    `None` when the host is another machine, nothing listens there, or the system doesn't tell
    whose the socket is (another user's process, macOS without root).
    """
    parts = _parts(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not is_local(url):
        return None
    with contextlib.suppress(psutil.Error, OSError, RuntimeError):
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr and connection.laddr.port == port:
                return connection.pid
    return None


def is_local(url: str) -> bool:
    """Whether `url` points at this machine."""
    host = _parts(url).hostname
    return host is not None and _own_address(host)


def _parts(url: str) -> SplitResult:
    return urlsplit(url if "//" in url else f"//{url}")


def _own_address(host: str) -> bool:
    own: set[str] = set()
    with contextlib.suppress(psutil.Error, OSError, RuntimeError):  # not all systems tell
        own = {a.address.partition("%")[0] for all_ in psutil.net_if_addrs().values() for a in all_}
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found & own) or any(name.startswith("127.") or name == "::1" for name in found)
