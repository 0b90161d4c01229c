"""Unpacking archives that somebody else made, so that nothing lands outside the folder."""

import tarfile
import zipfile
from pathlib import Path, PurePosixPath, PureWindowsPath

from harness.errors import SetupError


def unpack(path: Path, name: str, folder: Path) -> None:
    """Unpack a `.zip` or tar archive, called `name`, into an empty folder.

    Raises:
        SetupError: it is damaged, or a name or link in it leads out of the folder.
    """
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                _refuse_unsafe(archive.namelist(), name)
                archive.extractall(folder)  # noqa: S202 - names are checked
        else:
            with tarfile.open(path) as tar:
                _refuse_unsafe(tar.getnames(), name)
                tar.extractall(folder, filter="data")  # refuses links and devices that lead out
    except tarfile.FilterError as error:
        raise SetupError(f"{name} is not unpacked: {error}") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise SetupError(f"{name} is damaged and cannot be unpacked: {error}") from error


def _refuse_unsafe(names: list[str], archive: str) -> None:
    for name in names:
        ways = (PurePosixPath(name), PureWindowsPath(name))
        if any(way.is_absolute() or way.drive or ".." in way.parts for way in ways):
            raise SetupError(f"{archive} is not unpacked: {name!r} in it leads out of its folder")
