"""`harness doctor`: what this machine is, and what stands in the way of trustworthy numbers."""

import contextlib
import shutil
import sys
from pathlib import Path

import click
import psutil

from harness.cli.output import terminal
from harness.machine.conditions import ConditionsProbe
from harness.machine.doctor import State, examine
from harness.machine.facts import other_servers, read_facts
from harness.machine.hardware import read_machine
from harness.machine.lock import holder, lock_path, servers_folder
from harness.options import taken
from harness.records.baseline_files import list_baselines
from harness.records.lines import Machine
from harness.report.doctor import doctor_text
from harness.report.text import encodable
from harness.settings import load, project_root


@click.command()
@taken("results", "baselines")
def doctor(**options: object) -> None:
    """Say what this machine is, and what stands in the way of trustworthy numbers.

    Nothing is changed. Exit code: 1 if something is in the way, else 0.
    """
    given = {name: value for name, value in options.items() if value is not None}
    settings = load(given, project_root(Path.cwd()))
    facts = read_facts()
    machine = read_machine(settings.machine_class, facts)
    if machine.gpus:
        facts["GPU"] = ", ".join(machine.gpus)
    lines = examine(facts, _state(machine, settings.results, settings.baselines))
    name = f"{machine.cpu}, {machine.cpu_cores} cores, {machine.memory_bytes / 2**30:.1f} GiB"
    name = ", ".join(filter(None, (name, *machine.gpus, machine.os, machine.driver)))
    width = min(terminal()[0], 100)
    click.echo(encodable(doctor_text(name, lines, width), sys.stdout.encoding), nl=False)
    raise SystemExit(1 if any(line.grade == "in the way" for line in lines) else 0)


def _state(machine: Machine, results: Path, baselines: Path) -> State:
    now = ConditionsProbe().read()
    memory, swap_bytes = psutil.virtual_memory(), None
    with contextlib.suppress(OSError, RuntimeError):
        swap_bytes = psutil.swap_memory().used
    disk = next(p for p in (results, *results.absolute().parents) if p.is_dir())
    paths = list(list_baselines(baselines))
    return State(
        system=sys.platform,
        memory_bytes=machine.memory_bytes,
        available_bytes=memory.available,
        swap_used_bytes=swap_bytes,
        disk=str(disk),
        disk_free_bytes=shutil.disk_usage(disk).free,
        on_battery=now.on_battery,
        cpu_c=now.cpu_c,
        gpu_c=now.gpu_c,
        servers=other_servers(),
        lock=str(lock_path()),
        holder=holder(),
        notes=len(list(servers_folder().glob("*.json"))),
        machine_class=machine.machine_class,
        baselines=(sum(p.parts[-3] == machine.machine_class for p in paths), len(paths)),
    )
