"""How a process ended, in words: a signal, a status of Windows, a code; and what to do about it."""

import sys
from dataclasses import dataclass

_LACKS = (
    "this build uses CPU instructions (AVX-512, AMX, say) that this CPU lacks; take a build made "
    "for this CPU"
)
_DLL = (
    "a DLL it needs is missing: put those of its release beside it, and install Microsoft's Visual "
    "C++ Redistributable (x64)"
)
_CRASHED = "it crashed: try another build or driver, and report it with its log"


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended (`signal 4, SIGILL`), and a next step where the code tells one."""

    how: str
    next_step: str | None = None


_SIGNALS = {4: Ending("signal 4, SIGILL", _LACKS)}
_STATUSES = {
    0xC0000005: Ending("0xC0000005, access violation", _CRASHED),
    0xC0000017: Ending("0xC0000017, no memory", "give it less context or a larger page file"),
    0xC000001D: Ending("0xC000001D, illegal instruction", _LACKS),
    0xC0000022: Ending(
        "0xC0000022, access denied",
        "it, or a DLL of it, may not be read or is blocked: look at its rights and at the virus "
        "scanner's history",
    ),
    0xC000007B: Ending(
        "0xC000007B, invalid image", "a DLL it found is of another kind (32 bit): unpack it anew"
    ),
    0xC00000FD: Ending("0xC00000FD, stack overflow", _CRASHED),
    0xC0000135: Ending("0xC0000135, DLL not found", _DLL),
    0xC0000139: Ending("0xC0000139, entry point not found", _DLL.replace("missing", "too old")),
    0xC000013A: Ending("0xC000013A, Ctrl+C or a closed console"),
    0xC0000142: Ending("0xC0000142, DLL initialization failed", _DLL),
    0xC0000409: Ending("0xC0000409, fail-fast: an abort or a damaged stack", _CRASHED),
    0xC06D007E: Ending("0xC06D007E, DLL not found when first called", _DLL),
}
"""Windows' NTSTATUS codes as exit codes. Source: [MS-ERREF] 2.3.1, winnt.h, delayimp.h."""


def ending(code: int, platform: str = sys.platform) -> Ending:
    """What `subprocess`'s return code says: negative is a signal, 32 bits are Windows' status."""
    if code < 0 and platform != "win32":
        return _SIGNALS.get(-code, Ending(f"signal {-code}"))
    status = code & 0xFFFFFFFF  # some callers hand it on as a signed number
    if platform == "win32" and status >= 0x80000000:
        return _STATUSES.get(status, Ending(f"0x{status:08X}, a status of Windows"))
    return Ending(f"exit code {code}")
