"""The JSON Schema of a run record's lines, for those who read records with other tools."""

import json

from harness.records.lines import LINE, SCHEMA_VERSION


def as_json() -> str:
    """The schema of one line, whichever kind it is; a record is JSON Lines of them."""
    body = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of a longctx-harness run record, schema version {SCHEMA_VERSION}",
        **LINE.json_schema(),
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"
