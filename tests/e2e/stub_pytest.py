"""In place of pytest in a night: does what the next line of a script says, and no measuring.

`python -m tests.e2e.stub_pytest SCRIPT PROFILE RESULTS [--resume]`; a line of the script is
`PROFILE ACTION`. The lines done are noted in `SCRIPT.done`.
"""

import sys
import time
from pathlib import Path

from harness.records.files import Recorder, list_runs, read_run
from harness.records.lines import RESUMED, Event, Footer, Header
from tests.made import control, header, rung

STEADY = (1000.0, 1001.0, 999.0, 1000.0, 1000.5, 999.5)
SLOWER = 0.7


def header_of(profile: str, run_id: str) -> Header:
    """A made-up run of a profile; the label keeps its baseline apart."""
    return header(run_id=run_id).model_copy(update={"profile": profile, "label": profile})


def measure(recorder: Recorder, depths: tuple[int, ...], sitting: int, pace: float) -> None:
    """Lines of a made-up sitting."""
    rates = tuple(100.0 * pace * r / 1000.0 for r in STEADY)
    recorder.append(control("before", STEADY).model_copy(update={"sitting": sitting}))
    for depth in depths:
        start = 0 if depth == 2048 else 1843
        made = rung(depth, prefill_tok_s=1000.0 * pace, generation_tok_s=rates, start=start)
        recorder.append(made.model_copy(update={"sitting": sitting}))


def end(recorder: Recorder, sitting: int) -> None:
    """The last lines of a made-up run."""
    recorder.append(control("after", STEADY).model_copy(update={"sitting": sitting}))
    recorder.append(Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0))


def hang() -> None:
    """Wait to be killed."""
    print("stub: hanging", flush=True)
    time.sleep(600)


def main(script: Path, profile: str, results: Path, resume: bool) -> int:
    """Do the profile's next line; pytest's exit code."""
    done = script.with_suffix(".done")
    lines = [x for x in script.read_text(encoding="utf-8").splitlines() if x.startswith(profile)]
    before = done.read_text(encoding="utf-8").splitlines() if done.is_file() else []
    nth = sum(x.split()[0] == profile for x in before)
    action = lines[nth].split()[1]
    with done.open("a", encoding="utf-8") as file:
        file.write(f"{profile} {action}{' --resume' if resume else ''}\n")
    print(f"stub: {profile} {action}", flush=True)
    if action == "refuse":
        print("ERROR: the model has gone", flush=True)
        return 4
    if resume:
        path = next(
            p for p in reversed(list_runs(results)) if read_run(p).header.profile == profile
        )
        recorder = Recorder.resume(path)
        sitting = read_run(path).sittings + 1
        recorder.append(Event(code=RESUMED, message="resumed", data={"reused_depths": [2048]}))
        measure(recorder, () if action == "hang" else (8192,), sitting, 1.0)
        if action == "hang":
            hang()
        end(recorder, sitting)
        return 0
    recorder = Recorder(results, header_of(profile, f"2026010{nth + 1}-000000-{profile}"))
    if action == "hang":
        measure(recorder, (2048,), 1, 1.0)
        hang()
    measure(recorder, (2048, 8192), 1, SLOWER if action == "slow" else 1.0)
    end(recorder, 1)
    return 1 if action == "slow" else 0


if __name__ == "__main__":
    _, script_, profile_, results_, *rest_ = sys.argv
    raise SystemExit(main(Path(script_), profile_, Path(results_), "--resume" in rest_))
