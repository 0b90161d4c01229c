"""Log watch: what a llama-server's log says went wrong, and which sizes and devices it states.

The lines that matter are a table, `harness.llamacpp.log_patterns.PATTERNS`. Buffer sizes and
devices are logged from verbosity 4 on (`-lv 4`), failures and warnings at the default one too.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.llamacpp.log_patterns import PATTERNS, Reason

MIB = 2**20

BufferUse = Literal["model", "KV", "RS", "compute", "output"]


NOT_WARNINGS = re.compile(r"n_ctx\w* \(\d+\) < n_ctx_train|-{5,}$|security|CORS|pull/25655")
"""Lines that are logged as warnings and say nothing of a run: an unused part of the model's
context, no API key on a local server."""

_PREFIX = re.compile(r"^(?:\d+\.)+\d+ (?P<level>[DIWE]) ")
_UNPREFIXED_WARNING = re.compile(r"\b(?:warn(?:ing)?|error|failed|fatal)\b", re.IGNORECASE)
_SOFTWARE = re.compile(r"llvmpipe|lavapipe|swiftshader|softpipe", re.IGNORECASE)
_HOST = re.compile(
    r"^(?:CPU|Host|BLAS|AMX|KleidiAI|Repack|AARCH64|HBM|SpaceMit)|_Host$|_Pinned$|_Mapped_CPU$",
    re.IGNORECASE,
)
"""Buffer types of the CPU backend (`ggml-cpu`: plain, mapped, repacked, AMX, KleidiAI, high
bandwidth memory …) and the pinned host memory of the others."""
_GPU = re.compile(
    r"^(?:Vulkan|CUDA|ROCm|HIP|Metal|MTL|SYCL|MUSA|CANN|OpenCL|GPUOpenCL|Adreno|WebGPU|HTP|Hexagon"
    r"|VirtGpu)\d*",
    re.IGNORECASE,
)
"""Devices by the names that llama.cpp's backends give them."""
_BUFFER = re.compile(r"(\S+)\s+(model|KV|RS|compute|output) buffer size\s*=\s*([\d.]+) MiB")
_NEW_CONTEXT = re.compile(r"constructing llama_context")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_VULKAN_DEVICE = re.compile(r"ggml_vulkan: (\d+) = (.+?) \| uma")
_DEVICE = re.compile(r"^\S* ?\s*common_param: +- (\S+) *: (.+) \((\d+) MiB, (\d+) MiB free\)")
_USING_DEVICE = re.compile(r"using device (\S+) \((.+?)\)(?: \([^()]*\))? - (\d+) MiB free")
_FLASH = re.compile(
    r"flash attention (?:was auto, set to )?(enabled|disabled)|flash_attn\s*= (\w+)", re.IGNORECASE
)
_CACHE = re.compile(
    r"size =\s*[\d.]+ MiB \(\s*(\d+) cells,\s*(\d+) layers.*K \((\w+)\).*?(?:V \((\w+)\)|$)"
)
_FREQ_SCALE = re.compile(r"llama_context: freq_scale\s*= ([\d.e-]+)$")
_SETTING = re.compile(r"llama_context: (n_\w+)\s*= (\d+)$")
_SIZES = (("bytes", 1), ("bytes2", 1), ("mib", MIB), ("mib2", MIB))


@dataclass(frozen=True, slots=True)
class Finding:
    """One pattern's lines: how many, the first of them and its number (from 0), sizes asked for."""

    code: str
    reason: Reason | None
    means: str
    count: int
    first_line: int
    example: str
    sizes_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Warn:
    """A warning or error line: normalised text (what two logs are compared by), count, example."""

    text: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Device:
    """A compute device the server listed. `is_gpu` is False for the CPU and software Vulkan.

    `memory_bytes` is all of its memory, `free_bytes` what was free as the server started.
    """

    name: str
    description: str
    memory_bytes: int | None
    is_gpu: bool
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BufferSize:
    """Bytes of one use on one device, over all contexts (a draft model's included)."""

    device: str
    use: BufferUse
    total_bytes: int


