"""The table, for the terminal, for Markdown and as JSON."""

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from chaos.account import Result

RESULTS = Path(__file__).parent.parent / "bench" / "results"
HEAD = ("fault", "requests", "expected", "received", "lost", "early", "dupl.", "longest gap", "recovered", "verdict")


def row(result: Result) -> tuple[str, ...]:
    return (
        result.fault, f"{result.requests:,}", f"{result.expected:,}", f"{result.received:,}", str(result.lost),
        str(result.early), str(result.duplicates), f"{result.longest_gap:.2f} s",
        "yes" if result.recovered else "NO", "pass" if result.passed else "FAIL",
    )


def table(results: Sequence[Result]) -> str:
    rows = [HEAD, *map(row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if n == 0 else cell.rjust(width)
                  for n, (cell, width) in enumerate(zip(each, widths, strict=True)))
        for each in rows
    )


def markdown(results: Sequence[Result], when: datetime) -> str:
    lines = [
        f"Run on {when:%Y-%m-%d %H:%M} UTC, {platform.python_implementation()} {platform.python_version()}.",
        "", "| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD),
    ]
    lines += ["| " + " | ".join(row(each)) + " |" for each in results]
    lines += ["", "What happened in each:", ""]
    for each in results:
        notes = "; ".join([*each.notes, f"median {each.usual_gap * 1000:.1f} ms late",
                           f"slowest command stored after {each.slowest_command:.2f} s"])
        lines.append(f"- **{each.fault}**: {each.title}. {notes}.")
        lines += [f"  - FAILED: {failure}" for failure in each.failures]
    return "\n".join(lines) + "\n"


def write(results: Sequence[Result], folder: Path = RESULTS) -> None:
    when = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chaos.md").write_text(markdown(results, when), encoding="utf-8")
    record = {"when": when.isoformat(timespec="seconds"), "passed": all(each.passed for each in results),
              "faults": [each.as_dict() for each in results]}
    (folder / "chaos.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
