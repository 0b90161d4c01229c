"""`harness schema`: the JSON Schema of a run record's lines."""

import json
from pathlib import Path

import click

from harness.cli.arguments import output_file
from harness.cli.output import write_text
from harness.records.lines import LINE, SCHEMA_VERSION


@click.command()
@output_file
def schema(output: Path | None) -> None:
    """Write the JSON Schema of a run record's lines (docs/record.schema.json)."""
    write_text(as_json(), output)


def as_json() -> str:
    """The schema of one line, whichever kind it is; a record is JSON Lines of them."""
    body = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of a longctx-harness run record, schema version {SCHEMA_VERSION}",
        **LINE.json_schema(),
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"
