"""`make bench-against BASE=commit`: compare this tree with another commit, alternating, on private servers.

The machine's speed changes by half from minute to minute. So each turn also measures the processor time of our
processes and Postgres, for an event and as a multiple of RabbitMQ's for the same messages, whose noise is a few per
cent. Other work on the machine is not counted.

Each turn is a separate process that runs one tree's code with that tree's own benchmarks, so changes to both are
measured.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # a turn runs the code of the tree that PYTHONPATH names

from bench import report  # noqa: E402 - found through the path above


def once(part: str, count: int) -> tuple[float, float, float]:
    """Measure one part of the imported tree: its result, and its processor time in µs and relative to RabbitMQ's."""
    from bench import emit, ingest, lag  # noqa: PLC0415 - of whichever tree this process runs
    from bench.servers import Bed  # noqa: PLC0415 - of whichever tree this process runs
    from scheduler.dev.servers import start_stack  # noqa: PLC0415 - of whichever tree this process runs

    def shots(bed: Bed) -> float:
        emit.one_shots(bed, count)
        return emit.drain(bed, count, 1)

    def rules(bed: Bed) -> float:
        emit.recurring(bed, count)
        return emit.drain(bed, count, 1)

    def stored(bed: Bed) -> float:
        return ingest.ours(bed, count, 1)

    def late(bed: Bed) -> float:
        bed.fill(100_000, "now() + interval '1 day' + n * interval '1 millisecond'")
        with contextlib.ExitStack() as running:
            replicas = [running.enter_context(bed.process("scheduler", "producer")) for _ in range(2)]
            return lag.quantile(lag.steady(bed, replicas, 100, 10)[0], 0.5)

    parts: dict[str, Callable[[Bed], float]] = {"emit": shots, "recurring": rules, "ingest": stored, "lag": late}
    with start_stack(say=lambda _: None, purpose="bench") as stack, Bed(stack) as bed:
        if part != "lag":
            parts[part](bed)  # the first one in a new database is slower
        before = used()
        value = parts[part](bed)
        ours, postgres, rabbitmq = (now - then for now, then in zip(used(), before, strict=True))
        return value, (ours + postgres) / count * 1e6, (ours + postgres) / rabbitmq


def used() -> tuple[float, float, float]:
    """Return the processor seconds used by our processes, Postgres and RabbitMQ."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    servers = {"postgres": 0.0, "beam.smp": 0.0}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.name() in servers:
                times = process.cpu_times()
                ended = times.children_user + times.children_system if process.name() == "postgres" else 0.0
                servers[process.name()] += times.user + times.system + ended
    return own.ru_utime + own.ru_stime, servers["postgres"], servers["beam.smp"]


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check out the commit in a temporary worktree."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def turn(tree: Path, part: str, count: int) -> tuple[float, float, float]:
    """Measure a part of a tree in a separate process."""
    command = [sys.executable, __file__, "--once", part, "--count", str(count)]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, check=True, text=True, stdout=subprocess.PIPE
    )
    value, cost, relative = map(float, json.loads(done.stdout.splitlines()[-1]))
    return value, cost, relative


def main() -> int:
    """Write the medians of both trees and their ratio."""
    parser = argparse.ArgumentParser(prog="make bench-against")
    parser.add_argument("base", nargs="?")
    parser.add_argument("--once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="emit,recurring,ingest,lag")
    parser.add_argument("--count", type=int, default=60_000, help="messages in a turn")
    args = parser.parse_args()
    if args.once:
        print(json.dumps(once(args.once, args.count)))
        return 0
    rows, details = [], {}
    with checked_out(args.base) as base:
        for part in args.parts.split(","):
            measurements: dict[Path, list[tuple[float, float, float]]] = {base: [], ROOT: []}
            for number in range(args.rounds):
                for tree in (base, ROOT) if number % 2 == 0 else (ROOT, base):
                    measurements[tree].append(turn(tree, part, args.count))
                    print(part, "here" if tree == ROOT else args.base, measurements[tree][-1], flush=True)
            rows += compared(part, args.base, measurements[base], measurements[ROOT])
            details[part] = {"base": measurements[base], "here": measurements[ROOT], "load": os.getloadavg()}
    report.write("against", rows, details)
    report.publish()
    return 0


def compared(
    part: str, base: str, before: list[tuple[float, float, float]], now: list[tuple[float, float, float]]
) -> list[report.Row]:
    """Return rows with the medians of both trees."""
    (value, cost, relative), (base_value, base_cost, base_relative) = (
        [statistics.median(column) for column in zip(*turns, strict=True)] for turns in (now, before)
    )
    if part == "lag":
        return [report.at_most("lag at 100 jobs/s, p50", value, base_value, base, 1.03, " ms")]
    name = {"emit": "one-shot events", "recurring": "recurring events", "ingest": "commands stored"}[part]
    return [
        report.at_most(f"{name}: processor time of one, ours + Postgres", cost, base_cost, base, 1.03, " µs"),
        report.at_most(f"{name}: the same as a multiple of RabbitMQ's", relative, base_relative, base, 1.03),
        report.without_goal(f"{name}, 1 process", value, base_value, base),
    ]


if __name__ == "__main__":
    sys.exit(main())
