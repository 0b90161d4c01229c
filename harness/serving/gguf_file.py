"""GGUF files: what a model is and how its cache is shaped, read from the header alone.

The format's own package supplies every constant (magic, versions, value types, block sizes, file
types). Its `GGUFReader` is not used: it makes one array per vocabulary entry (16 s and 0.9 GB for a
248,000-token vocabulary) and fails on a cut file without saying how much is missing. The tests hold
this reader against `GGUFReader`, value by value.
"""

import hashlib
import mmap
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, LlamaFileType
from gguf.constants import GGUF_DEFAULT_ALIGNMENT, GGUF_MAGIC, GGUF_VERSION

from harness.errors import SetupError
from harness.records.lines import ModelIdentity
from harness.serving.shapes import inert

Scalar = str | int | float | bool
MetadataValue = Scalar | tuple[int | float | bool, ...]

_SUPPORTED_VERSIONS = (2, GGUF_VERSION)
_MAX_DIMENSIONS = 4
_KEPT_ARRAY_LENGTH = 4096
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_SCALARS = {
    GGUFValueType.UINT8: struct.Struct("<B"),
    GGUFValueType.INT8: struct.Struct("<b"),
    GGUFValueType.UINT16: struct.Struct("<H"),
    GGUFValueType.INT16: struct.Struct("<h"),
    GGUFValueType.UINT32: struct.Struct("<I"),
    GGUFValueType.INT32: struct.Struct("<i"),
    GGUFValueType.FLOAT32: struct.Struct("<f"),
    GGUFValueType.BOOL: struct.Struct("<?"),
    GGUFValueType.UINT64: struct.Struct("<Q"),
    GGUFValueType.INT64: struct.Struct("<q"),
    GGUFValueType.FLOAT64: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[GGUFValueType.UINT32], _SCALARS[GGUFValueType.UINT64]
_SPLIT_NAME = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """What a GGUF's header says.

    `metadata` holds every scalar and every numeric array of at most 4096 elements outside
    `tokenizer.*` (per-layer values such as `head_count_kv`). `parameters` counts the elements of
    all tensors, `tensor_bytes` their bytes (None when a tensor's type is newer than the `gguf`
    package). `file_type` is llama.cpp's name (`F16`, `Q4_K_M`); without `general.file_type`, the
    tensor type that holds most elements. `content_hash` is the SHA-256, in hexadecimal, over the
    header bytes of all shards (metadata and tensor table) and `_SAMPLES` pieces of the weights of
    each, evenly spaced, so that a fine-tune of the same shape is another model. It is cheap on
    100 GB and independent of the file's name.
    """

    architecture: str
    name: str | None
    file_type: str | None
    parameters: int
    tensor_bytes: int | None
    trained_ctx_tokens: int | None
    metadata: Mapping[str, MetadataValue]
    content_hash: str
    shards: int


@dataclass(frozen=True, slots=True)
class _Header:
    metadata: dict[str, MetadataValue]
    elements_by_type: Counter[str]
    tensor_bytes: int | None
    raw: bytes


class _CutError(Exception):
    """The file ends inside the header."""


def read_gguf(path: str | Path) -> GgufInfo:
    """Read the header of a GGUF, or of all shards when given the first of a split one.

    Raises:
        SetupError: missing, not a file, empty, not a GGUF, truncated (header or tensor data), of
            an unsupported version, or broken; not the first shard, or a shard missing.
    """
    first = Path(path)
    headers = [_read_header(shard) for shard in _shards(first)]
    metadata = headers[0].metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise SetupError(f"{first}: no general.architecture in the metadata, so not a model file.")
    elements = sum((h.elements_by_type for h in headers), Counter[str]())
    sizes = [h.tensor_bytes for h in headers]
    digest = hashlib.sha256()
    for header in headers:
        digest.update(header.raw)
    name = metadata.get("general.name")
    trained = metadata.get(f"{architecture}.context_length")
    return GgufInfo(
        architecture=architecture,
        name=inert(name, 120) if isinstance(name, str) and name else None,
        file_type=_file_type(metadata.get("general.file_type"), elements),
        parameters=elements.total(),
        tensor_bytes=None if None in sizes else sum(s for s in sizes if s is not None),
        trained_ctx_tokens=trained if isinstance(trained, int) else None,
        metadata=MappingProxyType(metadata),
        content_hash=digest.hexdigest(),
        shards=len(headers),
    )


def model_identity(info: GgufInfo) -> ModelIdentity:
    """The record's model identity: `name-architecture-parameters-filetype-hash8`, lower case.

    For example `needle-reference-llama-2.2m-f16-1a2b3c4d`. It is made of the file's content, so a
    renamed file keeps its baselines and another file of the same name doesn't inherit them.
    """
    name = info.name or info.architecture
    parts = [name, info.architecture, short_count(info.parameters), info.file_type or "mixed"]
    words = [re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-.") for part in parts]
    if words[1] in words[0].split("-"):
        del words[1]
    return ModelIdentity(
        identity="-".join([*(w for w in words if w), info.content_hash[:8]]),
        name=name,
        architecture=info.architecture,
        file_type=info.file_type,
        parameters=info.parameters,
        trained_ctx_tokens=info.trained_ctx_tokens,
        content_hash=info.content_hash,
    )


def short_count(count: int) -> str:
    """A count in two or more significant digits with a decimal suffix: 2,164,992 → `2.2m`."""
    for suffix, unit in (("t", 10**12), ("b", 10**9), ("m", 10**6), ("k", 10**3)):
        if count >= 0.9995 * unit:
            return f"{count / unit:.1f}".removesuffix(".0") + suffix
    return str(count)


def _shards(first: Path) -> list[Path]:
    split = _SPLIT_NAME.match(first.name)
    if split is None:
        return [first]
    count = int(split["count"])
    paths = [
        first.with_name(f"{split['stem']}-{number:05d}-of-{count:05d}.gguf")
        for number in range(1, count + 1)
    ]
    if int(split["number"]) != 1 and first.exists():
        raise SetupError(
            f"{first} is shard {int(split['number'])} of {count}; name the first shard, "
            f"{paths[0].name}, as llama-server needs it too."
        )
    missing = [p.name for p in paths[1:] if not p.exists()]
    if missing and first.exists():
        raise SetupError(
            f"{first} is the first of {count} shards, and {len(missing)} of them are missing "
            f"beside it ({missing[0]}, …); download them all."
        )
    return paths


def _read_header(path: Path) -> _Header:
    try:
        if path.is_dir():
            raise SetupError(f"{path} is a directory; name the .gguf file inside it.")
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise SetupError(f"{path} is empty (0 bytes); download the model again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                _check_magic(path, data[:64])
                return _Reader(path, data).header()
    except FileNotFoundError:
        raise SetupError(f"{path}: no such file; check the model's path.") from None
    except _CutError:
        raise SetupError(
            f"{path} is truncated: it ends after {size:,} bytes, inside the header; "
            "download the model again."
        ) from None
    except OSError as error:
        raise SetupError(f"{path} can't be read: {error.strerror or error}.") from error


def _check_magic(path: Path, head: bytes) -> None:
    if head[:4] == struct.pack("<I", GGUF_MAGIC):
        return
    what = "a Git LFS pointer, not the model: run `git lfs pull`"
    if not head.startswith(b"version https://git-lfs"):
        what = f"not a GGUF: it begins with {head[:4]!r}, expected b'GGUF'"
    raise SetupError(f"{path} is {what}.")


class _Reader:
    """Walks one header; every read checks that the file is long enough."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 4

    def header(self) -> _Header:
        self._check_version()
        tensor_count, value_count = self._int(_U64), self._int(_U64)
        metadata: dict[str, MetadataValue] = {}
        seen: set[str] = set()
        for _ in range(value_count):
            key = self._string()
            if key in seen:
                raise self._broken(f"the metadata key {key} stands twice")
            seen.add(key)
            value = self._value(key)
            if value is not None:
                metadata[key] = value
        return self._tensors(metadata, tensor_count)

    def _check_version(self) -> None:
        version = self._int(_U32)
        if version & 0xFFFF == 0 and version:
            raise SetupError(f"{self._path} is a big-endian GGUF; a little-endian one is needed.")
        if version not in _SUPPORTED_VERSIONS:
            known = " and ".join(str(v) for v in _SUPPORTED_VERSIONS)
            raise SetupError(
                f"{self._path} is of GGUF version {version}; versions {known} can be read. "
                "Convert the model with a current llama.cpp, or update the gguf package."
            )

    def _tensors(self, metadata: dict[str, MetadataValue], count: int) -> _Header:
        elements: Counter[str] = Counter()
        total: int | None = 0
        end = 0
        for _ in range(count):
            name = self._string()
            dimensions = self._int(_U32)
            if dimensions > _MAX_DIMENSIONS:
                raise self._broken(f"tensor {name} has {dimensions} dimensions, at most 4 expected")
            size = 1
            for _ in range(dimensions):
                size *= self._int(_U64)
            code, offset = self._int(_U32), self._int(_U64)
            try:
                kind = GGMLQuantizationType(code)
            except ValueError:
                elements[f"type {code}"] += size
                total = None
                end = max(end, offset)
                continue
            block_elements, block_bytes = GGML_QUANT_SIZES[kind]
            elements[kind.name] += size
            length = size // block_elements * block_bytes
            total = None if total is None else total + length
            end = max(end, offset + length)
        raw = self._data[: self._at] + self._samples()
        alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._broken(f"general.alignment is {alignment}, not a power of two")
        expected = -(-self._at // alignment) * alignment + end
        if count and self._size < expected:
            raise SetupError(
                f"{self._path} is truncated: its tensor table asks for {expected:,} bytes, the "
                f"file has {self._size:,}; download the model again."
            )
        return _Header(metadata, elements, total, raw)

    def _samples(self) -> bytes:
        """Pieces of what follows the header, from its start to the file's end."""
        last = max(self._at, self._size - _SAMPLE_BYTES)
        starts = [self._at + (last - self._at) * i // (_SAMPLES - 1) for i in range(_SAMPLES)]
        return b"".join(self._data[start : start + _SAMPLE_BYTES] for start in starts)

    def _value(self, key: str) -> MetadataValue | None:
        """The value at the cursor; None for arrays that are skipped."""
        kind = self._kind(key)
        if kind is GGUFValueType.STRING:
            return self._string()
        if kind is not GGUFValueType.ARRAY:
            return self._scalar(_SCALARS[kind])
        item, length = self._kind(key), self._int(_U64)
        if item is GGUFValueType.ARRAY:
            raise self._broken(f"the metadata key {key} holds an array of arrays")
        if item is GGUFValueType.STRING:
            for _ in range(length):
                self._skip(self._int(_U64))
            return None
        layout = _SCALARS[item]
        if key.startswith("tokenizer.") or length > _KEPT_ARRAY_LENGTH:
            self._skip(length * layout.size)
            return None
        return tuple(self._scalar(layout) for _ in range(length))

    def _kind(self, key: str) -> GGUFValueType:
        code = self._int(_U32)
        try:
            return GGUFValueType(code)
        except ValueError:
            raise self._broken(f"the metadata key {key} has unknown value type {code}") from None

    def _string(self) -> str:
        length = self._int(_U64)
        start = self._at
        self._skip(length)
        return self._data[start : self._at].decode("utf-8", errors="replace")

    def _scalar(self, layout: struct.Struct) -> int | float | bool:
        start = self._at
        self._skip(layout.size)
        value: int | float | bool = layout.unpack_from(self._data, start)[0]
        return value

    def _int(self, layout: struct.Struct) -> int:
        return int(self._scalar(layout))

    def _skip(self, length: int) -> None:
        if length > self._size - self._at:
            raise _CutError
        self._at += length

    def _broken(self, what: str) -> SetupError:
        return SetupError(f"{self._path} is a broken GGUF: {what}; download the model again.")


def _file_type(code: MetadataValue | None, elements: Counter[str]) -> str | None:
    if isinstance(code, int):
        try:
            return LlamaFileType(code).name.removeprefix("MOSTLY_").removeprefix("ALL_")
        except ValueError:
            return f"type {code}"
    return elements.most_common(1)[0][0] if elements else None
