"""Windows: a server that the system stops when its supervisor is gone, by a Job Object.

What `prctl` does on Linux: the job ends with its last handle, which only the supervisor holds. The
calls are `pywin32`'s; a test puts recorded ones in their place.
"""

import importlib
import sys
from dataclasses import dataclass
from typing import Any

_TERMINATE_AND_SET_QUOTA = 0x0001 | 0x0100


@dataclass(frozen=True, slots=True)
class Calls:
    """The modules of `pywin32` that are used: `win32job` and `win32api`."""

    job: Any
    api: Any


def calls() -> Calls | None:
    """The calls of this machine; `None` elsewhere than on Windows or without pywin32."""
    if sys.platform == "win32":
        try:
            return Calls(importlib.import_module("win32job"), importlib.import_module("win32api"))
        except ImportError:
            return None
    return None


def tie_to_me(pid: int, via: Calls | None) -> object | None:
    """Let the system kill `pid` and what it starts when the returned handle is closed.

    The handle must be kept; it is closed when this process ends, however it ends. `None` where that
    cannot be had: then the note of the server's process id is what is left.
    """
    if via is None:
        return None
    try:
        handle = via.job.CreateJobObject(None, "")
        kind = via.job.JobObjectExtendedLimitInformation
        limits = via.job.QueryInformationJobObject(handle, kind)
        limits["BasicLimitInformation"]["LimitFlags"] |= via.job.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        via.job.SetInformationJobObject(handle, kind, limits)
        process = via.api.OpenProcess(_TERMINATE_AND_SET_QUOTA, False, pid)
        via.job.AssignProcessToJobObject(handle, process)
    except Exception:  # pywintypes.error, which exists on Windows only
        return None
    return handle  # type: ignore[no-any-return]
