"""The metrics of several processes as those of one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

_COUNTED = ("counter", "histogram")
# What is the same thing seen by each is told once, at its worst; the rest of a process's own adds up.
_LEAST = ("scheduler_dependency_up", "process_start_time_seconds", "process_max_fds")
_SUMMED = ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds")


@dataclass(slots=True)
class Family:
    """A metric: its lines of description, what kind it is, and its samples by name and labels."""

    name: str
    described: list[str] = field(default_factory=list)
    kind: str = "untyped"
    samples: dict[str, float] = field(default_factory=dict)


Families = dict[str, Family]


def read(text: str) -> Families:
    """Read the text that a process tells its metrics in."""
    found: Families = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, *rest = line.split(" ", 3)
            family = found.setdefault(name, Family(name))
            family.described.append(line)
            if what == "TYPE":
                family.kind = rest[0]
        elif line:
            sample, _, value = line.rpartition(" ")
            family.samples[sample] = float(value)
    return found


def counted(families: Families) -> Families:
    """Return what only ever grows: it outlives the process that counted it."""
    return {name: family for name, family in families.items() if family.kind in _COUNTED}


def merged(parts: Iterable[Families]) -> Families:
    """Return them as one: what was counted adds up, and of what all see alike it is the greatest that counts."""
    whole: Families = {}
    for part in parts:
        for name, family in part.items():
            into = whole.setdefault(name, Family(name, family.described, family.kind))
            for sample, value in family.samples.items():
                known = into.samples.get(sample)
                into.samples[sample] = value if known is None else _of_two(family, known, value)
    return whole


def _of_two(family: Family, one: float, other: float) -> float:
    if family.kind in _COUNTED or family.name in _SUMMED:
        return one + other
    return min(one, other) if family.name in _LEAST else max(one, other)


def written(families: Families) -> str:
    """Write metrics as they are scraped."""
    lines: list[str] = []
    for family in families.values():
        lines += family.described
        lines += [f"{sample} {value!r}" for sample, value in family.samples.items()]
    return "\n".join(lines) + "\n"
