"""Write benchmark rows to the terminal, as Markdown and as JSON."""

import json
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
PARTS = (
    "emit",
    "burst",
    "costs",
    "against",
    "lag",
    "priorities",
    "ingest",
    "peer-ratios",
    "recurrence",
    "scale",
    "sizes",
    "sizes-beyond",
    "runs",
    "runs-claims",
    "migrations",
    "api",
    "webhooks",
    "commands",
    "heartbeats",
    "console",
    "delayed",
    "zones",
    "calendars",
    "day",
    "intervals",
    "soak",
)


@dataclass(frozen=True)
class Row:
    """One figure and its yardstick; the ratio counts."""

    what: str
    ours: str
    yardstick: str
    ratio: float | None
    goal: str
    met: bool | None


def at_least(what: str, ours: float, yardstick: float, name: str, goal: float, unit: str = "/s") -> Row:
    ratio = ours / yardstick
    return Row(what, f"{ours:,.0f}{unit}", f"{name}: {yardstick:,.0f}{unit}", ratio, f"≥ {goal} ×", ratio >= goal)


def at_most(what: str, ours: float, yardstick: float, name: str, goal: float, unit: str = "") -> Row:
    ratio = ours / yardstick
    return Row(what, f"{ours:,.4g}{unit}", f"{name}: {yardstick:,.4g}{unit}", ratio, f"≤ {goal} ×", ratio <= goal)


def limit(what: str, ours: float, most: float, unit: str, context: str = "") -> Row:
    return Row(what, f"{ours:,.4g} {unit}", context, None, f"≤ {most:,g} {unit}", ours <= most)


def without_goal(what: str, ours: float, yardstick: float, name: str, unit: str = "/s") -> Row:
    """Return a row without a goal."""
    return Row(what, f"{ours:,.0f}{unit}", f"{name}: {yardstick:,.0f}{unit}", ours / yardstick, "", None)


def span(seconds: float) -> str:
    """Format a time in a suitable unit."""
    scale, unit = (1e6, "µs") if seconds < 1e-3 else (1e3, "ms") if seconds < 1 else (1, "s")
    return f"{seconds * scale:,.3g} {unit}"


def interleaved(rounds: int, measures: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run the measures in turn for several rounds, so that noise affects all equally."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            values[name].append(measure())
            print(f"    {name:<40} {values[name][-1]:>12,.1f}", flush=True)
    return values


def medians(measurements: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in measurements.items()}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| what | ours | yardstick in the same run | ratio | goal | met |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:,.2f}"
        met = "" if row.met is None else "yes" if row.met else "**no**"
        lines.append(f"| {row.what} | {row.ours} | {row.yardstick} | {ratio} | {row.goal} | {met} |")
    return "\n".join(lines)


def publish() -> None:
    """Write the latest results of every part to docs/benchmarks.md."""
    lines = [
        "# Benchmarks", "",
        "Written by `make bench`; each part shows the time of its last run. A yardstick is measured in the same run,",
        "interleaved with ours. Rates are medians of at least three rounds. The machine has two shared, noisy cores that",
        "also run the servers and the load: trust the ratios. The column *met* shows goals that are not met, too. Lag is",
        "measured with `mainapp_due` as the sidecar creates it by default. [peers.md](peers.md) compares other libraries,",
        "[scaling.md](scaling.md) shows how the figures grow with the number of rows and machines.", "",
        "![Throughput by replicas](throughput.png)", "![Lag distribution](lag.png)", "",
    ]
    for name in _published():
        part = json.loads((RESULTS / f"{name}.json").read_text())
        lines += [f"## {name}", "", part["when"], "", table([Row(**row) for row in part["rows"]]), ""]
    (DOCS / "benchmarks.md").write_text("\n".join(lines), encoding="utf-8")


def put(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace the lines between the markers of that name on a page."""
    begin, end = f"<!-- {name}: written by make bench -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    text, after = "\n".join(lines), rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def _published() -> list[str]:
    return [name for name in PARTS if (RESULTS / f"{name}.json").exists()]


def write(part: str, rows: Sequence[Row], details: object = None) -> None:
    """Print the rows and store them in bench/results/."""
    RESULTS.mkdir(exist_ok=True)
    text = table(rows)
    print(f"\n## {part}\n\n{text}\n", flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=DOCS.parent, check=False, text=True,
                            capture_output=True).stdout.strip()
    stamp = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit}, Python {platform.python_version()}{_medium()}"
    (RESULTS / f"{part}.md").write_text(f"# {part}\n\n{stamp}\n\n{text}\n", encoding="utf-8")
    record = {"when": stamp, "rows": [asdict(row) for row in rows], "details": details}
    (RESULTS / f"{part}.json").write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")


def _medium() -> str:
    """Return a note if the servers' data is on a RAM disk, which affects the results."""
    filesystem = subprocess.run(["stat", "--file-system", "--format=%T", tempfile.gettempdir()], check=False, text=True,
                           capture_output=True).stdout.strip()
    return ", the servers' data on a RAM disk" if filesystem == "tmpfs" else ""


def details(part: str) -> Any:
    """Return the details of a part's latest run, or an empty dict."""
    file = RESULTS / f"{part}.json"
    return json.loads(file.read_text(encoding="utf-8"))["details"] if file.exists() else {}
