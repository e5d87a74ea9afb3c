"""`python -m torture`: attack the system with random work and faults, and judge everything by a model."""

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
import torture.rules_system  # noqa: F401 - registers its rules
from scheduler.dev.servers import start_stack
from torture import shrink
from torture.checker import Violation, judge
from torture.releases import ROOT, unpacked
from torture.themes import THEMES, draw
from torture.world import World

KEPT = ROOT / ".torture"


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--for", dest="time", default=None, help="how long: 90s, 10m, 1h (default: every theme once)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run")
    parser.add_argument("--theme", action="append", help="only this theme; may be repeated")
    parser.add_argument("--commit", help="attack another commit of this repository")
    parser.add_argument("--replay", type=Path, help="run a plan from a file")
    parser.add_argument("--list", action="store_true", help="show the themes")
    parser.add_argument("--shrink", type=float, default=0.0, metavar="MINUTES", help="shrink each new failure for so long")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:<18} {(function.__doc__ or '').strip()}" for name, function in THEMES.items()))
        return 0
    if unknown := [name for name in args.theme or () if name not in THEMES]:
        parser.error(f"no such theme: {', '.join(unknown)}")
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    return Runner(unpacked(args.commit), args.shrink).run(plans(args, seed), seconds(args.time))


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


class Runner:
    """Runs plans one after the other on one pair of servers."""

    def __init__(self, code: Path, shrinking: float = 0.0) -> None:
        self._code = code
        self._shrinking = shrinking
        self._templates: dict[Path, str] = {}
        self._stack: Any = None
        self.found: dict[str, list[str]] = {}

    def run(self, wanted: Any, within: float) -> int:
        limit = time.monotonic() + within
        say(f"torture of {self._code.name}")
        with start_stack(purpose="torture", fast=True, say=say) as self._stack:
            for plan in wanted:
                if time.monotonic() > limit:
                    break
                violations = self.attack(plan)
                if violations and self._shrinking:
                    smaller = shrink.shrink(plan, violations, self.attack, self._shrinking * 60, say)
                    say(f"the smallest plan that still fails:\n{json.dumps(smaller, indent=1)}")
                    save(smaller, f"{plan['theme']}-{plan['seed']}-small")
        say("\n".join(["", "found:", *(f"  {kind}: {', '.join(where)}" for kind, where in sorted(self.found.items()))]) if self.found
            else "\nnothing found")
        return 1 if self.found else 0

    def attack(self, plan: dict[str, Any], *, quiet: bool = False) -> list[Violation]:
        """Run a plan once and return what was wrong."""
        began, label = time.monotonic(), f"{plan['theme']}-{plan['seed']}"
        if not quiet:
            say(f"{plan['theme']} SEED={plan['seed']}: {', '.join(f['kind'] for f in plan['faults']) or 'no fault'}")
        world = World(self._stack, self._code, plan, self._templates)
        violations: list[Violation] = []
        try:
            world.run(say)
        except Exception:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            violations.append(Violation("harness", "the harness itself failed"))
        world.close(None if quiet else KEPT / label)
        violations += judge(plan, world.history, self._code)
        if not quiet:
            save(plan, label)
            events = sum(1 for _ in world.history.of("due"))
            say(f"    {'FAIL' if violations else 'pass'} in {time.monotonic() - began:.0f} s: {events} events")
            for violation in violations:
                self.found.setdefault(violation.rule, [])
                if label not in self.found[violation.rule]:
                    self.found[violation.rule].append(label)
                say(f"    {violation.rule}: {violation.text}")
            if violations:
                say(f"    again: python -m torture --replay {KEPT.name}/{label}/plan.json   (history and logs are beside it)")
        return violations


def save(plan: dict[str, Any], label: str) -> None:
    folder = KEPT / label
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan, indent=1), encoding="utf-8")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
