"""Write the results to the terminal, as Markdown and as JSON.

`chaos.json` holds one complete run, a line on each of the last three, and the last long soak. The results in
docs/chaos.md are written from it. A run of only some faults is stored separately and changes neither.
"""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.account import Result, from_dict

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "chaos.md"
BEGIN, END = "<!-- results: written by make chaos -->", "<!-- end of results -->"
HEAD = ("fault", "requests", "expected", "received", "lost", "early", "dupl.", "longest gap", "recovered", "result")
LONG_SOAK_SECONDS = 300.0
STORED_RUNS = 3


@dataclass
class Run:
    """Command, time and machine of a run of `make chaos`."""

    command: str
    began: str
    seconds: float
    commit: str
    machine: str


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
                  for n, (cell, width) in enumerate(zip(row_cells, widths, strict=True)))
        for row_cells in rows
    )


def markdown(results: Sequence[Result]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row(result)) + " |" for result in results]
    return "\n".join([*lines, "", "Details of each fault:", "", *map(_describe, results)])


def _describe(result: Result) -> str:
    notes = "; ".join([
        *result.notes, f"median {result.usual_gap * 1000:.1f} ms late",
        f"slowest command stored after {result.slowest_command:.2f} s",
        *([f"the host itself was up to {result.host_delay:.1f} s behind"] if result.host_delay > 1 else []),
    ])
    return "\n".join([f"- **{result.fault}**: {result.title}. {notes}.",
                      *(f"  - FAILED: {failure}" for failure in result.failures)])


def this_run(command: str, began: datetime, seconds: float) -> Run:
    """Describe the finished run."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = (f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {python}, "
               f"load average {os.getloadavg()[2]:.1f} over its last 15 minutes")
    return Run(command, began.astimezone(UTC).isoformat(timespec="minutes"), round(seconds, 1), _commit(), machine)


def _commit() -> str:
    """Return the commit, marked if anything except results has changed since."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/chaos.md", ":!bench/results")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write(run: Run, results: Sequence[Result], *, whole: bool, folder: Path = RESULTS, page: Path = PAGE) -> list[Path]:
    """Write the results and return the written files."""
    folder.mkdir(parents=True, exist_ok=True)
    record = _record(run, results)
    if not whole:
        files = [folder / "chaos-some.json.tmp", folder / "chaos-some.md.tmp"]
        files[0].write_text(_json(record), encoding="utf-8")
        files[1].write_text(markdown(results) + "\n", encoding="utf-8")
        soak = next((result for result in results if result.fault == "soak"), None)
        if soak is None or soak.seconds < LONG_SOAK_SECONDS:
            return files
        stored = load(folder) | {"soak": record | {"faults": [soak.as_dict()]}}
    else:
        files, before = [], load(folder)
        summary = record["run"] | {
            "passed": record["passed"], "failed": [result.fault for result in results if not result.passed],
            "faults": len(results),
            **{name: sum(getattr(result, name) for result in results) for name in SUMS},
        }
        stored = before | record | {"whole": True, "last": [*before.get("last", []), summary][-STORED_RUNS:]}
    (folder / "chaos.json").write_text(_json(stored), encoding="utf-8")
    (folder / "chaos.md").write_text(block(stored) + "\n", encoding="utf-8")
    put(page, block(stored))
    return [*files, folder / "chaos.json", folder / "chaos.md", page]


SUMS = ("requests", "expected", "received", "lost", "early", "duplicates")


def load(folder: Path = RESULTS) -> dict[str, Any]:
    """Return the stored results."""
    file = folder / "chaos.json"
    stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return stored


def _record(run: Run, results: Sequence[Result]) -> dict[str, Any]:
    return {"run": vars(run), "passed": all(result.passed for result in results),
            "faults": [result.as_dict() for result in results]}


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1) + "\n"


def block(stored: dict[str, Any]) -> str:
    """Return the results section of docs/chaos.md."""
    lines = []
    if stored.get("whole"):
        run = Run(**stored["run"])
        where = f"{run.seconds / 60:.0f} minutes, commit {run.commit}; {run.machine}"
        lines += [f"One run of `{run.command}`, started {_when(run.began)}, {where}.", ""]
    elif stored.get("faults"):
        lines += ["Combined from single faults: no complete run is stored yet.", ""]
    lines += [markdown([from_dict(fault) for fault in stored.get("faults", [])]), ""]
    if stored.get("last"):
        lines += [f"The last {len(stored['last'])} complete runs in a row:" if len(stored["last"]) > 1 else "Complete runs:", "",
                  *map(_summary, stored["last"]), ""]
    if stored.get("soak"):
        lines += ["The last long soak:", "", _long_soak(stored["soak"]), ""]
    else:
        lines += ["No soak of ten minutes is stored yet.", ""]
    return "\n".join(lines).rstrip()


def _summary(run: dict[str, Any]) -> str:
    verdict = f"all {run['faults']} faults passed" if run["passed"] else f"FAILED: {', '.join(run['failed'])}"
    return (f"- {_when(run['began'])}, commit {run['commit']}, {run['seconds'] / 60:.0f} minutes: {verdict}; "
            f"{run['expected']:,} events expected, {run['lost']} lost, {run['early']} early, "
            f"{run['duplicates']} duplicates.")


def _long_soak(stored: dict[str, Any]) -> str:
    run, [result] = Run(**stored["run"]), [from_dict(fault) for fault in stored["faults"]]
    verdict = "passed" if result.passed else "FAILED"
    counts = f"{result.expected:,} events expected, {result.lost} lost, {result.early} early"
    return "\n".join([
        f"- `{run.command}`, started {_when(run.began)}, commit {run.commit}; {run.machine}: {verdict}; {counts}.",
        "  - slopes and differences cover the second half",
        *(f"  - {note}" for note in result.notes), *(f"  - FAILED: {failure}" for failure in result.failures),
    ])


def _when(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M UTC")


def put(page: Path, text: str) -> None:
    """Replace the results between the two markers of the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no markers for the results: {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
