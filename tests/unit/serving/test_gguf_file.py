"""GGUF headers: the values gguf's own reader gives, and one clear sentence per broken file."""

import contextlib
import shutil
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import harness.models
from harness.errors import SetupError
from harness.serving.gguf_file import GgufInfo, model_identity, read_gguf, short_count

REFERENCE = next(Path(harness.models.__file__).parent.glob("reference-f16.gguf"))


def write_model(
    path: Path,
    *,
    name: str = "tiny",
    scalars: dict[str, int] | None = None,
    arrays: dict[str, list[int]] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    file_type: int | None = 1,
) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(4096)
    if file_type is not None:
        writer.add_file_type(file_type)
    writer.add_token_list(["a", "b", "ü"])
    for key, value in (scalars or {}).items():
        writer.add_uint32(key, value)
    for key, values in (arrays or {}).items():
        writer.add_array(key, values)
    for key, data in (tensors or {"w": np.ones((4, 64), dtype=np.float16)}).items():
        writer.add_tensor(key, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def by_gguf_reader(path: Path) -> dict[str, object]:
    reader = gguf.GGUFReader(path)
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in ((f.name, f.contents()) for f in reader.fields.values())
        if not key.startswith("GGUF.")
        and not (isinstance(value, list) and key.startswith("tokenizer."))
    }


def test_reference_model_reads_as_ggufs_own_reader_reads_it() -> None:
    info = read_gguf(REFERENCE)
    tensors = gguf.GGUFReader(REFERENCE).tensors
    assert dict(info.metadata) == by_gguf_reader(REFERENCE)
    assert info.parameters == sum(t.n_elements for t in tensors)
    assert info.tensor_bytes == sum(t.n_bytes for t in tensors)
    assert (info.architecture, info.file_type) == ("llama", "F16")
    assert info.trained_ctx_tokens == 4_194_304


@settings(max_examples=25, deadline=None)
@given(
    scalars=st.dictionaries(st.sampled_from(["llama.a", "llama.b"]), st.integers(0, 2**32 - 1)),
    heads=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=60),
)
def test_any_metadata_reads_as_ggufs_own_reader_reads_it(
    tmp_path_factory: pytest.TempPathFactory, scalars: dict[str, int], heads: list[int]
) -> None:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_model(path, scalars=scalars, arrays={"llama.attention.head_count_kv": heads})
    info = read_gguf(path)
    assert dict(info.metadata) == by_gguf_reader(path)
    assert info.metadata["llama.attention.head_count_kv"] == tuple(heads)


def test_quantised_tensors_count_elements_and_bytes(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "q.gguf", "llama")
    quantised = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("w", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    info = read_gguf(tmp_path / "q.gguf")
    assert (info.parameters, info.tensor_bytes) == (128, 4 * 34)
    assert info.file_type == "Q8_0"  # from the tensors: no general.file_type


def test_hash_follows_the_content_not_the_name(tmp_path: Path) -> None:
    one = read_gguf(write_model(tmp_path / "one.gguf"))
    shutil.copy(tmp_path / "one.gguf", tmp_path / "two.gguf")
    assert read_gguf(tmp_path / "two.gguf") == one
    for other in (
        write_model(tmp_path / "meta.gguf", scalars={"llama.block_count": 5}),
        write_model(tmp_path / "shape.gguf", tensors={"w": np.ones((2, 128), np.float16)}),
        write_model(tmp_path / "type.gguf", tensors={"w": np.ones((4, 64), np.float32)}),
        write_model(tmp_path / "tensor.gguf", tensors={"v": np.ones((4, 64), np.float16)}),
        write_model(tmp_path / "tuned.gguf", tensors={"w": np.full((4, 64), 2.0, np.float16)}),
    ):
        assert read_gguf(other).content_hash != one.content_hash, other.name


def test_identity_is_a_readable_slug() -> None:
    info = read_gguf(REFERENCE)
    identity = model_identity(info)
    assert identity.identity == f"longctx-reference-llama-3m-f16-{info.content_hash[:8]}"
    assert (identity.parameters, identity.trained_ctx_tokens) == (info.parameters, 4_194_304)


def test_a_name_with_escapes_is_cleaned_where_it_enters(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", name="good\x1b]0;owned\x07" + "x" * 500)
    name = model_identity(read_gguf(path)).name
    assert name.startswith("good\\x1b]0;owned\\x07xxx")
    assert len(name) < 150


def test_identity_does_not_repeat_the_architecture() -> None:
    info = GgufInfo("llama", "Llama 3.1 (8B)", None, 8_030_000_000, None, None, {}, "ab" * 32, 1)
    assert model_identity(info).identity == "llama-3.1-8b-8b-mixed-abababab"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (2_164_992, "2.2m"), (35_000_000_000, "35b"), (999_600_000, "1b")],
)
def test_short_count(count: int, text: str) -> None:
    assert short_count(count) == text


