"""Exports as their readers read them, and llama-bench's output as a baseline."""

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pytest_benchmark.storage.file import FileStorage

from harness.errors import StoreError
from harness.records.baseline import Baseline, key_of
from harness.report.exports import github_action, llama_bench, otava, pytest_benchmark
from harness.verdicts.trend import points_of
from harness.verdicts.verdict import judge
from tests.made import BANDS, DEPTHS, whole_run

COMPARE_NEEDS = (
    "cpu_info gpu_info backends n_gpu_layers tensor_buft_overrides model_filename model_type "
    "n_batch n_ubatch embeddings cpu_mask cpu_strict poll n_threads type_k type_v use_mmap "
    "no_kv_offload split_mode main_gpu tensor_split flash_attn n_prompt n_gen n_depth "
    "build_commit test_time avg_ts n_cpu_moe load_mode fit_target fit_min_ctx"
).split()
"""What llama.cpp's compare-llama-bench.py asks of every row, older (use_mmap) or newer."""
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def test_rows_are_named_as_llama_bench_names_them() -> None:
    names = [row.name for row in llama_bench.rows_of(whole_run(1))]
    assert names[:4] == ["pp1843", "tg128 @ d1843", "pp5530 @ d1843", "tg128 @ d7373"]
    assert len(names) == 2 * len(DEPTHS)


def test_the_compare_script_finds_its_columns_in_plain_values() -> None:
    rows = json.loads(llama_bench.as_json(llama_bench.rows_of(whole_run(1))))
    for row in rows:
        assert set(COMPARE_NEEDS) <= set(row)
        plain = {k: v for k, v in row.items() if not k.startswith("samples_")}
        assert all(isinstance(v, str | int | float | bool) for v in plain.values())
        assert row["build_commit"] == "0a1b2c3d"
        assert row["build_number"] == 11480
        assert (row["n_batch"], row["n_ubatch"], row["type_k"]) == (2048, 512, "q8_0")
        assert row["avg_ts"] == pytest.approx(sum(row["samples_ts"]) / len(row["samples_ts"]))


def test_disturbed_repeats_are_not_exported() -> None:
    generated = [r for r in llama_bench.rows_of(whole_run(1)) if r.n_gen]
    assert [len(r.samples_ts) for r in generated] == [5] * len(DEPTHS)


@pytest.mark.parametrize("build", ["b11549 (xllamacpp 2026.10.11549)", "b11549", "", "v1"])
def test_builds_that_are_not_a_number_and_a_commit(build: str) -> None:
    (row, *_) = llama_bench.rows_of(whole_run(1, build=build))
    assert row.build_number == (11549 if "11549" in build else 0)
    assert row.build_commit


def test_json_and_jsonl_read_back_alike() -> None:
    rows = llama_bench.rows_of(whole_run(1))
    assert llama_bench.parse(llama_bench.as_json(rows), "a") == rows
    assert llama_bench.parse(llama_bench.as_jsonl(rows), "a") == rows


@pytest.mark.parametrize("broken", ["", "[]", "{}", "[{]", '[{"n_prompt": 1}]', "speed: 12"])
def test_what_is_not_llama_bench_is_one_sentence(broken: str) -> None:
    with pytest.raises(StoreError, match=r"file\.json"):
        llama_bench.parse(broken, "file.json")


def test_fields_of_other_builds_do_not_matter() -> None:
    text = '[{"n_prompt": 0, "n_gen": 128, "avg_ts": 5.0, "load_mode": "mmap", "new": [1]}]'
    (row,) = llama_bench.parse(text, "a")
    assert row.rates_tok_s == (5.0,)


def test_round_trip_json_to_baseline_to_verdict_to_export() -> None:
    good = [whole_run(seed) for seed in (1, 2, 3)]
    now = whole_run(4, cliff=0.6, generation=0.7)
    accepted = []
    for run in good:
        rows = llama_bench.parse(llama_bench.as_json(llama_bench.rows_of(run)), "a.json")
        one, imported = llama_bench.accepted_rows(rows, now, f"{run.header.run_id}.json", NOW)
        assert imported.left_out == ()
        accepted.append(one)
    baseline = Baseline(key=key_of(now.header), runs=tuple(accepted))
    verdict = judge(now, baseline, BANDS)
    outcomes = {d: verdict.cell(d, "generation").outcome for d in DEPTHS}  # type: ignore[union-attr]
    assert outcomes == {2048: "PASS", 8192: "PASS", 32768: "REGRESSED", 131072: "REGRESSED"}
    assert any("measured_by" in difference for difference in verdict.differences)
    again = llama_bench.parse(llama_bench.as_jsonl(llama_bench.rows_of(now)), "b")
    deep = next(r for r in again if r.n_gen and r.n_depth > 100_000)
    cell = verdict.cell(131072, "generation")
    assert cell is not None
    assert cell.measured == pytest.approx(deep.avg_ts, rel=0.01)


