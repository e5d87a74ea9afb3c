"""`python -m chaos [FAULT …]`: run the faults, print the table, write the results, fail if a check failed."""

import argparse
import os
import sys
import time
import traceback
from datetime import UTC, datetime

from chaos import report
from chaos.account import Result
from chaos.suite import ALL, start_servers


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="fault name (default: all)")
    parser.add_argument("--list", action="store_true", help="list the faults")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all durations (default: 1)")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{fault.name:<20} {fault.title}" for fault in ALL.values()))
        return 0
    names = [name for given in args.faults for name in given.replace(",", " ").split()] or list(ALL)
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"no such fault: {', '.join(unknown)}; expected one of {', '.join(ALL)}")
    began, clock = datetime.now(UTC), time.monotonic()
    results = run(names, args.scale)
    whole = set(names) == set(ALL) and args.scale >= 1
    ran = report.this_run(command(args.faults, args.scale), began, time.monotonic() - clock)
    print(f"\n{report.table(results)}\n")
    for result in results:
        for failure in result.failures:
            print(f"{result.fault}: {failure}")
    files = report.write(ran, results, whole=whole)
    print(f"{ran.seconds / 60:.1f} minutes; written to {', '.join(str(file.relative_to(report.ROOT)) for file in files)}")
    return 0 if all(result.passed for result in results) else 1


def command(faults: list[str], scale: float) -> str:
    """Return the command that repeats this run."""
    env = [f"{name}={value} " for name in ("SOAK_SECONDS", "SOAK_JOBS") if (value := os.environ.get(name))]
    given = f' FAULT="{" ".join(faults)}"' if len(faults) > 1 else f" FAULT={faults[0]}" if faults else ""
    return "".join(env) + "make chaos" + given + (f" ARGS='--scale {scale:g}'" if scale != 1 else "")


def run(names: list[str], scale: float) -> list[Result]:
    """Run faults one after the other on one pair of servers."""
    results = []
    with start_servers(say) as stack:
        for number, name in enumerate(names, 1):
            fault = ALL[name]
            result = Result(name, fault.title)
            results.append(result)
            say(f"[{number}/{len(names)}] {name}: {fault.title}")
            began = time.monotonic()
            try:
                fault.run(stack, result, scale)
            except Exception as error:  # noqa: BLE001 - the other faults still run
                traceback.print_exc()
                result.failures.append(f"{type(error).__name__}: {error}")
            result.seconds = round(time.monotonic() - began, 1)
            verdict = "pass" if result.passed else "FAIL"
            say(f"    {verdict} in {result.seconds:.0f} s: {result.expected:,} expected, {result.lost} lost, "
                f"{result.early} early, {result.duplicates} duplicates, longest gap {result.longest_gap:.2f} s; "
                f"{'; '.join(result.notes + result.failures)}")
    return results


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
