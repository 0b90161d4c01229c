"""One run from options to verdict: lock, server, script, record, climb, baseline, judgement."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from harness import __version__
from harness.errors import ServerError, SetupError, StoreError
from harness.machine.computing import Computing, Find, find_computing
from harness.machine.hardware import read_machine
from harness.machine.listener import is_local, server_pid
from harness.machine.lock import machine_lock, servers_folder
from harness.machine.memory import MemoryProbe
from harness.machine.watch import MachineWatcher, wait_quiet
from harness.measuring.climb import Runner
from harness.measuring.preflight import Preflight, after_start, before_start
from harness.measuring.probes import ProbeKind, Probes
from harness.measuring.reporter import Reporter, Watcher
from harness.measuring.resume import Resumption, find_resumption
from harness.measuring.script import Script
from harness.measuring.sitting import Sitting
from harness.measuring.spot import find_spot, saving
from harness.records.baseline import Baseline, Key, key_of
from harness.records.baseline_files import find_baseline, nearest_baseline
from harness.records.files import Recorder, check_writable, new_run_id, now, read_run
from harness.records.lines import Event, Header, RunRecord
from harness.records.metrics import METRICS
from harness.serving.fidelity import Fingerprint, fingerprint_of
from harness.serving.log import explain, findings_of
from harness.serving.orphans import reap
from harness.serving.session import Session, open_session
from harness.settings import Settings
from harness.verdicts.cell import NEXT_STEPS, CellVerdict
from harness.verdicts.judged import Judged
from harness.verdicts.probes import ProbeVerdict
from harness.verdicts.rung import wanted
from harness.verdicts.verdict import judge

LONG_CTX_TOKENS = 32768
"""From this context on, what a run will need is said before it begins."""
FINGERPRINT_TOKENS = 600


def hold_machine(settings: Settings) -> AbstractContextManager[None]:
    """Hold the machine, for one campaign or for several after one another."""
    where = f" on {settings.server_url}" if settings.server_url else ""
    return machine_lock(f"--ctx {settings.ctx_tokens}{where}", wait_s=settings.wait_lock_s)


class Campaign:
    """A measured run. `start` opens everything, `check…` judge, `close` leaves nothing behind.

    The caller holds the machine (`hold_machine`). `watch` makes what watches the machine's other
    load, from the server's process id.
    """

    def __init__(
        self,
        settings: Settings,
        reporter: Reporter,
        *,
        deepest: int | None,
        probes: bool = False,
        speeds: bool = True,
        watch: Callable[[Computing], Watcher] = MachineWatcher,
        find: Find = find_computing,
    ) -> None:
        self.settings = settings
        self.fingerprint: Fingerprint = ()
        self.deepest = deepest
        self._wants_probes = probes
        self._wants_speeds = speeds
        self._watch = watch
        self._find = find
        self._probes: Probes | None = None
        self._reporter = reporter
        self._stack = ExitStack()
        self._session: Session | None = None
        self._runner: Runner | None = None
        self._baseline: Baseline | None = None
        self._nearest: Baseline | None = None
        self._judged: tuple[int, Judged] | None = None
        self._ready = False
        self._closed_climb = False
        self._finished = False
        self.record_path: Path | None = None
        self.bands = {name: settings.band_of(name) for name in METRICS}

    # -- life ---------------------------------------------------------------------------------

    def start(self, *, unlike: Fingerprint = ()) -> None:
        """Open the server, and prepare the climb if one is wanted.

        `unlike` is the fingerprint of a server that must compute something else than this one.

        Raises:
            HarnessError: whatever a user can mend, before anything was measured.
        """
        settings = self.settings
        check_writable(settings.results)
        if settings.baselines.exists() and not settings.baselines.is_dir():
            raise SetupError(
                f"--baselines {settings.baselines} is a file; expected the folder of baselines"
            )
        run_id = new_run_id(settings.results)
        log = settings.results / "logs" / f"{run_id}.server.log"
        try:
            self._wait_for_quiet()
            foreseen = self._open_server(log)
            if self.deepest is None and not self._wants_probes:
                return
            session = self.session
            script = Script(session.client, settings, native=not session.identity.reduced)
            header = self._header(run_id, script)
            self._find_baseline(key_of(header))
            spot, said, say = None, None, self._reporter.say
            if settings.spot and self.deepest is not None:
                spot, said = find_spot(session, script, settings, self.deepest, self._baseline)
                say(said.message)
            if said and not spot and session.running and session.running.dies_at_once():
                log.replace(log.with_suffix(".restoring.log"))
                foreseen = self._open_server(log)
                session = self.session
                script = Script(session.client, settings, native=not session.identity.reduced)
                header = self._header(run_id, script)
            if spot is not None:
                script.plan = spot.planned(script.plan)
                header = header.model_copy(update={"plan": script.plan})
            recorder, resumption = self._open_record(header, script, log.name, fresh=settings.spot)
            if said is not None:
                recorder.append(said)
            recorder.append(self._preflight(session, foreseen))
            sitting = self._sit_down(recorder, script, resumption)
            self._runner = Runner(
                sitting,
                wanted=partial(wanted, baseline=self._baseline, bands=self.bands),
                deepest=self.deepest or 0,
                resumption=resumption,
                slots=None
                if spot
                else saving(
                    *(session, script, settings, recorder),
                    deepest=self.deepest or 0,
                    baseline=self._baseline,
                    say=say,
                ),
                spot=spot,
            )
            self._probes = Probes(sitting, self._baseline)
            if settings.arm is not None and script.native:
                self._take_fingerprint(sitting, unlike)
            self._runner.begin()
            self._ready = True
        except ServerError as error:
            running = self._session.running if self._session is not None else None
            failure = explain(error, running)
            if self._runner is not None:
                self._runner.failure = failure
            self.close(str(failure.message))
            tail = "\n".join(failure.log_tail[-12:])
            raise SetupError(failure.message + (f"\n{tail}" if tail else "")) from error
        except OSError as error:
            self.close("stopped before the first rung")
            raise SetupError(
                f"the run cannot begin: {error.strerror or error}"
                + (f": {error.filename}" if error.filename else "")
                + "; make room or mend that, or give another folder with --results"
            ) from error
        except BaseException:
            self.close("stopped before the first rung")
            raise

    def _open_server(self, log: Path) -> Preflight:
        """Start or find the server; what was foreseen of its memory before."""
        for sentence in reap(servers_folder()):
            self._reporter.say(sentence)
        foreseen, _ = before_start(self.settings)
        for objection in foreseen.objections:
            self._reporter.say(f"preflight: {objection}")
        say = self._reporter.say
        self._session = open_session(self.settings, log, say, notes=servers_folder())
        self._stack.callback(self._session.close)
        return foreseen

    def _header(self, run_id: str, script: Script) -> Header:
        settings = self.settings
        return Header(
            run_id=run_id,
            started_at=now(),
            harness_version=__version__,
            plan=script.plan,
            machine=read_machine(settings.machine_class),
            server=self.session.identity,
            model=self.session.model,
            label=settings.label,
            profile=settings.profile,
            matrix=settings.matrix,
            arm=settings.arm,
        )

    def _find_baseline(self, key: Key) -> None:
        self._baseline = find_baseline(self.settings.baselines, key)
        if self._baseline is None:
            self._nearest = nearest_baseline(self.settings.baselines, key)

    def _open_record(
        self, header: Header, script: Script, log: str, *, fresh: bool
    ) -> tuple[Recorder, Resumption | None]:
        """A new record, or, unless it is to be `fresh`, that of a run to go on with."""
        settings, resumption = self.settings, None
        if settings.resume and self.deepest is not None and not fresh:
            say, at = self._reporter.say, datetime.now()
            resumption = find_resumption(settings.results, header, say, now=at, log=log)
        if resumption is None:
            recorder = Recorder(settings.results, header)
        else:
            recorder = Recorder.resume(resumption.path)
            recorder.append(resumption.event(datetime.now()))
            script.go_on(resumption.sitting, resumption.asks)
        self.record_path = recorder.path
        self._stack.callback(recorder.close)
        return recorder, resumption

    def _sit_down(
        self, recorder: Recorder, script: Script, resumption: Resumption | None
    ) -> Sitting:
        """All that what measures has in common, the watch begun."""
        url, server = self.settings.server_url, Computing(self.session.pid)
        if server.pid is None and url and is_local(url):
            server = self._find(
                server_pid(url),
                lambda: script.chat("Count.", max_tokens=64, reuse=False, ignore_eos=True),
            )
        memory, watcher = MemoryProbe(server.pid), self._watch(server)
        watcher.start()
        self._stack.callback(watcher.stop)
        since_ns = round(resumption.offset_s * 1e9) if resumption is not None else 0
        sitting = Sitting(
            self.session,
            script,
            self.settings,
            recorder.append,
            self._reporter,
            watcher,
            memory,
            number=resumption.sitting if resumption is not None else 1,
            origin_ns=time.perf_counter_ns() - since_ns,
        )
        if server.sentence:
            self._reporter.say(server.sentence)
            sitting.event("computing", server.sentence)
        for sentence in memory.unreadable():
            sitting.event("not_read", sentence)
        return sitting

    def _preflight(self, session: Session, foreseen: Preflight) -> Event:
        """What the started server needs, said and for the record."""
        ready = foreseen
        if session.running is not None:
            ready = after_start(self.settings, session, findings_of(session.running), foreseen)
        if self.settings.ctx_tokens >= LONG_CTX_TOKENS and ready.memory.parts:
            self._reporter.say(ready.sentence)
        for objection in ready.objections:
            if objection not in foreseen.objections:
                self._reporter.say(f"preflight: {objection}")
        return ready.event()

    def _take_fingerprint(self, sitting: Sitting, unlike: Fingerprint) -> None:
        text = sitting.script.filler("fingerprint", FINGERPRINT_TOKENS)
        self.fingerprint = fingerprint_of(self.session.client, text)
        sitting.event("fingerprint", "the likeliest tokens", tokens=self.fingerprint)
        if self.fingerprint and self.fingerprint == unlike:
            raise SetupError(
                "its RoPE scaling had no effect: after the same text it computes the same "
                "probabilities, to the last digit, as the arm without it; the build or model "
                "ignores these flags"
            )

    def _wait_for_quiet(self) -> None:
        limit_s = self.settings.wait_quiet_s
        if limit_s is None:
            return
        pid = server_pid(self.settings.server_url) if self.settings.server_url else None
        reason = wait_quiet(limit_s, () if pid is None else (pid,), say=self._reporter.say)
        if reason is not None:
            raise SetupError(
                f"{reason}; stop that, wait longer (--wait-quiet SECONDS), or leave the option out "
                "to measure all the same"
            )

    def close(self, reason: str = "the session ended") -> None:
        """End the record, stop the server, let go of the machine; safe to call twice."""
        try:
            if self._runner is not None and not self._finished:
                self._finished = True
                self._runner.abandon(reason)
        except StoreError as error:  # a full disk: what is recorded stands
            self._reporter.say(str(error))
        finally:
            self._stack.close()

    def finish(self) -> None:
        """End a run whose tests are through: its second control and footer, without climbing on."""
        if self._runner is None or self._finished or not self._ready:
            return
        self._finished = True
        try:
            self._runner.end()
        except ServerError as error:
            self._runner.fail(error)
            self._finished = False  # `close` writes the end
        except StoreError as error:
            self._reporter.say(str(error))

    @property
    def session(self) -> Session:
        """The open server."""
        assert self._session is not None
        return self._session

    # -- measuring ----------------------------------------------------------------------------

    def probe(self, kind: ProbeKind) -> ProbeVerdict:
        """Heatmap or fuzz on the open server, judged; a server's failure is an ERROR.

        Raises:
            SetupError: the probe cannot be had on this server.
        """
        assert self._probes is not None
        assert self._runner is not None
        try:
            return self._probes.run(kind)
        except ServerError as error:
            failure = self._runner.fail(error)
            said = f"{failure.cause}: {failure.message}"
            self._runner.sitting.event("probe_failed", f"{kind}: {said}")
            return ProbeVerdict("ERROR", said, NEXT_STEPS["error"])

    def close_climb(self) -> None:
        """Climb to the deepest rung wanted and run the second control, once."""
        if self._closed_climb:
            return
        assert self._runner is not None
        assert self.deepest is not None
        self._closed_climb = True
        self._runner.climb_to(self.deepest)
        try:
            self._runner.end()
        except ServerError as error:
            self._runner.abandon(str(error))
        self._finished = True

    # -- judging ------------------------------------------------------------------------------

    def record(self) -> RunRecord | None:
        """What is on disk so far; `None` when no climb was asked for."""
        run = self.judged()
        return run.record if run is not None else None

    def judged(self) -> Judged | None:
        """The verdict on what is on disk so far; `None` when no climb was asked for.

        The record is read and judged once after each change.
        """
        if self.record_path is None:
            return None
        size_bytes = self.record_path.stat().st_size
        if self._judged is None or self._judged[0] != size_bytes:
            record = read_run(self.record_path)
            run = self._judge(record, self._baseline)
            if self._nearest is not None:
                run = replace(run, beside=self._judge(record, self._nearest))
            self._judged = size_bytes, run
        return self._judged[1]

    def _judge(self, record: RunRecord, baseline: Baseline | None) -> Judged:
        verdict = judge(record, baseline, self.bands)
        if not self._wants_speeds:
            asked = tuple(c for c in verdict.cells if c.metric.kind == "score")
            verdict = replace(verdict, cells=asked)
        return Judged(record, verdict, baseline, str(self.record_path))

    def cell(self, depth: int, metric: str) -> CellVerdict:
        """The verdict of one cell, its rung (and those below it) measured now if need be."""
        assert self._runner is not None
        self._runner.climb_to(depth)
        run = self.judged()
        found = run.verdict.cell(depth, metric) if run is not None else None
        if found is None:
            raise SetupError(f"there is no cell for {metric} at {depth}; depths are the ladder's")
        return found
