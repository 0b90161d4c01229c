"""Which record a run goes on with, what is kept of it, and its document back in the KV cache."""

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ServerError
from harness.measuring.resume import Resumption, find_resumption, regain
from harness.records.files import Recorder, read_run
from harness.records.lines import REGAINED, SPOT, Event, Failure, Footer, Header, RunRecord
from harness.records.sittings import finished_arms
from harness.serving.slots import LEAST_READ_MS, SAVED, Slots
from harness.serving.wire import Exchange
from tests.made import ask, header, prefill, rung

NOW = datetime.fromisoformat("2026-01-01T00:10:00+00:00")


def write(folder: Path, *depths: int, complete: bool | None = None, run_id: str = "a") -> Path:
    recorder = Recorder(folder, header(run_id=run_id))
    for depth in depths:
        recorder.append(rung(depth))
    if complete is not None:
        recorder.append(
            Footer(ended_at="now", complete=complete, prefilled_tokens=9, elapsed_s=1.0)
        )
    recorder.close()
    return recorder.path


def look(folder: Path, now: Header | None = None) -> tuple[Resumption | None, str]:
    said: list[str] = []
    found = find_resumption(folder, now or header(run_id="new"), said.append, now=NOW, log="l")
    return found, " ".join(said)


def test_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    path = write(tmp_path, 2048)
    found, said = look(tmp_path)
    assert found is not None
    assert found.path == path
    assert found.sitting == 2
    assert list(found.rungs) == [2048]
    assert found.offset_s == 600.0
    assert "reused the rungs 2048; measured now: 8192" in said


def test_an_interrupted_run_is_gone_on_with(tmp_path: Path) -> None:
    write(tmp_path, 2048, complete=False)
    assert look(tmp_path)[0] is not None


@pytest.mark.parametrize(
    ("depths", "complete", "reason"),
    [
        ((2048, 8192), True, "is complete"),
        ((), None, "it finished no rung"),
    ],
)
def test_what_is_not_resumed_is_said(
    tmp_path: Path, depths: tuple[int, ...], complete: bool | None, reason: str
) -> None:
    write(tmp_path, *depths, complete=complete)
    found, said = look(tmp_path)
    assert found is None
    assert reason in said


def test_only_the_last_run_of_the_plan_counts(tmp_path: Path) -> None:
    write(tmp_path, 2048, run_id="20260101-000000-a")
    write(tmp_path, 2048, 8192, complete=True, run_id="20260102-000000-a")
    assert look(tmp_path)[0] is None


def arm(
    folder: Path,
    name: str,
    day: int,
    *,
    complete: bool | None = True,
    cause: Literal["INTERRUPTED", "SERVER_DIED"] = "INTERRUPTED",
) -> Path:
    head = header(run_id=f"202601{day:02d}-000000-a").model_copy(
        update={"matrix": "kv", "arm": name}
    )
    recorder = Recorder(folder, head)
    for depth in (2048, 8192) if complete else (2048,):
        recorder.append(rung(depth))
    if complete is not None:
        recorder.append(
            Footer(
                ended_at="now",
                complete=complete,
                prefilled_tokens=9,
                elapsed_s=1.0,
                failure=None if complete else Failure(cause=cause, message="it ended"),
            )
        )
    recorder.close()
    return recorder.path


def test_the_finished_arms_of_a_matrix_that_was_cut_short_are_kept(tmp_path: Path) -> None:
    arm(tmp_path, "one", 1)
    arm(tmp_path, "two", 2)
    kept, cut = arm(tmp_path, "one", 3), arm(tmp_path, "two", 4, complete=None)

    def found(name: str) -> Path | None:
        now = header(run_id="new").model_copy(update={"matrix": "kv", "arm": name})
        resumption, said = look(tmp_path, now)
        assert ("nothing is left to measure" in said) == (name == "one" and resumption is not None)
        return None if resumption is None else resumption.path

    assert (found("one"), found("two"), found("three")) == (kept, cut, None)
    arm(tmp_path, "two", 5)  # a whole one: a new matrix begins from its start
    assert (found("one"), found("two")) == (None, None)


def test_an_earlier_matrix_lends_no_arm(tmp_path: Path) -> None:
    """The arm before the one cut short was itself cut short: what is older is another night's."""
    arm(tmp_path, "one", 1)
    arm(tmp_path, "two", 2, complete=False)
    arm(tmp_path, "three", 3, complete=None)
    now = header(run_id="new").model_copy(update={"matrix": "kv", "arm": "one"})
    assert look(tmp_path, now)[0] is None


