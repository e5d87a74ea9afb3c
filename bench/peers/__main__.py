"""`make bench-peers`: measure all or the named peers and the sidecar, alternating, on servers with fsync on."""

import argparse
import contextlib
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bench import lag, report
from bench.peers import runs
from bench.peers.install import NotInstalledError
from bench.peers.known import PEERS
from bench.report import RESULTS
from bench.servers import Bed
from scheduler.dev.servers import Stack, start_stack

OURS = {"ours, 1 replica": 1, "ours, 2 replicas": 2}
NO_OP, PUBLISH, LAG = "no-op", "publish", "lag"
GOALS = (1.3, 1.5)  # ratio to each peer with one replica and with two


@dataclass
class Found:
    """Measurements of one library."""

    rates: dict[str, list[float]] = field(default_factory=lambda: {NO_OP: [], PUBLISH: []})
    cpus: dict[str, list[float]] = field(default_factory=lambda: {NO_OP: [], PUBLISH: []})
    lags: list[tuple[float, float]] = field(default_factory=list)  # p50 and p99, in milliseconds
    failed: dict[str, str] = field(default_factory=dict)

    def rate(self, mode: str) -> float | None:
        return statistics.median(self.rates[mode]) if self.rates[mode] else None

    def add(self, mode: str, drained: runs.Drained) -> str:
        self.rates[mode].append(drained.rate)
        self.cpus[mode].append(drained.cpu)
        return f"{drained.rate:,.0f}/s, {drained.cpu:,.0f} µs of processor time per job"

    def lag(self) -> tuple[float, float] | None:
        if not self.lags:
            return None
        return statistics.median(p50 for p50, _ in self.lags), statistics.median(p99 for _, p99 in self.lags)


def our_lag(stack: Stack, replicas: int, rate: int, seconds: int) -> tuple[float, float]:
    """Return p50 and p99 from due to confirmed, from the replicas' histogram."""
    count = rate * seconds
    with Bed(stack) as bed, contextlib.ExitStack() as running:
        # Start the replicas first: otherwise jobs fall due while the second one starts.
        replicas_running = [running.enter_context(bed.process("scheduler", "producer")) for _ in range(replicas)]
        bed.fill(count, f"now() + interval '6 seconds' + n * interval '{1 / rate} seconds'")
        bed.analyze()
        deadline = time.monotonic() + seconds + 60
        while sum(lag.histogram([replica]).get(float("inf"), 0) for replica in replicas_running) < count:
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.5)
        buckets = lag.histogram(replicas_running)
    return lag.quantile(buckets, 0.5), lag.quantile(buckets, 0.99)


def guarded(name: str, what: str, measurement: Found, measure: Callable[[], str]) -> None:
    """Measure, and store the reason if a peer fails; a failed peer is not retried."""
    if what in measurement.failed:
        return
    try:
        text = measure()
    except (runs.FailedError, NotInstalledError) as error:
        measurement.failed[what] = text = str(error)
    print(f"    {name:<20} {what:<10} {text}", flush=True)


def measure_all(stack: Stack, names: list[str], options: argparse.Namespace) -> dict[str, Found]:
    """Measure all in shuffled order for several rounds, so that noise affects all equally."""
    measurements = stored_measurements() if options.add else {}
    measurements = {name: measurements.get(name, Found()) for name in [*OURS, *names]}

    def ours(name: str) -> str:
        return measurements[name].add(PUBLISH, runs.drain_ours(stack, OURS[name], options.jobs))

    def drained(name: str, mode: str) -> str:
        peer = PEERS[name]
        drained = runs.drain(stack, peer, "publish" if mode == PUBLISH else "noop", int(options.jobs * peer.share))
        return measurements[name].add(mode, drained)

    def late(name: str) -> str:
        if name in OURS:
            p50, p99 = our_lag(stack, OURS[name], 100, options.lag_seconds)
        else:
            lags = runs.lags(stack, PEERS[name], 100, options.lag_seconds)
            p50, p99 = statistics.median(lags), statistics.quantiles(lags, n=100)[98]
        measurements[name].lags.append((p50, p99))
        return f"p50 {p50:,.1f} ms, p99 {p99:,.1f} ms"

    for _ in range(options.rounds):
        for name in random.sample(list(measurements), len(measurements)):  # no library is always first on cold servers
            if name in OURS:
                guarded(name, PUBLISH, measurements[name], lambda name=name: ours(name))
            for mode in () if name in OURS else (PUBLISH, NO_OP):
                guarded(name, mode, measurements[name], lambda name=name, mode=mode: drained(name, mode))
    if options.lag_seconds:
        for name, measurement in measurements.items():
            guarded(name, LAG, measurement, lambda name=name: late(name))
    return measurements


