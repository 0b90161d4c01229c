"""Baselines: accepted runs of one configuration on one class of machine, and their key."""

import hashlib
import json
import re

from pydantic import Field

from harness.records.lines import Header, RunRecord
from harness.records.pace import pooled_pace
from harness.records.probes import ProbeScore, scores_of
from harness.records.samples import Samples, samples_of
from harness.records.strict import Strict

SCHEMA_VERSION = 2
MAX_RUNS = 6


class AcceptedRun(Strict):
    """One accepted run: its samples by depth, and what it ran on (recorded, not compared)."""

    run_id: str
    started_at: str
    accepted_at: str
    build: str
    os: str
    driver: str | None
    noted: dict[str, str | int | float | bool | None]
    conditions: dict[str, str] = Field(default_factory=dict)
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    pace: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    cells: dict[int, Samples]
    probes: tuple[ProbeScore, ...] = ()


class Key(Strict):
    """What must agree for two runs to be compared.

    Server build, driver, OS and flags outside `config` are not part of it: they are what is being
    tested.
    """

    machine_class: str
    model: str
    config: dict[str, str | int | float | bool | None]

    @property
    def slug(self) -> str:
        """A readable file name for the configuration, made unique by a hash of all of it."""
        parts = [f"c{self.config.get('ctx')}"]
        for name, short in (("cache_type_k", "k"), ("cache_type_v", "v"), ("ubatch", "ub")):
            if (value := self.config.get(name)) is not None:
                parts.append(f"{short}{value}")
        if self.config.get("background") != "plain":
            parts.append(str(self.config.get("background")))
        text = json.dumps(self.config, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:6]
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join([*parts, digest]))

    def differences(self, other: "Key") -> dict[str, tuple[object, object]]:
        """What the two have differently, by name."""
        mine, theirs = (
            {"machine": k.machine_class, "model": k.model, **k.config} for k in (self, other)
        )
        both = {name: (mine.get(name), theirs.get(name)) for name in (*mine, *theirs)}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


class Baseline(Strict):
    """The accepted runs of one key, oldest first, at most `MAX_RUNS`.

    `anchor` holds what was accepted first, cell by cell, however often the baseline was updated
    since; it is empty as long as `runs` are the first.
    """

    schema_version: int = SCHEMA_VERSION
    key: Key
    runs: tuple[AcceptedRun, ...]
    anchor: tuple[AcceptedRun, ...] = ()

    def samples(self, depth: int) -> list[Samples]:
        """Each accepted run's samples at `depth`."""
        return [run.cells[depth] for run in self.runs if depth in run.cells]

    def probes(self) -> list[ProbeScore]:
        """All accepted runs' scores of heatmap and fuzz."""
        return [score for run in self.runs for score in run.probes]


def key_of(header: Header) -> Key:
    """The key of a run."""
    return Key(
        machine_class=header.machine.machine_class,
        model=header.model.identity,
        config={
            **header.server.key,
            "ctx": header.server.key.get("ctx", header.plan.ctx_tokens),
            "fill": header.plan.fill,
            "background": header.plan.background,
            "grammar": header.plan.grammar_version,
            **({"distractors": n} if (n := header.plan.distractors) else {}),
            **({"reduced": True} if header.server.reduced else {}),
            **({"label": header.label} if header.label else {}),
        },
    )


def log_warnings(record: RunRecord) -> tuple[str, ...]:
    """Normalised warnings of the server's log, as the record's account of it has them."""
    return tuple(record.event_data("server_log").get("warnings", ()))


def accepted(record: RunRecord, accepted_at: str, reason: str | None) -> AcceptedRun:
    """A run in the form a baseline keeps."""
    header = record.header
    return AcceptedRun(
        run_id=header.run_id,
        started_at=header.started_at,
        accepted_at=accepted_at,
        build=header.server.build,
        os=header.machine.os,
        driver=header.machine.driver,
        noted=header.server.noted,
        conditions=header.machine.conditions,
        reason=reason,
        warnings=log_warnings(record),
        pace=pooled_pace(record),
        cells={r.depth: samples_of(r) for r in record.rungs if r.failure is None},
        probes=scores_of(record),
    )
