"""The table, for the terminal, for Markdown and as JSON.

`chaos.json` holds one whole run, a line on each of the last three, and the last long soak; the block of results in
docs/chaos.md is written from it. A run of some faults only is kept apart and changes neither.
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
HEAD = ("fault", "requests", "expected", "received", "lost", "early", "dupl.", "longest gap", "recovered", "verdict")
LONG_SOAK_SECONDS = 300.0
RUNS_KEPT = 3


@dataclass
class Run:
    """What `make chaos` was asked for, where and when."""

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
                  for n, (cell, width) in enumerate(zip(each, widths, strict=True)))
        for each in rows
    )


def markdown(results: Sequence[Result]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(row(each)) + " |" for each in results]
    return "\n".join([*lines, "", "What happened in each:", "", *map(_told, results)])


def _told(result: Result) -> str:
    notes = "; ".join([
        *result.notes, f"median {result.usual_gap * 1000:.1f} ms late",
        f"slowest command stored after {result.slowest_command:.2f} s",
        *([f"the host itself was up to {result.host_delay:.1f} s behind"] if result.host_delay > 1 else []),
    ])
    return "\n".join([f"- **{result.fault}**: {result.title}. {notes}.",
                      *(f"  - FAILED: {failure}" for failure in result.failures)])


def this_run(command: str, began: datetime, seconds: float) -> Run:
    """Describe the run that has just ended."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = (f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {python}, "
               f"load average {os.getloadavg()[2]:.1f} over its last 15 minutes")
    return Run(command, began.astimezone(UTC).isoformat(timespec="minutes"), round(seconds, 1), _commit(), machine)


def _commit() -> str:
    """Return the commit, and whether anything but results has been changed since."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/chaos.md", ":!bench/results")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write(run: Run, results: Sequence[Result], *, whole: bool, folder: Path = RESULTS, page: Path = PAGE) -> list[Path]:
    """Write the results and return the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    record = _record(run, results)
    if not whole:
        files = [folder / "chaos-some.json.tmp", folder / "chaos-some.md.tmp"]
        files[0].write_text(_json(record), encoding="utf-8")
        files[1].write_text(markdown(results) + "\n", encoding="utf-8")
        soak = next((each for each in results if each.fault == "soak"), None)
        if soak is None or soak.seconds < LONG_SOAK_SECONDS:
            return files
        kept = load(folder) | {"soak": record | {"faults": [soak.as_dict()]}}
    else:
        files, before = [], load(folder)
        summary = record["run"] | {
            "passed": record["passed"], "failed": [each.fault for each in results if not each.passed],
            "faults": len(results),
            **{name: sum(getattr(each, name) for each in results) for name in SUMS},
        }
        kept = before | record | {"whole": True, "last": [*before.get("last", []), summary][-RUNS_KEPT:]}
    (folder / "chaos.json").write_text(_json(kept), encoding="utf-8")
    (folder / "chaos.md").write_text(block(kept) + "\n", encoding="utf-8")
    put(page, block(kept))
    return [*files, folder / "chaos.json", folder / "chaos.md", page]


SUMS = ("requests", "expected", "received", "lost", "early", "duplicates")


def load(folder: Path = RESULTS) -> dict[str, Any]:
    """Read what was kept."""
    file = folder / "chaos.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def _record(run: Run, results: Sequence[Result]) -> dict[str, Any]:
    return {"run": vars(run), "passed": all(each.passed for each in results),
            "faults": [each.as_dict() for each in results]}


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1) + "\n"


def block(kept: dict[str, Any]) -> str:
    """Return the results as they stand in docs/chaos.md."""
    lines = []
    if kept.get("whole"):
        run = Run(**kept["run"])
        where = f"{run.seconds / 60:.0f} minutes, commit {run.commit}; {run.machine}"
        lines += [f"One run of `{run.command}`, begun {_when(run.began)}, {where}.", ""]
    elif kept.get("faults"):
        lines += ["Put together from single runs of faults: no whole run has been kept yet.", ""]
    lines += [markdown([from_dict(each) for each in kept.get("faults", [])]), ""]
    if kept.get("last"):
        lines += [f"The last {len(kept['last'])} whole runs in a row:" if len(kept["last"]) > 1 else "Whole runs:", "",
                  *map(_summary, kept["last"]), ""]
    if kept.get("soak"):
        lines += ["The last long soak:", "", _long_soak(kept["soak"]), ""]
    else:
        lines += ["No soak of ten minutes has been kept yet.", ""]
    return "\n".join(lines).rstrip()


def _summary(each: dict[str, Any]) -> str:
    verdict = f"all {each['faults']} faults passed" if each["passed"] else f"FAILED: {', '.join(each['failed'])}"
    return (f"- {_when(each['began'])}, commit {each['commit']}, {each['seconds'] / 60:.0f} minutes: {verdict}; "
            f"{each['expected']:,} events expected, {each['lost']} lost, {each['early']} early, "
            f"{each['duplicates']} duplicates.")


def _long_soak(kept: dict[str, Any]) -> str:
    run, [result] = Run(**kept["run"]), [from_dict(each) for each in kept["faults"]]
    verdict = "passed" if result.passed else "FAILED"
    counts = f"{result.expected:,} events expected, {result.lost} lost, {result.early} early"
    return "\n".join([
        f"- `{run.command}`, begun {_when(run.began)}, commit {run.commit}; {run.machine}: {verdict}; {counts}.",
        "  - slopes and differences are those of the second half",
        *(f"  - {note}" for note in result.notes), *(f"  - FAILED: {failure}" for failure in result.failures),
    ])


def _when(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M UTC")


def put(page: Path, text: str) -> None:
    """Put the results between the two marks of the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the results: {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
