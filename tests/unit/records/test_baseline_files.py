"""Baseline files: read back as written, refused in one sentence when they cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import StoreError
from harness.records import baseline_files as baselines
from harness.records.baseline import AcceptedRun, Baseline, Key
from harness.records.lines import Chunk
from harness.records.samples import Samples

KEY = Key(machine_class="amd/ryzen x", model="m-1", config={"ctx": 4096, "background": "plain"})


def some_baseline() -> Baseline:
    samples = Samples(
        chunks=(Chunk(start_tokens=0, end_tokens=512, ms=12.3456789),),
        prefill_tok_s=(1234.5678,),
        generation_tok_s=(99.5, 101.25),
        ttft_ms=(17.0,),
        memory_gib=(1.5,),
        retrieval=(15, 15, 3, 3),
    )
    run = AcceptedRun(
        run_id="r",
        started_at="s",
        accepted_at="a",
        build="b1",
        os="linux",
        driver=None,
        noted={"-t": "2"},
        cells={2048: samples},
    )
    return Baseline(key=KEY, runs=(run, run))


def test_written_and_read_back(tmp_path: Path) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    back = baselines.find_baseline(tmp_path, KEY)
    assert back is not None
    assert back.key == KEY
    assert back.runs[0].cells[2048].generation_tok_s == (99.5, 101.25)
    assert back.runs[0].cells[2048].chunks[0].ms == pytest.approx(12.346)
    assert path.is_relative_to(tmp_path)
    assert len(path.relative_to(tmp_path).parts) == 3
    assert list(path.parent.iterdir()) == [path]
    assert list(baselines.list_baselines(tmp_path)) == [path]


def test_another_key_has_another_file(tmp_path: Path) -> None:
    other = KEY.model_copy(update={"config": {"ctx": 4096, "background": "hard"}})
    assert baselines.baseline_path(tmp_path, other) != baselines.baseline_path(tmp_path, KEY)
    assert baselines.find_baseline(tmp_path, other) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not valid JSON"),
        ("", "is not valid JSON"),
        ('{"schema_version": 99}', "was written by a newer version (schema 99"),
        ("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> x\n", "unresolved merge conflict marks"),
        ('{"schema_version": 1, "key": {}}', "is broken at key.machine_class"),
        ("[]", "is not a baseline"),
        ('{"schema_version": 0}', "cannot be migrated"),
        ('{"schema_version": "1"}', "has no schema_version"),
        ('{"schema_version": true}', "has no schema_version"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_unusable_files_are_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=r".*") as caught:
        baselines.read_baseline(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("bad", ["NaN", "Infinity"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, bad: str) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    path.write_text(path.read_text(encoding="utf-8").replace("99.5", bad), encoding="utf-8")
    with pytest.raises(StoreError, match="is broken at"):
        baselines.read_baseline(path)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("retrieval", [20, 15, 3, 3], "more answers are right than were asked for"),
        ("needles", [[4, 3]], "more answers are right than were asked for"),
        ("generation_tok_s", [-5, 100], "generation_tok_s holds a value that is not above zero"),
        ("ttft_ms", [0.0], "ttft_ms holds a value that is not above zero"),
        ("chunks", [{"start_tokens": 5, "end_tokens": 5, "ms": 1.0}], "no tokens or no time"),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    tmp_path: Path, name: str, value: object, says: str
) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    body = json.loads(path.read_text(encoding="utf-8"))
    body["runs"][0]["cells"]["2048"][name] = value
    path.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(StoreError, match=says):
        baselines.read_baseline(path)


def test_a_baseline_of_another_key_is_not_used(tmp_path: Path) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    body = json.loads(path.read_text(encoding="utf-8"))
    body["key"]["config"]["cache_type_k"] = "q4_0"
    path.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(StoreError, match="it was moved or edited"):
        baselines.find_baseline(tmp_path, KEY)


def test_a_baseline_of_schema_1_is_read(tmp_path: Path) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    body = json.loads(path.read_text(encoding="utf-8"))
    body["schema_version"] = 1
    del body["anchor"], body["runs"][0]["cells"]["2048"]["needles"]
    path.write_text(json.dumps(body), encoding="utf-8")
    assert baselines.read_baseline(path).anchor == ()


def test_an_older_schema_is_migrated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    body = json.loads(path.read_text(encoding="utf-8"))
    body["schema_version"] = -1
    body["accepted"] = body.pop("runs")

    def step(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "schema_version": old["schema_version"] + 1}

    def rename(old: dict[str, Any]) -> dict[str, Any]:
        renamed = {k: v for k, v in old.items() if k != "accepted"}
        return {**renamed, "runs": old["accepted"], "schema_version": 1}

    monkeypatch.setattr(baselines, "MIGRATIONS", {**baselines.MIGRATIONS, -1: step, 0: rename})
    path.write_text(json.dumps(body), encoding="utf-8")
    assert len(baselines.read_baseline(path).runs) == 2


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = baselines.write_baseline(tmp_path, some_baseline())
    before = path.read_bytes()

    def broken(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", broken)
    with pytest.raises(StoreError, match="No space left"):
        baselines.write_baseline(tmp_path, some_baseline())
    assert path.read_bytes() == before


def test_the_nearest_baseline_is_of_the_same_model_and_differs_least(tmp_path: Path) -> None:
    near = KEY.model_copy(update={"config": {**KEY.config, "ctx": 8192}})
    far = near.model_copy(update={"machine_class": "other"})
    other = KEY.model_copy(update={"model": "m-2"})
    for key in (far, near, other):
        path = baselines.write_baseline(tmp_path, some_baseline().model_copy(update={"key": key}))
    path.with_name("broken.json").write_text("{", encoding="utf-8")
    found = baselines.nearest_baseline(tmp_path, KEY)
    assert found is not None
    assert found.key == near
    assert KEY.differences(near) == {"ctx": (4096, 8192)}
    assert baselines.nearest_baseline(tmp_path, KEY.model_copy(update={"model": "m-3"})) is None