@dataclass(frozen=True, slots=True)
class LogFindings:
    """What a log says.

    Sizes are bytes (the log's MiB have two decimals, so they are exact to 5 KiB). `offloaded` is
    (layers, of all): a build with GPU support prints it without a GPU too, so ask `on_gpu`.
    `kv_types` are the K and V cache types in use; `settings` the numbers llama.cpp settled on
    (`n_ctx`, `n_ctx_seq`, `n_batch`, `n_ubatch`, …); `freq_scale` is what RoPE positions are
    multiplied by. None or empty where the verbosity hid them.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Warn, ...]
    devices: tuple[Device, ...]
    buffers: tuple[BufferSize, ...]
    offloaded: tuple[int, int] | None
    flash_attention: bool | None
    kv_types: tuple[str, str] | None
    settings: dict[str, int]
    freq_scale: float | None = None

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Failures that the log proves, in the order of `PATTERNS`, once each."""
        return tuple(dict.fromkeys(f.reason for f in self.findings if f.reason))

    @property
    def on_gpu(self) -> bool | None:
        """Whether any weights lie on a GPU; None when the log doesn't tell."""
        models = [b for b in self.buffers if b.use == "model" and b.total_bytes > 0]
        if any(self._is_gpu(b.device) for b in models):
            return True
        return None if not models or self.unknown_buffers else False

    @property
    def unknown_buffers(self) -> tuple[str, ...]:
        """Names of buffers that hold weights in a memory that isn't known here: RAM or a GPU's."""
        names = dict.fromkeys(b.device for b in self.buffers if b.use == "model" and b.total_bytes)
        software = {d.name for d in self.devices if not d.is_gpu}
        return tuple(n for n in names if not (self._is_gpu(n) or n in software or is_host(n)))

    def _is_gpu(self, device: str) -> bool:
        listed = {d.name: d.is_gpu for d in self.devices}
        return listed.get(device, _GPU.match(device) is not None and not is_host(device))

    def total_bytes(self, use: BufferUse) -> int | None:
        """All buffers of one use together; None when the log has none."""
        sizes = [b.total_bytes for b in self.buffers if b.use == use]
        return sum(sizes) if sizes else None

    def find(self, code: str) -> Finding | None:
        """The finding of one pattern."""
        return next((f for f in self.findings if f.code == code), None)


def is_host(device: str) -> bool:
    """Whether a buffer of this name (`CPU_Mapped`, `Vulkan_Host`) lies in host memory."""
    return bool(_HOST.search(device))


def normalise(line: str) -> str:
    """A line without what differs from run to run: time, numbers, addresses, paths."""
    text = _PREFIX.sub("", line.strip())
    text = re.sub(r"0x[0-9a-fA-F]+", "ADDRESS", text)
    text = re.sub(r"(?:[A-Za-z]:)?(?:[\\/][\w.+~-]+){2,}", "PATH", text)
    text = re.sub(r"(?<![\w.])-?\d[\d.,:]*(?![\w])", "N", text)
    return re.sub(r"\s+", " ", text)