def test_an_arm_that_failed_by_itself_does_not_cut_its_matrix_short(tmp_path: Path) -> None:
    kept = arm(tmp_path, "one", 1)
    arm(tmp_path, "two", 2, complete=False, cause="SERVER_DIED")
    now = header(run_id="new").model_copy(update={"matrix": "kv", "arm": "one"})
    assert look(tmp_path, now)[0] is None  # the matrix came to its end
    arm(tmp_path, "three", 3, complete=None)
    found = look(tmp_path, now)[0]
    assert found is not None
    assert found.path == kept
    newest_first = [read_run(p) for p in sorted(tmp_path.glob("*.jsonl"), reverse=True)]
    assert finished_arms(newest_first, now) == {kept.stem}  # the one that failed is none


def test_other_plans_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 2048)
    found, said = look(tmp_path, header((2048, 4096)))
    assert found is None
    assert "no earlier run of this plan" in said


def test_another_build_is_named_and_everything_measured_anew(tmp_path: Path) -> None:
    write(tmp_path, 2048)
    now = header()
    found, said = look(
        tmp_path, now.model_copy(update={"server": now.server.model_copy(update={"build": "b2"})})
    )
    assert found is None
    assert "server build: b1 then, b2 now; measuring from the start" in said


def test_a_clock_set_back_does_not_put_the_second_sitting_before_the_first(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header())
    late = prefill(0, 1843, 1000.0).model_copy(update={"start_s": 5000.0, "end_s": 5001.5})
    recorder.append(rung(2048).model_copy(update={"prefills": (late,)}))
    recorder.close()
    found = look(tmp_path)[0]
    assert found is not None
    assert found.offset_s == 5001.5


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_record_cut_at_any_byte_can_be_gone_on_with(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = write(tmp_path_factory.mktemp("cut"), 2048, complete=False)
    raw = path.read_bytes()
    path.write_bytes(raw[: data.draw(st.integers(raw.index(b"\n") + 1, len(raw)))])
    before = read_run(path)
    found = Resumption(path, before, 1.0, "log")
    recorder = Recorder.resume(path)
    recorder.append(found.event(NOW))
    begun = read_run(path)
    assert not begun.torn
    assert begun.sittings == 2
    recorder.append(rung(8192).model_copy(update={"sitting": 2}))
    recorder.close()
    after = read_run(path)
    assert not after.torn
    assert after.footer is None
    assert after.sittings == 2
    assert after.rungs[: len(before.rungs)] == before.rungs
    assert after.rungs[-1].depth == 8192
    assert after.header == before.header


def test_the_end_of_an_earlier_sitting_is_not_the_runs(tmp_path: Path) -> None:
    path = write(tmp_path, 2048, complete=False)
    assert read_run(path).footer is not None
    recorder = Recorder.resume(path)
    recorder.append(Resumption(path, read_run(path), 1.0, "log").event(NOW))
    recorder.close()
    assert read_run(path).footer is None


def test_a_torn_line_longer_than_what_follows_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write(tmp_path, 2048, 8192)
    path.write_bytes(path.read_bytes()[:-2])
    found = Resumption(path, read_run(path), 1.0, "log")
    recorder = Recorder.resume(path)
    recorder.append(found.event(NOW))
    recorder.close()
    after = read_run(path)
    assert not after.torn
    assert [r.depth for r in after.rungs] == [2048]


def test_a_rung_measured_again_replaces_the_one_that_was_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path, 8192, 2048)
    recorder = Recorder.resume(path)
    recorder.append(rung(8192).model_copy(update={"elapsed_s": 99.0}))
    recorder.close()
    assert [(r.depth, r.elapsed_s) for r in read_run(path).rungs] == [(2048, 3.0), (8192, 99.0)]


class Server:
    """Answers the slot's endpoints; `save_ms` and `restore_ms` as asked, or fails."""

    def __init__(self, *, save_ms: float = 10.0, fails: bool = False) -> None:
        self.asked: list[str] = []
        self._save_ms = save_ms
        self._fails = fails

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(f"{path} {body['filename']}")
        if self._fails:
            raise ServerError("HTTP 501: not supported")
        return {"n_written": 9, "timings": {"save_ms": self._save_ms, "restore_ms": 5.0}}


def slots_of(folder: Path, server: Server, events: list[Event], run_id: str = "a") -> Slots:
    return Slots(server, folder, run_id, events.append)  # type: ignore[arg-type]


def test_a_state_is_saved_while_that_is_cheap(tmp_path: Path) -> None:
    server, events = Server(), list[Event]()
    slots = slots_of(tmp_path, server, events)
    slots.save(2048, 1800, LEAST_READ_MS - 1)
    slots.save(8192, 7300, LEAST_READ_MS)
    slots.save(16384, 14000, 9000.0)
    assert server.asked == [f"/slots/0?action=save a-{d}.slot" for d in (8192, 16384)]
    assert [e.code for e in events] == [SAVED, SAVED]


