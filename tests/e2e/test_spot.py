"""Spot runs on the real server: kept caches are restored, judged like a full run, or refused."""

import hashlib
import os
import signal
import time
from pathlib import Path

import pytest

from harness.records.baseline import key_of
from harness.records.baseline_files import find_baseline
from harness.records.lines import NOT_SPOT, SPOT, RunRecord
from harness.serving.kept import Manifest, file_name, manifests
from harness.verdicts.verdict import judge
from tests.e2e import random_models
from tests.e2e.conftest import Bench, Done, new_bench
from tests.made import BANDS

pytestmark = pytest.mark.slow

PLAN = (
    *("-m", "long", "--depths", "1024,4096", "--repeats", "3", "--generate-tokens", "16"),
    *("--server-args=-b 128 -ub 128 -t 1", "--remeasure", "0", "-q"),
)


def spotted(record: RunRecord) -> str:
    return next(e.message for e in record.events if e.code in (SPOT, NOT_SPOT))


class Kept:
    """A repository with two accepted full runs whose KV caches were kept."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.folder = bench.root / "kv"
        (bench.root / "harness.toml").write_text('keep_kv_folder = "kv"\n', encoding="utf-8")

    def run(self, *more: str) -> tuple[RunRecord, Done]:
        done = self.bench.pytest(*PLAN, *more)
        return self.bench.records()[-1], done

    def files(self) -> list[Manifest]:
        return sorted(manifests(self.folder), key=lambda m: m.depth)

    def path(self, manifest: Manifest) -> Path:
        return self.folder / file_name(manifest)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    kept = Kept(new_bench(tmp_path_factory.mktemp("spot")))
    for _ in range(2):
        record, done = kept.run("--keep-kv")
        assert not record.spot, done.text
    accepted = kept.bench.harness("baseline", "update", "--force", "--reason", "busy")
    assert accepted.code == 0, accepted.text
    return kept


def test_a_spot_run_reads_only_the_end_and_is_judged_as_a_full_one(kept: Kept) -> None:
    record, done = kept.run("--spot")
    assert record.spot, done.text
    deep = record.rung(4096)
    assert deep is not None
    (climb,) = deep.prefills
    assert climb.planned_cached_tokens > 2500
    assert climb.new_tokens < 1000
    assert (climb.cached_tokens or 0) >= climb.planned_cached_tokens - 16
    assert len(climb.chunks) >= 6
    assert deep.cold_ttft_ms is None
    assert [a.needles_right for a in deep.asks] == [5, 5, 5]
    assert len(deep.generations) >= 3
    assert "not covered: the reading of whole documents" in " ".join(done.text.split())
    baseline = find_baseline(kept.bench.root / "baselines", key_of(record.header))
    cells = [c for c in judge(record, baseline, BANDS).cells if c.depth == 4096]
    answers = {c.metric.name: c.outcome for c in cells}
    assert set(answers) == set(BANDS)
    assert "NO_BASELINE" not in answers.values()
    assert answers["retrieval"] == answers["fidelity"] == "PASS"
    refused = kept.bench.harness("baseline", "update", "--add", record.header.run_id)
    assert refused.code != 0
    assert f"run {record.header.run_id} is a spot run" in refused.text


@pytest.mark.parametrize("what", ["cut off", "cut off before its digest", "another model's"])
def test_a_file_that_is_not_this_models_ends_in_a_sentence_and_a_full_run(
    kept: Kept, tmp_path: Path, what: str
) -> None:
    shallow, deep = kept.files()
    path, whole = kept.path(shallow), kept.path(shallow).read_bytes()
    manifest = path.with_suffix(".json")
    noted = manifest.read_bytes()
    try:
        if what == "cut off":
            path.write_bytes(whole[: len(whole) // 2])
        else:  # as if it were ours: name, size and digest fit
            body = other_cache(tmp_path) if "other" in what else whole[: len(whole) // 2]
            path.write_bytes(body)
            digest = hashlib.sha256(body).hexdigest()
            forged = shallow.model_copy(update={"digest": digest, "size_bytes": len(body)})
            manifest.write_text(forged.model_dump_json(), encoding="utf-8")
        record, done = kept.run("--spot")
    finally:
        path.write_bytes(whole)
        manifest.write_bytes(noted)
    said = spotted(record)
    assert not record.spot, done.text
    assert said.endswith("; measured in full")
    assert ("is damaged" if what == "cut off" else "does not take the kept document") in said
    assert record.footer is not None
    assert record.footer.complete
    assert [r.failure for r in record.rungs] == [None, None]
    assert record.rungs[-1].prefills[-1].new_tokens > 2500
    assert deep.depth == 4096


def other_cache(folder: Path) -> bytes:
    """What another model's server writes."""
    other = Kept(new_bench(folder))
    model = random_models.sliding(folder / "other.gguf")
    other.run("--keep-kv", f"--model={model}")
    return other.path(other.files()[0]).read_bytes()


@pytest.mark.parametrize("kind", ["sliding", "short_convolution"])
def test_a_cache_that_cannot_be_rolled_back_is_read_in_full(tmp_path: Path, kind: str) -> None:
    kept = Kept(new_bench(tmp_path))
    model = getattr(random_models, kind)(tmp_path / f"{kind}.gguf")
    kept.run("--keep-kv", f"--model={model}")
    record, done = kept.run("--spot", f"--model={model}")
    assert not record.spot, done.text
    assert "cannot roll the restored cache back" in spotted(record)


def test_killed_in_a_save_nothing_half_written_is_restored(kept: Kept, tmp_path: Path) -> None:
    fresh = Kept(new_bench(tmp_path))
    args = ("-m", "pytest", "-p", "no:cacheprovider", *PLAN, "--keep-kv")
    child = fresh.bench.start(*args)
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s and not list(fresh.folder.glob("*.part")):
        time.sleep(0.0005)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    for manifest in fresh.files():
        assert fresh.path(manifest).stat().st_size == manifest.size_bytes
    record, done = fresh.run("--spot")
    assert not record.spot, done.text
    assert "is not kept" in spotted(record)