def telling(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines that warn, fail, or fit a pattern, in order."""
    return tuple(line for line in lines if _tells(line))


def _tells(line: str) -> bool:
    prefix = _PREFIX.match(line)
    text = line[prefix.end() :] if prefix else line
    return any(p.regex.search(text) for p in PATTERNS) or _warns(
        prefix["level"] if prefix else None, text
    )


def _warns(level: str | None, text: str) -> bool:
    if NOT_WARNINGS.search(text):
        return False
    return level in ("W", "E") or (level is None and _UNPREFIXED_WARNING.search(text) is not None)


def scan(lines: Iterable[str]) -> LogFindings:
    """Read a server's log, any verbosity, whole or in part. Never raises on odd lines."""
    reading = _Reading()
    for number, line in enumerate(lines):
        reading.take(number, line.rstrip("\r\n"))
    return reading.findings()


@dataclass(slots=True)
class _Hits:
    first_line: int
    example: str
    count: int = 0
    sizes: list[int] = field(default_factory=list)


class _Reading:
    """State of one pass over a log."""

    def __init__(self) -> None:
        self._hits: dict[str, _Hits] = {}
        self._warnings: dict[str, _Hits] = {}
        self._devices: dict[str, Device] = {}
        self._context = 0
        self._buffers: dict[tuple[str, str, int], float] = {}
        self._offloaded: tuple[int, int] | None = None
        self._flash: bool | None = None
        self._kv_types: tuple[str, str] | None = None
        self._settings: dict[str, int] = {}
        self._freq_scale: float | None = None

    def take(self, number: int, line: str) -> None:
        prefix = _PREFIX.match(line)
        level = prefix["level"] if prefix else None
        text = line[prefix.end() :] if prefix else line
        matched = self._match(number, line, text)
        if (matched and NOT_WARNINGS.search(text) is None) or _warns(level, text):
            key = normalise(line)
            self._warnings.setdefault(key, _Hits(number, text)).count += 1
        self._facts(text)

    def _match(self, number: int, line: str, text: str) -> bool:
        for pattern in PATTERNS:
            match = pattern.regex.search(text)
            if match is None:
                continue
            hits = self._hits.setdefault(pattern.code, _Hits(number, line))
            hits.count += 1
            groups = match.groupdict()
            hits.sizes += [
                round(float(groups[name]) * unit) for name, unit in _SIZES if groups.get(name)
            ]
            return True
        return False

    def _facts(self, text: str) -> None:
        if _NEW_CONTEXT.search(text):
            self._context += 1
        elif match := _BUFFER.search(text):
            device, use, mib = match.groups()
            key = (device, use, self._context)
            again = use == "compute" or key not in self._buffers
            self._buffers[key] = float(mib) if again else self._buffers[key] + float(mib)
        elif match := _OFFLOADED.search(text):
            self._offloaded = (int(match[1]), int(match[2]))
        elif match := _DEVICE.search(text):
            self._add_device(match[1], match[2], int(match[3]) * MIB, int(match[4]) * MIB)
        elif match := _USING_DEVICE.search(text):
            self._add_device(match[1], match[2], None, int(match[3]) * MIB)
        elif match := _VULKAN_DEVICE.search(text):
            self._add_device(f"Vulkan{match[1]}", match[2], None, None)
        elif match := _CACHE.search(text):
            self._kv_types = self._kv_types or (match[3], match[4] or match[3])
        elif match := _SETTING.search(text):
            self._settings.setdefault(match[1], int(match[2]))
        elif self._freq_scale is None and (match := _FREQ_SCALE.search(text)):
            self._freq_scale = float(match[1])
        if match := _FLASH.search(text):
            word = (match[1] or match[2]).lower()
            if word in ("enabled", "disabled", "1", "0"):
                self._flash = word in ("enabled", "1")

    def _add_device(
        self, name: str, description: str, memory_bytes: int | None, free_bytes: int | None
    ) -> None:
        is_gpu = not (is_host(name) or _SOFTWARE.search(description))
        known = self._devices.get(name, Device(name, description.strip(), None, is_gpu))
        self._devices[name] = replace(
            known,
            memory_bytes=known.memory_bytes or memory_bytes,
            free_bytes=known.free_bytes if known.free_bytes is not None else free_bytes,
        )

    def findings(self) -> LogFindings:
        sizes: dict[tuple[str, str], float] = {}
        for (device, use, _), mib in self._buffers.items():
            sizes[device, use] = sizes.get((device, use), 0.0) + mib
        return LogFindings(
            findings=tuple(
                Finding(
                    p.code,
                    p.reason,
                    p.means,
                    hits.count,
                    hits.first_line,
                    hits.example,
                    tuple(hits.sizes),
                )
                for p in PATTERNS
                if (hits := self._hits.get(p.code))
            ),
            warnings=tuple(
                Warn(text, hits.count, hits.example) for text, hits in self._warnings.items()
            ),
            devices=tuple(self._devices.values()),
            buffers=tuple(
                BufferSize(device, use, round(mib * MIB))  # type: ignore[arg-type]
                for (device, use), mib in sizes.items()
            ),
            offloaded=self._offloaded,
            flash_attention=self._flash,
            kv_types=self._kv_types,
            settings=self._settings,
            freq_scale=self._freq_scale,
        )
