"""Parse the `rrule` field: one RRULE, and RDATE, EXDATE and DTSTART lines."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from scheduler.domain.errors import MAX_PROBLEMS
from scheduler.domain.recurrence.rfc5545_stamp import Fault, Form, Stamp, read_stamp
from scheduler.domain.recurrence.rule import Rule, read_rule
from scheduler.domain.recurrence.zones import zone_names

LONGEST = 4096
_NOT_ALLOWED = re.compile(r"[^ -~\r\n\t]")
_FOLD = re.compile(r"\r?\n[ \t]")
_NAMED = re.compile(
    r"""(RRULE|RDATE|EXDATE|DTSTART|EXRULE)((?:;(?:"[^"]*"|[^":])*)?):(.*)""", re.IGNORECASE | re.DOTALL
)


class SyntaxFaults(Exception):  # noqa: N818 - always caught by resolve and turned into Problems
    """The faults of a text, one message each."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


class Faults(list[str]):
    """Faults of one text; parsing stops if there are too many."""

    def append(self, fault: str) -> None:
        """Add a fault. Raises Faulty if there are too many."""
        if len(self) == MAX_PROBLEMS - 1:
            raise SyntaxFaults((*self, "and more"))
        super().append(fault)


@dataclass(slots=True)  # immutable by convention; not frozen, for speed
class RuleText:
    """A parsed `rrule` field."""

    rule: Rule
    dtstart: Stamp | None
    rdates: tuple[Stamp, ...]
    exdates: tuple[Stamp, ...]


@lru_cache(maxsize=1024)  # up to 50 kB each
def read_text(text: str) -> RuleText:
    """Return the parsed field. Raises Faulty with every fault."""
    _check_characters(text)
    faults = Faults()
    if text.startswith("FREQ=") and "\n" not in text:
        rule = read_rule(text, faults)
        if faults:
            raise SyntaxFaults(tuple(faults))
        return RuleText(rule, None, (), ())
    lines: dict[str, list[tuple[str, str]]] = {"RRULE": [], "RDATE": [], "EXDATE": [], "DTSTART": []}
    for line in _lines(text) if "\n" in text else (text,):
        try:
            name, parameters, value = _line(line)
            lines[name].append((parameters, value))
        except Fault as fault:
            faults.append(str(fault))
    rule = _only_rule(lines["RRULE"], faults)
    rdates = _stamps("RDATE", lines["RDATE"], faults)
    exdates = _stamps("EXDATE", lines["EXDATE"], faults)
    starts = _stamps("DTSTART", lines["DTSTART"], faults)
    if len(starts) > 1:
        faults.append("DTSTART is given more than once")
    if faults:
        raise SyntaxFaults(tuple(faults))
    if starts and starts[0].form is Form.DATE:  # RFC 5545: such a rule's times of day MUST be ignored
        rule = replace(rule, byhour=(), byminute=(), bysecond=())
    return RuleText(rule, starts[0] if starts else None, rdates, exdates)


def _check_characters(text: str) -> None:
    if not text.strip():
        raise SyntaxFaults(("the rule is empty: write at least FREQ=DAILY",))
    if len(text) > LONGEST:
        raise SyntaxFaults((f"at most {LONGEST} characters, not {len(text)}",))
    invalid = None if text.isascii() and text.isprintable() else _NOT_ALLOWED.search(text)
    if invalid:
        raise SyntaxFaults((f"only printable ASCII is allowed, not {invalid[0]!a}",))


def _lines(text: str) -> list[str]:
    """Return the unfolded lines; CRLF and LF both end a line, and a leading blank continues it."""
    lines = _FOLD.sub("", text).replace("\r\n", "\n").split("\n")
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _line(line: str) -> tuple[str, str, str]:
    match = _NAMED.fullmatch(line)
    if not match:
        if re.match(r"[A-Za-z-]+ *(=|;|$)|;", line):
            return "RRULE", "", line
        raise Fault(_line_fault(line))
    name = match[1].upper()
    if name == "EXRULE":
        raise Fault("EXRULE was removed from RFC 5545; list what to leave out with EXDATE")
    if name == "RRULE" and match[2]:
        raise Fault("RRULE takes no parameters: write RRULE:FREQ=…")
    return name, match[2], match[3]


def _line_fault(line: str) -> str:
    if not line:
        return "there is an empty line between the lines"
    if line.startswith("@") or re.fullmatch(r"[-0-9*/,]+( +[-0-9A-Za-z*/,#]+){4}", line):
        return "this is cron: put it in the field cron"
    return f"{line[:40]!r} is neither a rule (FREQ=…) nor an RRULE, RDATE, EXDATE or DTSTART line"


def _only_rule(lines: list[tuple[str, str]], faults: list[str]) -> Rule:
    if len(lines) > 1 and not all("FREQ" in value.upper() for _, value in lines):
        faults.append("one rule is one line: join its parts with semicolons")
    elif len(lines) > 1:
        faults.append("there are several rules: one job has one rule, on one line")
    elif not lines and not faults:
        faults.append("there is no RRULE line")
    elif lines:
        return read_rule(lines[0][1], faults)
    return Rule()


def _stamps(name: str, lines: list[tuple[str, str]], faults: list[str]) -> tuple[Stamp, ...]:
    stamps: list[Stamp] = []
    for parameters, value in lines:
        try:
            kind, tzid = _parameters(name, parameters)
            items = value.split(",") if name != "DTSTART" else [value]
            stamps.extend(_stamp(name, kind, tzid, item) for item in items)
        except Fault as fault:
            faults.append(str(fault))
    return tuple(stamps)


def _parameters(name: str, text: str) -> tuple[str | None, str | None]:
    """Return VALUE and TZID of a line."""
    parameters: dict[str, str] = {}
    for item in text.split(";")[1:]:
        key, _, value = item.partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':  # a parameter value may be quoted
            value = value[1:-1]
        if key.upper() not in ("VALUE", "TZID") or not value or key.upper() in parameters:
            raise Fault(f"{name} takes VALUE and TZID once each, not {item[:40]!r}")
        parameters[key.upper()] = value
    kind, tzid = parameters.get("VALUE", "").upper() or None, parameters.get("TZID")
    if kind not in (None, "DATE", "DATE-TIME"):
        raise Fault(f"{name};VALUE={kind[:20]} is not supported: a run has a start and no length; use DATE-TIME")
    if tzid is not None and tzid not in zone_names():
        raise Fault(f"{name}: TZID={tzid[:64]} is not the name of an IANA time zone")
    if kind == "DATE" and tzid is not None:
        raise Fault(f"{name}: a VALUE=DATE has no TZID")
    return kind, tzid


def _stamp(name: str, kind: str | None, tzid: str | None, text: str) -> Stamp:
    stamp = read_stamp(name, text.upper())
    if (stamp.form is Form.DATE) != (kind == "DATE"):
        expected = "a date such as 20261231" if kind == "DATE" else "a date and time; for dates write VALUE=DATE"
        raise Fault(f"{name} takes {expected}, not {text[:40]}")
    if tzid is not None and stamp.form is Form.UTC:
        raise Fault(f"{name}: {text} is already UTC (Z); remove TZID or the Z")
    return Stamp(stamp.form, stamp.value, tzid)
