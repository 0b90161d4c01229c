"""Text that any console can show: characters it cannot encode are replaced by plain ones."""

import io
import re

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

_PLAIN = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "—": "-",
        "…": "...",
        "±": "+/-",
        "×": "x",
        "→": "->",
        "≤": "<=",
        "≥": ">=",
        "·": ".",
        "“": '"',
        "”": '"',
        "’": "'",
        "‘": "'",
    }
)


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def inert(text: str) -> str:
    """`text` without characters that drive a terminal or reorder it: each becomes `?`.

    Answers, file names and server headers are untrusted.
    """
    return _CONTROLS.sub("?", text)


def encodable(text: str, encoding: str | None) -> str:
    """`text` with whatever `encoding` lacks replaced: known signs by ASCII, the rest by `?`."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
        return text.encode(encoding, "replace").decode(encoding)
    except LookupError:
        return text.translate(_PLAIN).encode("ascii", "replace").decode()
    return text


def plain_table(*columns: str) -> Table:
    """A table of ASCII lines with these columns."""
    return Table(*columns, box=box.ASCII, show_edge=False, pad_edge=False)


def rendered(what: RenderableType, *, width: int, color: bool, encoding: str | None) -> str:
    """A rich renderable as text for a terminal of `width` columns."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
    )
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return encodable(console.file.getvalue(), encoding)