def test_saving_stops_once_it_costs_more_than_a_tenth_of_reading(tmp_path: Path) -> None:
    server, events = Server(save_ms=400.0), list[Event]()
    slots = slots_of(tmp_path, server, events)
    slots.save(8192, 7300, 3000.0)
    slots.save(16384, 14000, 9000.0)
    assert len(server.asked) == 1
    assert "more than a tenth" in events[-1].message


def test_a_server_that_cannot_save_is_asked_once(tmp_path: Path) -> None:
    server, events = Server(fails=True), list[Event]()
    slots = slots_of(tmp_path, server, events)
    slots.save(8192, 7300, 3000.0)
    slots.save(16384, 14000, 9000.0)
    assert len(server.asked) == 1
    assert "HTTP 501" in events[-1].message


def test_only_the_newest_two_states_are_kept_and_none_of_other_runs(tmp_path: Path) -> None:
    for name in ("b-8192.slot", "a-1.slot", "a-2.slot", "a-3.slot"):
        (tmp_path / name).touch()
    slots = slots_of(tmp_path, Server(), [])
    assert not (tmp_path / "b-8192.slot").exists()
    for depth in (1, 2, 3):
        slots.save(depth, 1, 3000.0)
    assert sorted(p.name for p in tmp_path.glob("*.slot")) == ["a-2.slot", "a-3.slot"]
    slots.discard()
    assert not list(tmp_path.glob("*.slot"))


def saved(save_ms: float = 10.0) -> RunRecord:
    data = {"depth": 8192, "file": "a-8192.slot", "save_ms": save_ms, "read_ms": 3000.0}
    return RunRecord(
        header=header(), rungs=(rung(8192),), events=(Event(code=SAVED, message="", data=data),)
    )


@pytest.mark.parametrize(
    ("record", "there", "restored"),
    [
        (saved(), True, 5.0),
        (saved(), False, None),
        (saved(save_ms=3000.0), True, None),
        (saved().model_copy(update={"events": ()}), True, None),
    ],
)
def test_a_state_is_restored_only_if_it_is_there_and_was_faster_than_reading(
    tmp_path: Path, record: RunRecord, there: bool, restored: float | None
) -> None:
    if there:
        (tmp_path / "a-8192.slot").touch()
    assert slots_of(tmp_path, Server(), []).restore(8192, record) == restored


def exchange(new: int, reused: int) -> Exchange:
    return Exchange(
        content="",
        reasoning="",
        finish_reason=None,
        prompt_tokens=new + reused,
        predicted_tokens=0,
        timings={"prompt_n": float(new), "cache_n": float(reused), "prompt_ms": 1.0},
        cached_tokens=reused,
        progress=(),
        first_token_ms=None,
        token_event_ms=(),
        wall_ms=1000.0,
        started_ns=0,
        ended_ns=1_000_000_000,
    )


@pytest.mark.parametrize(
    ("reused", "right", "how", "said"),
    [
        (7262, 5, "slot", "was restored from its saved slot"),
        (3000, 5, "prefill", "gave back 3000 of 7263 tokens"),
        (7262, 4, "prefill", "answered otherwise than before"),
    ],
)
def test_a_restored_document_is_built_upon_only_if_it_is_the_one_that_was_saved(
    tmp_path: Path, reused: int, right: int, how: str, said: str
) -> None:
    (tmp_path / "a-8192.slot").touch()
    read: list[bool] = []

    def prefill_again(reuse: bool) -> Exchange:
        read.append(reuse)
        return exchange(7263 - reused, reused) if reuse else exchange(7263, 0)

    event, tokens = regain(
        8192,
        saved(),
        slots_of(tmp_path, Server(), []),
        prefill=prefill_again,
        ask=lambda order: ask(right),
    )
    assert event.code == REGAINED
    assert event.data["how"] == how
    assert said in event.message
    assert tokens == 7263
    assert read == ([True] if how == "slot" else [True, False])


def test_without_a_saved_slot_the_document_is_read_again_cold() -> None:
    event, _ = regain(
        8192, saved(), None, prefill=lambda reuse: exchange(7263, 0), ask=lambda order: ask()
    )
    assert event.data["how"] == "prefill"


def test_a_spot_run_is_never_gone_on_with(tmp_path: Path) -> None:
    path = write(tmp_path, 2048)
    recorder = Recorder.resume(path)
    recorder.append(Event(code=SPOT, message="spot run"))
    recorder.close()
    found, said = look(tmp_path)
    assert found is None
    assert "no earlier run of this plan" in said
