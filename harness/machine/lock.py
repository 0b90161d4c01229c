"""One run a machine: a host-wide lock that names its holder and vanishes with it."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from harness.errors import LockedError, SetupError
from harness.records.files import now

LOCK_VARIABLE = "HARNESS_LOCK_FILE"


def lock_path() -> Path:
    """The lock's file: `$HARNESS_LOCK_FILE`, else one for the whole machine."""
    if own := os.environ.get(LOCK_VARIABLE):
        return Path(own)
    shared = os.environ.get("PROGRAMDATA")
    if sys.platform == "win32" and shared:  # each user has a temporary folder of his own there
        return Path(shared, "longctx-harness", "machine.lock")
    return Path(tempfile.gettempdir(), "longctx-harness.lock")


def servers_folder() -> Path:
    """Where servers of the run that holds the lock are noted, beside the lock's file."""
    return lock_path().with_name(lock_path().name + ".servers")


@contextmanager
def machine_lock(doing: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold this machine while `doing` something, waiting up to `wait_s` for another run to end.

    The operating system drops the lock with its holder, so a killed run leaves none behind.

    Raises:
        LockedError: another run holds the machine; its pid, start and plan are named.
    """
    path = lock_path()
    holder = path.with_name(path.name + ".holder.json")
    lock = FileLock(path, mode=0o666)
    try:
        if sys.platform == "win32":
            _open_to_all_users(path.parent)
        lock.acquire(timeout=max(wait_s, 0.0))
    except Timeout as error:
        raise LockedError(
            f"another run holds this machine: {_describe(holder)}; wait for it to end "
            "(--wait-lock SECONDS does), or stop it"
        ) from error
    except OSError as error:
        raise SetupError(
            f"cannot take the machine's lock {path}: {error.strerror or error}; set "
            f"{LOCK_VARIABLE} to a file that can be written"
        ) from error
    try:
        note = json.dumps({"pid": os.getpid(), "started": now(), "doing": doing})
        with contextlib.suppress(OSError):  # a full disk: held without a note
            holder.write_text(note, encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _open_to_all_users(folder: Path) -> None:
    """Windows: what one user makes in a new folder there, others and services may write, too."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    authenticated = "*S-1-5-11:(OI)(CI)M"  # by number: the name is another one in each language
    with contextlib.suppress(OSError):
        subprocess.run(  # noqa: S603 - the system's own tool
            ["icacls", str(folder), "/grant", authenticated],  # noqa: S607
            capture_output=True,
            check=False,
        )


def holder() -> str | None:
    """Who holds the machine, as its note says; `None` if nobody does."""
    path = lock_path()
    try:
        facts = json.loads(path.with_name(path.name + ".holder.json").read_text(encoding="utf-8"))
        return _sentence(facts) if psutil.pid_exists(int(facts["pid"])) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sentence(facts: Mapping[str, object]) -> str:
    return f"pid {facts['pid']}, since {facts['started']}, {facts['doing']}"


def _describe(holder: Path) -> str:
    try:
        return _sentence(json.loads(holder.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return "its holder did not leave a note"
