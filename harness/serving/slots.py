"""Saved slots: the KV cache of a rung's document on disk, so that a resumed run need not read it.

llama-server writes and restores a slot where it was started with `--slot-save-path`. That is used
only while it costs little beside reading: a state is saved as long as saving took at most
`MOST_SHARE` of the time that reading had taken, and restored only if saving was the faster of the
two. A restored document is checked by the server's own counts and by asking a finished question
again before anything is measured on top of it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from harness.errors import ServerError
from harness.records.lines import Event, RunRecord

if TYPE_CHECKING:
    from harness.serving.client import Client
    from harness.settings import Settings

MOST_SHARE = 0.1
LEAST_READ_MS = 2000.0
"""A document that is read faster than this is not worth a file."""
LEAST_FREE_BYTES = 4 << 30
SAVED = "slot_saved"


def slots_folder(settings: "Settings") -> Path | None:
    """Where a server of ours may save its slots and find them, `None` when it is not to."""
    if settings.server_url:
        return None
    if settings.keep_kv or settings.spot:
        return kept_folder(settings)
    return settings.results / "slots" if settings.resume or settings.save_slots else None


def kept_folder(settings: "Settings") -> Path:
    """Where KV caches are kept for spot runs."""
    return settings.keep_kv_folder or user_cache_path("longctx-harness", appauthor=False) / "kv"


class Slots:
    """Saved states of one run. Files are named after run and rung; the newest two are kept."""

    def __init__(
        self, client: "Client", folder: Path, run_id: str, keep: Callable[[Event], None]
    ) -> None:
        self._client = client
        self._folder = folder
        self._run_id = run_id
        self._keep = keep
        self._off = False
        self._saved: list[Path] = []
        for stale in folder.glob("*.slot"):
            if not stale.name.startswith(f"{run_id}-"):
                stale.unlink(missing_ok=True)

    def save(self, depth: int, tokens: int, read_ms: float) -> None:
        """Save the document just read (`tokens` in `read_ms`), unless that is not worth it."""
        if self._off or read_ms < LEAST_READ_MS:
            return
        if shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES:
            self._give_up("less than 4 GiB are free on the disk of the results")
            return
        name = f"{self._run_id}-{depth}.slot"
        try:
            answer = self._client.post("/slots/0?action=save", {"filename": name})
            took_ms = number_in(answer, "timings", "save_ms")
        except ServerError as error:
            self._give_up(str(error))
            return
        self._saved.append(self._folder / name)
        for old in self._saved[:-2]:
            old.unlink(missing_ok=True)
        data = {
            "depth": depth,
            "file": name,
            "tokens": tokens,
            "read_ms": read_ms,
            "save_ms": took_ms,
            "bytes": answer.get("n_written"),
        }
        self._keep(Event(code=SAVED, message="", data=data))
        if took_ms > MOST_SHARE * read_ms:
            self._give_up(
                f"saving took {took_ms / 1e3:.1f} s, more than a tenth of the "
                f"{read_ms / 1e3:.1f} s that reading took"
            )

    def restore(self, depth: int, record: RunRecord) -> float | None:
        """Restore the document of `depth`; ms that it took, `None` if it was not done."""
        saved = next(
            (e.data for e in record.events if e.code == SAVED and e.data.get("depth") == depth),
            None,
        )
        if saved is None or not saved["save_ms"] < saved["read_ms"]:
            return None
        if not (self._folder / str(saved["file"])).is_file():
            return None
        self._saved.append(self._folder / str(saved["file"]))
        try:
            answer = self._client.post("/slots/0?action=restore", {"filename": saved["file"]})
            return number_in(answer, "timings", "restore_ms")
        except ServerError as error:
            self._keep(Event(code="slot_not_restored", message=f"slot not restored: {error}"))
            return None

    def discard(self) -> None:
        """Delete the states of a run that is complete."""
        for path in self._folder.glob(f"{self._run_id}-*.slot"):
            path.unlink(missing_ok=True)

    def _give_up(self, why: str) -> None:
        self._off = True
        self._keep(Event(code="slot_not_saved", message=f"no more slots are saved: {why}"))


def number_in(answer: dict[str, Any], *path: str) -> float:
    """A number of the server's answer about its slot.

    Raises:
        ServerError: there is none.
    """
    found: Any = answer
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise ServerError(f"the server's answer about its slot has no number {'.'.join(path)}")
    return float(found)
