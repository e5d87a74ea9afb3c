"""Run the shop's day for hours: lag, memory of each process and bloat of the tables stay flat.

`make bench ARGS=soak` takes eight hours, three days and a third of the shop; `ARGS="soak --minutes 60"` takes an hour.
docs/soak.png shows all of it.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psutil
import psycopg2

from bench import plots, report
from bench.day import lived, lost
from bench.day_shop import INTERVAL
from bench.servers import Bed
from chaos.soaking import ALLOWED_MIB, ALLOWED_MIB_PER_MINUTE, slope
from scheduler.dev.servers import Stack

EVERY = 10.0  # seconds between two samples
TABLES = ("jobs", "runs", "delayed_messages")
_SIZES = ("SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) / 1048576.0 FROM pg_stat_user_tables "
          "WHERE relname = ANY (%s)")
Sample = dict[str, float]  # seconds, `RSS of a process` and `dead rows of a table` and so on


class Sampler:
    """Samples processes and tables."""

    def __init__(self, bed: Bed) -> None:
        self.samples: list[Sample] = []
        self._bed, self._began = bed, time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def _sample(self) -> None:
        with closing(psycopg2.connect(self._bed.database_url)) as database, database.cursor() as cursor:
            database.autocommit = True
            while not self._stop.wait(EVERY):
                sample = {"at": time.monotonic() - self._began} | memory()
                cursor.execute(_SIZES, (list(TABLES),))
                for name, live, dead, mib in cursor.fetchall():
                    sample |= {f"live {name}": live, f"dead {name}": dead, f"MiB {name}": float(mib)}
                self.samples.append(sample)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def memory() -> Sample:
    """Return the MiB of each of our processes."""
    found: Sample = {}
    for child in psutil.Process(os.getpid()).children():
        try:
            command = child.cmdline()
            if "scheduler" in command:
                name = f"RSS {command[command.index('scheduler') + 1]} {child.pid}"
                found[name] = child.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return found


def run(stack: Stack, minutes: float = 480, pending: int = 1_000_000) -> list[report.Row]:
    """Run the shop and compare the second half with the first."""
    samplers: list[Sampler] = []

    @contextmanager
    def sampling(bed: Bed) -> Iterator[None]:
        samplers.append(Sampler(bed))
        try:
            yield
        finally:
            samplers[0].stop()

    outcome = lived(stack, minutes, pending, sampling)
    samples, kinds = samplers[0].samples, outcome["received"]["kinds"]
    missing, of_all = lost(outcome)
    half = samples[len(samples) // 2:]
    spoken = f"the shop for {minutes:g} minutes"
    rows = [
        report.limit(f"{spoken}: events without the expected outcome", missing, 0, "", f"of {of_all:,}"),
        report.at_most(f"{spoken}: lag of reminders, p50, in the last tenth", *_lags(kinds["reminder"]["by interval"]),
                       "first half", 1.5, " ms"),
        *(_growth(name, half) for name in sorted(half[-1]) if name.startswith("RSS ")),
        *(_bloat(name, half) for name in TABLES),
    ]
    report.write("soak", rows, {"samples": samples})
    plots.soak(kinds["reminder"]["by interval"], samples, INTERVAL)
    return rows


def _lags(intervals: dict[str, dict[str, float]]) -> tuple[float, float]:
    """Return the median lag in the last tenth and in the first half."""
    medians = [figures["p50"] for figures in intervals.values()]
    last, first = medians[-max(1, len(medians) // 10):], medians[:max(1, len(medians) // 2)]
    return sorted(last)[len(last) // 2], sorted(first)[len(first) // 2]


def _growth(name: str, half: Sequence[Sample]) -> report.Row:
    """Return the growth of a process in the second half."""
    rows = [(sample["at"] / 60, sample[name]) for sample in half if name in sample]
    minutes = rows[-1][0] - rows[0][0]
    grown = slope(rows) * minutes
    return report.limit(f"memory of {name.removeprefix('RSS ').split()[0]}, growth in the second half", max(0.0, grown),
                        round(ALLOWED_MIB + ALLOWED_MIB_PER_MINUTE * minutes, 1), "MiB", f"{rows[-1][1]:.0f} MiB at the end")


def _bloat(name: str, half: Sequence[Sample]) -> report.Row:
    """Return the largest number of dead rows of a table in the second half."""
    most = max(half, key=lambda sample: sample[f"dead {name}"])
    last = half[-1]
    return report.Row(f"dead rows of {name}, most in the second half", f"{most[f'dead {name}']:,.0f}",
                      f"{last[f'live {name}']:,.0f} live rows, {last[f'MiB {name}']:,.0f} MiB at the end", None, "", None)
