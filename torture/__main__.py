"""`python -m torture`: attack the system with random work and faults, and check everything against a model."""

import argparse
import json
import random
import re
import secrets
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torture.rules_events
import torture.rules_replies
import torture.rules_runs
import torture.rules_system
import torture.themes_beyond  # noqa: F401 - registers its themes; the others their rules
from scheduler.dev.servers import start_stack
from torture import shrink
from torture.checker import Violation, judge
from torture.releases import ROOT, unpacked
from torture.themes import THEMES, draw
from torture.world import World

KEPT = ROOT / ".torture"
DURABLE = {"synchronous_commit": "on"}  # a crash of Postgres must lose no commit


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--for", dest="time", default=None, help="how long: 90s, 10m, 1h (default: every theme once)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run")
    parser.add_argument("--theme", action="append", help="only this theme; may be repeated")
    parser.add_argument("--commit", help="attack another commit of this repository")
    parser.add_argument("--replay", type=Path, help="run a plan from a file")
    parser.add_argument("--list", action="store_true", help="show the themes")
    parser.add_argument("--shrink", type=float, default=0.0, metavar="MINUTES", help="time limit for shrinking each new failure")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:<18} {(function.__doc__ or '').strip()}" for name, function in THEMES.items()))
        return 0
    if unknown := [name for name in args.theme or () if name not in THEMES]:
        parser.error(f"no such theme: {', '.join(unknown)}")
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    code, limit = unpacked(args.commit), time.monotonic() + seconds(args.time)
    say(f"torture of {args.commit or 'this checkout'}, SEED={seed}")
    with start_stack(purpose="torture", fast=True, say=say, postgres_settings=DURABLE) as stack:
        attacks = Attacks(stack, code, KEPT)
        for plan in plans(args, seed):
            if time.monotonic() > limit:
                break
            violations = attacks.run(plan)
            if violations and args.shrink:
                smaller = shrink.shrink(plan, violations, attacks.run, args.shrink * 60, say)
                say(f"the smallest plan that still fails:\n{json.dumps(smaller, indent=1)}")
                attacks.save(smaller, f"{plan['theme']}-{plan['seed']}-small")
    for kind, where in sorted(attacks.found.items()):
        say(f"{kind}: {', '.join(where)}")
    say("" if attacks.found else "nothing found")
    return 1 if attacks.found else 0


def plans(args: argparse.Namespace, seed: int) -> Any:
    """Yield plans: the file, or themes in random order with consecutive seeds."""
    if args.replay:
        yield json.loads(args.replay.read_text(encoding="utf-8"))
        return
    names = args.theme or list(THEMES)
    random.Random(seed).shuffle(names)
    while True:
        for name in names:
            yield draw(name, seed)
        if not args.time:
            return
        seed += 1


def seconds(text: str | None) -> float:
    if text is None:
        return float("inf")
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)):
        raise SystemExit(f"not a duration: {text}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


class Attacks:
    """Runs plans one after the other on one pair of servers."""

    def __init__(self, stack: Any, code: Path, keep: Path) -> None:
        self._stack = stack
        self._code = code
        self._keep = keep
        self._templates: dict[Path, str] = {}
        self.found: dict[str, list[str]] = {}  # labels of runs by broken rule

    def run(self, plan: dict[str, Any], *, quiet: bool = False) -> list[Violation]:
        """Run a plan once and return its violations."""
        began, label = time.monotonic(), f"{plan['theme']}-{plan['seed']}"
        if not quiet:
            say(f"{plan['theme']} SEED={plan['seed']}: {', '.join(f['kind'] for f in plan['faults']) or 'no fault'}")
        world = World(self._stack, self._code, plan, self._templates)
        violations: list[Violation] = []
        try:
            world.run(say)
        except Exception:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            violations.append(Violation("harness", "the harness itself failed; nothing was judged"))
        world.close(None if quiet else self._keep / label)
        if not violations:
            violations = judge(plan, world.history, self._code)
        if not quiet:
            self.save(plan, label)
            self._tell(label, world, violations, time.monotonic() - began)
        return violations

    def _tell(self, label: str, world: World, violations: list[Violation], took: float) -> None:
        events = sum(1 for _ in world.history.of("due"))
        peak = max((r["bytes"] for r in world.history.of("rss")), default=0) / 2**20
        say(f"    {'FAIL' if violations else 'pass'} in {took:.0f} s: {events} events, largest process {peak:.0f} MiB")
        for violation in violations:
            where = self.found.setdefault(violation.rule, [])
            if label not in where:
                where.append(label)
            say(f"    {violation.rule}: {violation.text}")
        if violations:
            say(f"    again: python -m torture --replay {self._keep.name}/{label}/plan.json   (history and logs are in the same folder)")

    def save(self, plan: dict[str, Any], label: str) -> None:
        folder = self._keep / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(json.dumps(plan, indent=1), encoding="utf-8")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
