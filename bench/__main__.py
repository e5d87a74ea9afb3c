"""`make bench`: run all or the named parts on private servers with fsync on."""

import argparse
import sys
from typing import Any

from bench import (
    api,
    calendars,
    commands,
    console,
    costs,
    day,
    delayed,
    emit,
    heartbeats,
    ingest,
    intervals,
    lag,
    migrations,
    priorities,
    recurrence,
    report,
    runs,
    scale,
    scaling,
    soak,
    webhooks,
    zones,
)
from scheduler.dev.servers import Stack, start_stack

PARTS = {
    "emit": emit.run,
    "ingest": ingest.run,
    "lag": lag.run,
    "scale": scale.run,
    "burst": emit.burst,
    "costs": costs.run,
    "migrations": migrations.run,
    "priorities": priorities.run,
    "delayed": delayed.run,
    "commands": commands.run,
    "heartbeats": heartbeats.run,
    **runs.PARTS,
    "api": api.run,
    "console": console.run,
    "webhooks": webhooks.run,
    "zones": zones.run,
    "calendars": calendars.run,
    "day": day.run,
    "intervals": intervals.run,
    "soak": soak.run,
}
LONG = ("day", "intervals", "soak")  # half an hour, an hour, eight hours: only if named


def _recurrence() -> list[report.Row]:
    rows = [
        report.Row(row["name"], report.span(row["ours"]), report.span(row["yardstick"]), row["ratio"], row["goal"],
                   row["met"])
        for row in recurrence.run()["recurrence"]
    ]
    report.write("recurrence", rows)
    return rows


def main() -> int:
    """Run the parts and return 1 if a goal was not met."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "recurrence", []], help="parts to run (default: all except day, intervals and soak)")
    parser.add_argument("--rows", type=int, nargs="+", default=scale.SIZES, help="row counts for `scale`")
    parser.add_argument("--minutes", type=float, help="minutes of `day` (default: 30), `intervals` (60) and `soak` (480)")
    args = parser.parse_args()
    parts = args.parts or [part for part in (*PARTS, "recurrence") if part not in LONG]
    lasting = {} if args.minutes is None else {"minutes": args.minutes}
    options = {"scale": {"sizes": args.rows}, **dict.fromkeys(LONG, lasting)}
    rows: list[report.Row] = []
    if "recurrence" in parts:
        rows += _recurrence()
    if set(parts) & set(PARTS):
        with start_stack(say=print, purpose="bench") as stack:
            rows += _on(stack, [part for part in PARTS if part in parts], options)
    report.publish()
    scaling.publish()
    print("\n# All\n")
    print(report.table(rows))
    return 0 if all(row.met is not False for row in rows) else 1


def _on(stack: Stack, parts: list[str], options: dict[str, dict[str, Any]]) -> list[report.Row]:
    rows: list[report.Row] = []
    for part in parts:
        print(f"\n== {part}", flush=True)
        rows += PARTS[part](stack, **options.get(part, {}))
    return rows


if __name__ == "__main__":
    sys.exit(main())
