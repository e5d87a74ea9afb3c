"""`scheduler health --database`: settings of the Postgres server that should be changed."""

import json
from dataclasses import asdict

from scheduler.cli.verb_helpers import open_connection
from scheduler.postgres.server_settings import advice, read_settings, recommendation
from scheduler.settings import Settings


def show(settings: Settings, *, as_json: bool) -> int:
    """Print each setting with its cost; return 1 if there is one."""
    with open_connection(settings, "health") as connection:
        jobs, server = read_settings(connection)
    changes = advice(jobs, server)
    if as_json:
        print(json.dumps({"jobs": jobs, "advice": [asdict(change) for change in changes]}))
        return 1 if changes else 0
    print(f"about {jobs:,} jobs; settings for up to {recommendation(jobs).jobs:,} (docs/operating.md)")
    for change in changes:
        print(f"{change.name} = {change.value}, recommended {change.recommended}: {change.cost}")
    if not changes:
        print("nothing to change")
    return 1 if changes else 0