def table(measurements: dict[str, Found]) -> str:
    """Return the measurements as Markdown."""
    heads = ["", "version", "workers and settings", "publish and confirm, jobs/s", "ours, 1 replica ÷ it",
             "ours, 2 replicas ÷ it", "ahead", "CPU µs per job", "no-op, jobs/s", "no-op, CPU µs per job",
             "lag at 100/s, p50 / p99 ms"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    first, second = (measurements[name].rate(PUBLISH) or 0.0 for name in OURS)
    for name, measurement in measurements.items():
        publish, late = measurement.rate(PUBLISH), measurement.lag()
        ratios, ahead = ["", ""], ""
        if name not in OURS and publish:
            ratios, ahead = [f"{first / publish:,.2f}", f"{second / publish:,.2f}"], _ahead(first, second, publish)
        cells = [
            name, _version(name), _settings(name), _cell(measurement.rates[PUBLISH], measurement.failed.get(PUBLISH)), *ratios, ahead,
            _cell(measurement.cpus[PUBLISH]), _cell(measurement.rates[NO_OP], measurement.failed.get(NO_OP)), _cell(measurement.cpus[NO_OP]),
            f"{late[0]:,.1f} / {late[1]:,.1f}" if late else measurement.failed.get(LAG, "—"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: list[float], failed: str | None = None) -> str:
    if failed or not values:
        return f"failed: {failed}" if failed else "—"
    spread = f" ({min(values):,.0f}–{max(values):,.0f})" if len(values) > 1 else ""
    return f"{statistics.median(values):,.0f}{spread}"


def _ahead(first: float, second: float, peer_rate: float) -> str:
    return "yes" if first > peer_rate else "with 2" if second > peer_rate else "**no**"


def _version(name: str) -> str:
    return PEERS[name].version if name in PEERS else "this commit"


def _settings(name: str) -> str:
    if name in OURS:
        return "defaults"
    peer = PEERS[name]

    def written(settings: dict[str, object]) -> str:
        return ", ".join(f"{key} {value}" for key, value in settings.items())

    text = f"{peer.processes} process{'es' * (peer.processes > 1)}; {written(peer.settings)}"
    return text + (f"; to publish {written(peer.publishing)}" if peer.publishing else "")


def write(measurements: dict[str, Found], options: argparse.Namespace, servers: str) -> None:
    """Print the table and store it in bench/results/; with all six peers also in docs/."""
    RESULTS.mkdir(exist_ok=True)
    text = table(measurements)
    load = " ".join(f"{load_average:.1f}" for load_average in os.getloadavg())
    stamp = (f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, {servers}, "
             f"{os.cpu_count()} cores, load average at the end {load}; {options.jobs:,} jobs "
             f"(the slow peers fewer), {len(measurements['ours, 1 replica'].rates[PUBLISH])} rounds in turn, medians (and range)")
    print(f"\n## peers\n\n{stamp}\n\n{text}\n", flush=True)
    (RESULTS / "peers.md").write_text(f"# peers\n\n{stamp}\n\n{text}\n", encoding="utf-8")
    if measurements.keys() >= PEERS.keys():
        report.put(report.DOCS / "peers.md", "peers", [stamp, "", text])
        report.write("peer-ratios", ratio_rows(measurements))
        report.publish()
    keep = {
        "when": stamp,
        "peers": {
            name: {
                "version": _version(name), "settings": _settings(name), "rates": measurement.rates, "cpus": measurement.cpus, "lags": measurement.lags,
                "failed": measurement.failed, "share_of_jobs": PEERS[name].share if name in PEERS else 1.0,
            } for name, measurement in measurements.items()
        },
    }
    (RESULTS / "peers.json").write_text(json.dumps(keep, indent=1) + "\n", encoding="utf-8")


def ratio_rows(measurements: dict[str, Found]) -> list[report.Row]:
    """Return rows that compare the sidecar with each peer, with the same number of processes and the same work."""
    rates = {name: measurements[name].rate(PUBLISH) for name in PEERS}
    return [
        report.at_least(f"published and confirmed, {name.removeprefix('ours, ')}", measurements[name].rate(PUBLISH) or 0.0, rate, peer, goal)
        for name, goal in zip(OURS, GOALS, strict=True)
        for peer, rate in sorted(rates.items(), key=lambda name: -(name[1] or 0.0)) if rate
    ]


def stored_measurements() -> dict[str, Found]:
    """Return the measurements of earlier runs with the same versions and settings."""
    file = RESULTS / "peers.json"
    peers = json.loads(file.read_text(encoding="utf-8"))["peers"] if file.exists() else {}
    return {
        name: Found(record["rates"], record["cpus"], [(p50, p99) for p50, p99 in record["lags"]])
        for name, record in peers.items()
        if name in [*OURS, *PEERS] and (record["version"], record["settings"]) == (_version(name), _settings(name))
    }


def main() -> int:
    """Measure, and return 1 if a peer is faster than our best on the same work."""
    parser = argparse.ArgumentParser(prog="make bench-peers")
    parser.add_argument("names", nargs="*", choices=[*PEERS, []], help="all of them by default")
    parser.add_argument("--jobs", type=int, default=10_000, help="due jobs in each drain")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per drain")
    parser.add_argument("--add", action="store_true", help="add to the stored rounds of earlier runs")
    parser.add_argument("--lag-seconds", type=int, default=10, help="seconds at 100 jobs/s; 0 for none")
    options = parser.parse_args()
    with start_stack(say=print, purpose="bench-peers") as stack:
        with Bed(stack) as bed:
            postgres = bed.sql("SHOW server_version")[0][0].split()[0]
        measurements = measure_all(stack, options.names or list(PEERS), options)
    write(measurements, options, f"PostgreSQL {postgres} with fsync on")
    best = max(measurements[name].rate(PUBLISH) or 0.0 for name in OURS)
    return 0 if all(best > (measurement.rate(PUBLISH) or 0.0) for name, measurement in measurements.items() if name not in OURS) else 1


if __name__ == "__main__":
    sys.exit(main())
