"""One run from options to verdict: lock, server, script, record, climb, baseline, judgement."""

from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from pathlib import Path

from harness import __version__
from harness.errors import ServerError, SetupError
from harness.machine.hardware import read_machine
from harness.machine.listener import server_pid
from harness.machine.lock import machine_lock, servers_folder
from harness.machine.memory import MemoryProbe
from harness.machine.watch import MachineWatcher, wait_quiet
from harness.measuring.climb import Runner
from harness.measuring.preflight import Preflight, after_start, before_start
from harness.measuring.probes import ProbeKind, Probes
from harness.measuring.reporter import Reporter
from harness.measuring.resume import find_resumption
from harness.measuring.script import Script
from harness.records.baseline import Baseline, key_of
from harness.records.baseline_files import find_baseline
from harness.records.files import Recorder, check_writable, new_run_id, read_run
from harness.records.lines import Event, Header, Rung, RunRecord
from harness.records.metrics import METRICS
from harness.serving.likeliest_tokens import Fingerprint, fingerprint_of
from harness.serving.log import explain, findings_of
from harness.serving.orphans import reap
from harness.serving.session import Session, open_session, slots_folder
from harness.serving.slots import Slots
from harness.settings import Settings
from harness.verdicts.cell import NEXT_STEPS, CellVerdict
from harness.verdicts.judged import Judged
from harness.verdicts.probes import ProbeVerdict
from harness.verdicts.verdict import disturbed_metrics, judge, undecided

LONG_CTX_TOKENS = 32768
"""From this context on, what a run will need is said before it begins."""
FINGERPRINT_TOKENS = 600


def hold_machine(settings: Settings) -> AbstractContextManager[None]:
    """Hold the machine, for one campaign or for several after one another."""
    where = f" on {settings.server_url}" if settings.server_url else ""
    return machine_lock(f"--ctx {settings.ctx_tokens}{where}", wait_s=settings.wait_lock_s)


class Campaign:
    """A measured run. `start` opens everything, `check…` judge, `close` leaves nothing behind.

    The caller holds the machine (`hold_machine`).
    """

    def __init__(
        self,
        settings: Settings,
        reporter: Reporter,
        *,
        deepest: int | None,
        probes: bool = False,
    ) -> None:
        self.settings = settings
        self.fingerprint: Fingerprint = ()
        self.deepest = deepest
        self._wants_probes = probes
        self._probes: Probes | None = None
        self._reporter = reporter
        self._stack = ExitStack()
        self._session: Session | None = None
        self._runner: Runner | None = None
        self._baseline: Baseline | None = None
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
        machine = read_machine(settings.machine_class)
        run_id = new_run_id(datetime.now())
        try:
            self._wait_for_quiet()
            log = settings.results / "logs" / f"{run_id}.server.log"
            for sentence in reap(servers_folder()):
                self._reporter.say(sentence)
            foreseen, _ = before_start(settings)
            for objection in foreseen.objections:
                self._reporter.say(f"preflight: {objection}")
            self._session = open_session(settings, log, self._reporter.say, notes=servers_folder())
            self._stack.callback(self._session.close)
            if self.deepest is None and not self._wants_probes:
                return
            script = Script(
                self._session.client, settings, native=not self._session.identity.reduced
            )
            header = Header(
                run_id=run_id,
                started_at=datetime.now().astimezone().isoformat(timespec="seconds"),
                harness_version=__version__,
                plan=script.plan,
                machine=machine,
                server=self._session.identity,
                model=self._session.model,
                label=settings.label,
                profile=settings.profile,
                matrix=settings.matrix,
                arm=settings.arm,
            )
            self._baseline = find_baseline(settings.baselines, key_of(header))
            resumption = None
            if settings.resume and self.deepest is not None:
                resumption = find_resumption(
                    settings.results, header, self._reporter.say, now=datetime.now(), log=log.name
                )
            if resumption is not None:
                recorder = Recorder.resume(resumption.path)
                recorder.append(resumption.event(datetime.now()))
                script.go_on(resumption.sitting, resumption.asks)
            else:
                recorder = Recorder(settings.results, header)
            self.record_path = recorder.path
            self._stack.callback(recorder.close)
            recorder.append(self._preflight(self._session, foreseen))
            pid = self._session.pid
            if pid is None and settings.server_url:
                pid = server_pid(settings.server_url)
            memory = MemoryProbe(pid)
            watcher = MachineWatcher(pid)
            watcher.start()
            self._stack.callback(watcher.stop)
            self._runner = Runner(
                self._session,
                script,
                recorder,
                self._reporter,
                memory,
                watcher,
                settings=settings,
                undecided=self._undecided,
                deepest=self.deepest or 0,
                resumption=resumption,
                slots=self._slots(recorder),
            )
            self._probes = Probes(
                self._session,
                script,
                settings,
                recorder.append,
                self._baseline,
                say=self._reporter.say,
                origin_ns=self._runner.origin_ns,
            )
            for sentence in memory.unreadable():
                self._runner.event("not_read", sentence)
            if settings.arm is not None and script.native:
                self._take_fingerprint(script, unlike)
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
        except BaseException:
            self.close("stopped before the first rung")
            raise

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

    def _slots(self, recorder: Recorder) -> Slots | None:
        """Where documents are kept for a later sitting, if that was asked for and can be had."""
        folder = slots_folder(self.settings)
        if folder is None or self.session.running is None or self.session.identity.reduced:
            return None
        return Slots(self.session.client, folder, recorder.path.stem, recorder.append)

    def _take_fingerprint(self, script: Script, unlike: Fingerprint) -> None:
        assert self._runner is not None
        text = script.filler("fingerprint", FINGERPRINT_TOKENS)
        self.fingerprint = fingerprint_of(self.session.client, text)
        self._runner.event("fingerprint", "the likeliest tokens", tokens=self.fingerprint)
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
        if self._runner is not None and not self._finished:
            self._finished = True
            self._runner.abandon(reason)
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
            self._runner.abandon(str(error))

    @property
    def session(self) -> Session:
        """The open server."""
        assert self._session is not None
        return self._session

    # -- measuring ----------------------------------------------------------------------------

    def rung(self, depth: int) -> Rung:
        """The rung at `depth`, measured now (with those below it) if it was not before."""
        assert self._runner is not None
        return self._runner.climb_to(depth)

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
            self._runner.event("probe_failed", f"{kind}: {said}")
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

    def _undecided(self, rung: Rung) -> frozenset[str]:
        return undecided(rung, self._baseline, self.bands) | disturbed_metrics(rung)

    # -- judging ------------------------------------------------------------------------------

    def record(self) -> RunRecord | None:
        """What is on disk so far; `None` when no climb was asked for."""
        return read_run(self.record_path) if self.record_path is not None else None

    def judged(self) -> Judged | None:
        """The verdict on what is on disk so far; `None` when no climb was asked for."""
        record = self.record()
        if record is None:
            return None
        verdict = judge(record, self._baseline, self.bands)
        return Judged(record, verdict, self._baseline, str(self.record_path))

    def cell(self, depth: int, metric: str) -> CellVerdict:
        """The verdict of one cell."""
        run = self.judged()
        found = run.verdict.cell(depth, metric) if run is not None else None
        if found is None:
            raise SetupError(f"there is no cell for {metric} at {depth}; depths are the ladder's")
        return found