def test_rows_that_measured_something_else_are_left_out_and_named() -> None:
    like = whole_run(1)
    rows = [
        llama_bench.Row(n_prompt=512, n_gen=0, n_depth=0, avg_ts=900.0),
        llama_bench.Row(n_prompt=0, n_gen=128, n_depth=50_000, avg_ts=60.0),
        llama_bench.Row(n_prompt=0, n_gen=128, n_depth=7400, avg_ts=80.0),
        llama_bench.Row(n_prompt=7400, n_gen=128, avg_ts=80.0),
    ]
    imported = llama_bench.cells_for(rows, like)
    assert list(imported.cells) == [8192]
    assert imported.cells[8192].generation_tok_s == (80.0,)
    assert [w.split(":")[0] for w in imported.left_out] == [
        "pp512",
        "tg128 @ d50000",
        "pp7400+tg128",
    ]
    with pytest.raises(StoreError, match="nothing in x fits"):
        llama_bench.accepted_rows(rows[:1], like, "x", NOW)


def test_another_configuration_is_named() -> None:
    rows = [llama_bench.Row(n_prompt=0, n_gen=128, avg_ts=5.0, type_k="f16", n_ubatch=2048)]
    found = llama_bench.disagreements(rows, key_of(whole_run(1).header))
    assert found == [
        "cache_type_k is f16 in the file and q8_0 in the run",
        "ubatch is 2048 in the file and 512 in the run",
    ]
    assert (
        llama_bench.disagreements(llama_bench.rows_of(whole_run(1)), key_of(whole_run(1).header))
        == []
    )


def test_pytest_benchmark_loads_it(tmp_path: object) -> None:
    text = pytest_benchmark.as_json([whole_run(1)])
    folder = tmp_path / "Linux"  # type: ignore[operator]
    folder.mkdir()
    (folder / "0001_long.json").write_text(text)

    class Quiet:
        def __getattr__(self, _: str) -> object:
            return lambda *a, **k: None

    storage = FileStorage(str(tmp_path), logger=Quiet(), default_machine_id="Linux")
    (loaded,) = [data for _, data in storage.load()]
    by_name = {b["name"]: b["stats"] for b in loaded["benchmarks"]}
    assert set(by_name) == {f"{m}[{d}]" for m in ("prefill", "generation", "ttft") for d in DEPTHS}
    assert by_name["generation[2048]"]["median"] == pytest.approx(1 / 87.0, rel=0.02)
    assert by_name["ttft[2048]"]["mean"] == pytest.approx(0.125, rel=0.05)


def test_what_is_better_bigger_and_smaller_is_kept_apart() -> None:
    run = whole_run(1)
    bigger = json.loads(github_action.as_json(run, "higher"))
    smaller = json.loads(github_action.as_json(run, "lower"))
    assert {e["name"].split(" at ")[0] for e in bigger} == {"prefill", "generation", "retrieval"}
    assert {e["name"].split(" at ")[0] for e in smaller} == {"warm TTFT", "server memory"}
    assert all(isinstance(e["value"], float | int) and e["unit"] for e in bigger + smaller)
    assert next(e for e in bigger if e["name"].startswith("retrieval"))["value"] == 100.0


def test_otava_gets_one_row_a_run_in_utc_and_every_direction() -> None:
    points = [p for seed in (2, 1) for p in points_of(whole_run(seed))]
    rows = list(csv.DictReader(io.StringIO(otava.as_csv(points))))
    assert [r["run_id"][:8] for r in rows] == ["20261101", "20261102"]
    assert rows[0]["time"] == "2026-11-01 02:00:00 +0000"
    assert float(rows[0]["generation_2048"]) == pytest.approx(87.0, rel=0.02)
    config = otava.as_config({"runs": points})
    assert "      ttft_2048:\n        direction: -1\n" in config
    assert "      prefill_131072:\n        direction: 1\n" in config


def test_otava_s_cells_are_no_formulas() -> None:
    points = [replace(p, build="=cmd|' /C calc'!A0") for p in points_of(whole_run(1))]
    rows = list(csv.DictReader(io.StringIO(otava.as_csv(points))))
    assert rows[0]["build"] == "'=cmd|' /C calc'!A0"


def test_otava_cells_that_were_not_measured_are_empty() -> None:
    points = [p for p in points_of(whole_run(1)) if p.depth != 2048] + list(points_of(whole_run(2)))
    rows = list(csv.DictReader(io.StringIO(otava.as_csv(points))))
    assert rows[0]["prefill_2048"] == ""
    assert rows[1]["prefill_2048"] != ""
