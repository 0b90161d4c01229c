"""The model card's tables of real servers, from the results of evaluations and climbs.

python -m training.card build/table build/table-gpu
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from training.evaluate import Row, distinct, read

LENGTHS: tuple[tuple[str, int], ...] = (
    ("to 8K", 8_192),
    ("to 32K", 32_768),
    ("to 128K", 131_072),
    ("to 1M", 1_048_576),
    ("to 2M", 2_097_152),
    ("to 4M", 4_194_304),
)
"""Columns, each from the one before up to so many tokens."""

_SIX = ("suite", "climb")
_ORDERS = ("forward", "reversed", "shuffled")


def table(rows: Iterable[Row]) -> str:
    """Exact answers of the product's own questions: a line per background, KV type and server."""
    kept = [row for row in rows if row["style"] in _SIX]
    used = [(name, bounds) for name, bounds in _bounds() if any(_within(r, bounds) for r in kept)]
    head = ["background", "KV", "server", *(name for name, _ in used), " / ".join(_ORDERS)]
    return _markdown(head, kept, lambda found: [
        *(_exact([row for row in found if _within(row, bounds)]) for _, bounds in used),
        " ".join(_exact([row for row in found if row["order"] == order]) for order in _ORDERS),
    ])  # fmt: skip


def breadth(rows: Iterable[Row]) -> str:
    """The same of the grammar's breadth, all up to 8K tokens: a column per style."""
    kept = [row for row in rows if row["style"] not in _SIX]
    styles = sorted({row["style"] for row in kept})
    head = ["background", "KV", "server", *styles, "lines right"]
    return _markdown(head, kept, lambda found: [
        *(_exact([row for row in found if row["style"] == style]) for style in styles),
        f"{sum(row.get('lines_right', 0) for row in found)}"
        f"/{sum(row.get('lines', 0) for row in found)}",
    ])  # fmt: skip


def misses(rows: Iterable[Row]) -> list[str]:
    """Every wrong answer with f16 or q8_0, in words."""
    found = []
    for row in rows:
        if row["exact"] or row["kv"] == "q4_0":
            continue
        pairs = zip(row.get("wanted", []), row.get("got", []), strict=False)
        wrong = [f"`{got}` for `{wanted}`" for wanted, got in pairs if got != wanted]
        where = f"{row['style']}, {row['length']} tokens, {row['background']}, KV {row['kv']}"
        told = "; ".join(wrong) or json.dumps(row.get("error") or row.get("got"))
        found.append(f"- {where}, {row['server']}, seed {row['seed']}: {told}")
    return found


def _bounds() -> list[tuple[str, tuple[int, int]]]:
    floors = [0, *(most for _, most in LENGTHS)]
    return [(name, (least, most)) for least, (name, most) in zip(floors, LENGTHS, strict=False)]


def _within(row: Row, bounds: tuple[int, int]) -> bool:
    return bounds[0] < int(row["length"]) <= bounds[1]


def _exact(rows: Sequence[Row]) -> str:
    return f"{sum(row['exact'] for row in rows)}/{len(rows)}" if rows else "–"


def _markdown(
    head: Sequence[str], rows: Sequence[Row], cells: Callable[[list[Row]], list[str]]
) -> str:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["background"], row["kv"], row["server"]), []).append(row)
    kv_types = ("f16", "q8_0", "q4_0")
    ordered = sorted(groups, key=lambda key: (key[0] != "plain", kv_types.index(key[1]), key[2]))
    lines = [list(head), ["---"] * len(head), *([*key, *cells(groups[key])] for key in ordered)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("results", type=Path, nargs="+", help="results files, or folders of them")
    args = p.parse_args()
    rows = distinct(row for path in args.results for row in read(path))
    print(table(rows), breadth(rows), "\n".join(misses(rows)), sep="\n\n")


if __name__ == "__main__":
    main()
