"""Makes a failing plan smaller: fewer faults, groups, jobs and fields, as long as the same rule still fails."""

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from torture.checker import Violation

Plan = dict[str, Any]


def shrink(plan: Plan, violations: list[Violation], attack: Callable[..., list[Violation]], within: float,
           say: Callable[[str], None]) -> Plan:
    """Return the smallest plan found in this time that breaks one of the same rules."""
    limit = time.monotonic() + within
    wanted = {violation.rule for violation in violations}
    changed = True
    while changed and time.monotonic() < limit:
        changed = False
        for what, smaller in candidates(plan):
            if time.monotonic() > limit:
                break
            if wanted & {violation.rule for violation in attack(smaller, quiet=True)}:
                say(f"    shrunk: {what}")
                plan, changed = smaller, True
                break
    return plan


def candidates(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield smaller plans, the smallest first."""
    for part in ("groups", "faults"):
        items = plan[part]
        if len(items) > 2:
            half = len(items) // 2
            yield f"half of the {part}", {**plan, part: items[:half]}
            yield f"the other half of the {part}", {**plan, part: items[half:]}
        for number in range(len(items)):
            yield f"without {part[:-1]} {items[number].get('family') or items[number].get('kind')}", {
                **plan, part: items[:number] + items[number + 1:]}
    for number, group in enumerate(plan["groups"]):
        if group.get("count", 1) > 1:
            smaller = copy.deepcopy(plan)
            smaller["groups"][number]["count"] = group["count"] // 2
            yield f"half as many {group['family']}", smaller
        for name in group.get("with", {}):
            smaller = copy.deepcopy(plan)
            del smaller["groups"][number]["with"][name]
            yield f"{group['family']} without {name}", smaller
