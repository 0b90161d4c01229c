"""`harness models`: the packaged models, and what each of them proves."""

import click

from harness.cli.output import say, show
from harness.quantities import depth_label
from harness.questions.family import MEMBERS, NEEDLES
from harness.report.text import plain_table
from harness.serving.packaged import member_answers


@click.command()
def models() -> None:
    """List the packaged models, and what each proves of an engine.

    `pytest -m long --reference=NAME` asks one of them, `--reference=all` all of them, as arms.
    """
    table = plain_table("name", "architecture", "layer", "head sizes", "exact of asked", "proves")
    table.add_row(
        *(NEEDLES, "llama", "attention", "64; 2 heads", "see its card"),
        "needles are found at any depth, by plain attention",
    )
    for member in MEMBERS.values():
        exact = member_answers(member.name)
        said = ", ".join(f"{depth_label(d)} {right}/{n}" for d, (right, n) in exact.items())
        table.add_row(
            *(member.name, member.architecture, member.layer, member.head_sizes, said),
            member.proves,
        )
    show(table)
    say("a wrong answer of one names its kernel only where plain attention is right beside it")