def test_missing_file_directory_and_empty_file(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no such file"):
        read_gguf(tmp_path / "absent.gguf")
    with pytest.raises(SetupError, match="is a directory"):
        read_gguf(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(SetupError, match=r"is empty \(0 bytes\)"):
        read_gguf(tmp_path / "empty.gguf")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04 a zip archive", r"it begins with b'PK\\x03\\x04', expected b'GGUF'"),
        (b"<ht", "it begins with b'<ht'"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(16), "version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack("<I", 9) + bytes(16), "version 9"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99), "type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no general.architecture"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(SetupError, match=says):
        read_gguf(path)


def test_every_cut_of_a_file_is_told_and_where(tmp_path: Path) -> None:
    whole = write_model(tmp_path / "whole.gguf", arrays={"llama.attention.head_count_kv": [1, 2]})
    content = whole.read_bytes()
    data_offset = gguf.GGUFReader(whole).data_offset
    path = tmp_path / "cut.gguf"
    for length in [*range(4, data_offset - 31), data_offset, data_offset + 511]:
        path.write_bytes(content[:length])
        with pytest.raises(SetupError, match="truncated") as caught:
            read_gguf(path)
        assert "\n" not in str(caught.value)
    assert f"asks for {data_offset + 512:,} bytes, the file has {data_offset + 511:,}" in str(
        caught.value
    )
    path.write_bytes(content[: data_offset + 512])  # the writer's trailing padding may be absent
    assert read_gguf(path).tensor_bytes == 512


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_flipped_bytes_give_a_sentence_or_a_reading_never_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("flip") / "m.gguf"
    content = bytearray(write_model(path).read_bytes())
    for at in data.draw(st.lists(st.integers(0, 500), min_size=1, max_size=4)):
        content[min(at, len(content) - 1)] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(SetupError):
        read_gguf(path)


def test_split_model_is_read_whole_from_its_first_shard(tmp_path: Path) -> None:
    first = write_model(tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(SetupError, match=r"missing beside it \(m-00002-of-00002.gguf"):
        read_gguf(first)
    second = write_model(
        tmp_path / "m-00002-of-00002.gguf", tensors={"v": np.ones((1, 8), np.float16)}
    )
    info = read_gguf(first)
    assert (info.shards, info.parameters, info.tensor_bytes) == (2, 256 + 8, 512 + 16)
    with pytest.raises(SetupError, match="shard 2 of 2; name the first shard, m-00001-of-00002"):
        read_gguf(second)
    before = info.content_hash
    write_model(second, tensors={"v": np.ones((1, 8), np.float32)})
    assert read_gguf(first).content_hash != before


def test_a_fine_tune_anywhere_in_a_large_file_is_another_model(tmp_path: Path) -> None:
    """4 MiB of weights, of which 160 KiB change: more than lies between two samples."""
    weights = np.zeros((512, 4096), dtype=np.float16)
    plain = read_gguf(write_model(tmp_path / "plain.gguf", tensors={"w": weights}))
    for first in (0, 250, 492):
        tuned = weights.copy()
        tuned[first : first + 20] = 1.0
        other = read_gguf(write_model(tmp_path / f"{first}.gguf", tensors={"w": tuned}))
        assert other.content_hash != plain.content_hash, first
        assert other.metadata == plain.metadata
