"""The table, for the terminal, for Markdown and as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from chaos.account import Result, from_dict

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


def markdown(results: Sequence[Result]) -> str:
    days = sorted(each.when for each in results)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    lines = [
        f"From {days[0][:16]} to {days[-1][:16]} UTC, {python}, {os.cpu_count()} cores.",
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


def write(results: Sequence[Result], order: Sequence[str], *, keep: bool, folder: Path = RESULTS) -> None:
    """Write the results; where only some faults were run, `keep` keeps the others' last lines."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "chaos.json"
    old = json.loads(file.read_text(encoding="utf-8"))["faults"] if keep and file.exists() else []
    known = {each["fault"]: from_dict(each) for each in old} | {each.fault: each for each in results}
    shown = [known[name] for name in order if name in known]
    (folder / "chaos.md").write_text(markdown(shown), encoding="utf-8")
    record = {"passed": all(each.passed for each in shown), "faults": [each.as_dict() for each in shown]}
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
