"""Resolve the schedule fields of a request to a stored spec, or reject them with every problem."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from scheduler.domain.errors import Problem, Rejected
from scheduler.domain.recurrence.build_walls import NothingChosen
from scheduler.domain.recurrence.cron import read_cron
from scheduler.domain.recurrence.day_masks import DAY, END_OF_TIME
from scheduler.domain.recurrence.moment import Moment, plain_instant, read_duration, read_moment
from scheduler.domain.recurrence.never_fires import (
    CENTURY,
    NOTHING_CHOSEN,
    cron_never_fires_reason,
    never_fires_reason,
)
from scheduler.domain.recurrence.rfc5545_stamp import Fault, Form, Stamp
from scheduler.domain.recurrence.rrule_text import RuleText, SyntaxFaults, read_text
from scheduler.domain.recurrence.rule import Freq, Rule
from scheduler.domain.recurrence.schedule import Recurring, TooFar, nth_instant, to_instant, to_seconds
from scheduler.domain.recurrence.spec import (
    Spec,
    StartSource,
    compile_schedule,
    local_text,
    rule_schedule,
    wall_seconds,
)
from scheduler.domain.recurrence.subdaily import Steps
from scheduler.domain.recurrence.wall_times import Between
from scheduler.domain.recurrence.zones import Clock, clock, unknown_zone

RUN_NOW = "now"  # a run_at: the instant at which the request is stored
ALL_EXCLUDED = "never fires: EXDATE excludes every occurrence of the rule"
_MILLENNIUM = 365_250  # days
# Years to count for the last run by COUNT; a rule whose last run is later counts as endless.
_YEARS = 600
_YEARS_BY_TIME = 250  # for hourly, minutely and secondly rules
_YEARS_BY_DAYS = 30  # for rules that are counted day by day
# Runs to step through after the counted years.
_STEPS = 500
_STEPS_BY_TIME = 100


@dataclass(frozen=True, slots=True)
class _Request:
    """The fields as sent."""

    run_at: str | None
    rrule: str | None
    cron: str | None
    every: str | float | None
    timezone: str | None


@dataclass(slots=True)
class _Fields:
    """The parsed fields and their problems."""

    problems: list[Problem]
    moment: Moment | None = None
    text: RuleText | None = None
    every: timedelta | None = None
    local: Clock | None = None

    def fault(self, field: str, *problems: str) -> None:
        """Add problems of a field."""
        self.problems.extend(Problem(field, problem) for problem in problems)


def resolve(
    *,
    run_at: str | None,
    rrule: str | None,
    cron: str | None,
    every: str | float | None,
    timezone: str | None,
    stored_at: datetime,
    keep_wall: bool = False,
) -> Spec:
    """Return the spec of a request's schedule fields. Raises Rejected with every problem, by field.

    A one-shot has the wall time of its run_at as `dtstart`; in UTC only with `keep_wall`, which a calendar needs.
    """
    if run_at is not None and rrule is None and cron is None and every is None and timezone in (None, "UTC"):
        spec = plain_one_shot(run_at)
        if spec is not None:
            return spec
    request = _Request(run_at, rrule, cron, every, timezone)
    fields = _read(request)
    if fields.moment is not None and fields.moment.zone is not None:
        request = _with_suffix(request, fields, fields.moment.zone)
    _check_combination(request, fields)
    local = fields.local
    if fields.problems or local is None:
        raise Rejected(fields.problems)
    source = _start_source(request, fields)
    spec = Spec(rrule, cron, fields.every, local.name, None, stored_at.astimezone(UTC), None, source)
    field = "run_at"
    try:
        spec = _start(spec, fields, local)
        if spec.one_shot and (keep_wall or local.name != "UTC"):
            spec = replace(spec, dtstart=_named_wall(fields.moment))
        field = "cron" if cron is not None else "rrule"
        return _validate(spec, fields, local)
    except Fault as fault:
        raise Rejected([Problem(field, str(fault))]) from None


def plain_one_shot(run_at: str) -> Spec | None:
    """Return the spec of a one-shot at an instant in the usual format, which needs no checks; else None."""
    instant = plain_instant(run_at)
    return None if instant is None else Spec(None, None, None, "UTC", None, instant, None)


def _named_wall(moment: Moment | None) -> datetime | None:
    """Return the wall time of a run_at without an offset."""
    return moment.wall if moment is not None and moment.offset is None else None


def _start_source(request: _Request, fields: _Fields) -> str | None:
    if request.run_at == RUN_NOW:
        return StartSource.NOW.value
    if request.rrule is None and request.cron is None and request.every is None:
        return None
    given = fields.moment is not None or (fields.text is not None and fields.text.dtstart is not None)
    return (StartSource.RUN_AT if given else StartSource.STORED).value


def _read(request: _Request) -> _Fields:
    """Parse each field separately."""
    fields = _Fields([])
    try:
        fields.local = clock("UTC" if request.timezone is None else request.timezone)
    except KeyError:
        fields.fault("timezone", unknown_zone(request.timezone or ""))
    try:
        fields.moment = None if request.run_at in (None, RUN_NOW) else read_moment(request.run_at)
    except Fault as fault:
        fields.fault("run_at", str(fault))
    try:
        fields.text = None if request.rrule is None else read_text(request.rrule)
    except SyntaxFaults as faulty:
        fields.fault("rrule", *faulty.faults)
    try:
        if request.cron is not None:
            read_cron(request.cron)
    except SyntaxFaults as faulty:
        fields.fault("cron", *faulty.faults)
    try:
        fields.every = None if request.every is None else read_duration(request.every)
    except Fault as fault:
        fields.fault("every", str(fault))
    return fields


def _with_suffix(request: _Request, fields: _Fields, zone: str) -> _Request:
    """Use the zone in a suffix of run_at as the timezone."""
    if request.timezone not in (None, zone):
        fields.fault("timezone", f"run_at says {zone}: remove timezone or give the same")
        return request
    fields.local = clock(zone)
    return replace(request, timezone=zone)


def _check_combination(request: _Request, fields: _Fields) -> None:
    """Check the combination of fields; a DTSTART line replaces run_at and timezone."""
    given = [name for name in ("rrule", "cron", "every") if getattr(request, name) is not None]
    if len(given) > 1:
        for name in given:
            fields.fault(name, f"give at most one of {', '.join(given)}")
    if not given and request.run_at is None:
        fields.fault("run_at", "is required when there is no rrule, cron or every; a job without a schedule has "
                     "manual: true")
    if fields.text is None:
        return
    start = fields.text.dtstart
    if start is not None:
        name = dtstart_zone(start, request.timezone)
        if request.timezone not in (None, name):
            fields.fault("timezone", f"the DTSTART line in rrule says {name}: remove timezone or give the same")
        if name != request.timezone:
            fields.local = clock(name)
        differs = fields.local is not None and not _same_start(start, fields.moment, fields.local)
        if differs or request.run_at == RUN_NOW:
            fields.fault("run_at", "the DTSTART line in rrule differs: remove run_at or give the same")
    if fields.local is not None:
        _floating(fields, fields.text.rdates, fields.local)


def dtstart_zone(start: Stamp, timezone: str | None) -> str:
    """Return the zone of a rule with a DTSTART line; without one it is the timezone field."""
    if start.tzid is not None or start.form is Form.UTC or timezone is None:
        return start.tzid or "UTC"
    return timezone


def _same_start(start: Stamp, moment: Moment | None, local: Clock) -> bool:
    """Return whether `run_at`, if given, equals the DTSTART line."""
    if moment is None:
        return True
    wall = _wall(start)
    if moment.offset is None:
        return moment.wall.microsecond == 0 and wall_seconds(moment.wall) == wall
    try:
        return to_seconds(moment.instant()) == (local.to_utc(wall), 0)
    except OverflowError:
        return False


def _wall(stamp: Stamp) -> int:
    return stamp.value * DAY if stamp.form is Form.DATE else stamp.value


def _floating(fields: _Fields, rdates: tuple[Stamp, ...], local: Clock) -> None:
    """Reject an RDATE without a zone if the rule's zone is not UTC, because it is ambiguous."""
    if local.fixed != 0 and any(stamp.form is Form.WALL and not stamp.tzid for stamp in rdates):
        hint = f"write RDATE;TZID={local.name}:… for local time or RDATE:…Z for UTC"
        fields.fault("rrule", f"RDATE without a zone while the rule follows {local.name}: {hint}")


def _start(spec: Spec, fields: _Fields, local: Clock) -> Spec:
    """Return the spec with its start."""
    text, moment = fields.text, fields.moment
    if text is not None and text.dtstart is not None:
        return _at_wall(spec, local, _wall(text.dtstart), 0)
    if moment is not None and moment.offset is None:
        return _at_wall(spec, local, wall_seconds(moment.wall), moment.wall.microsecond)
    try:
        instant = spec.starts_at if moment is None else moment.instant()
        if moment is None and text is not None and instant.microsecond:
            instant = instant.replace(microsecond=0) + timedelta(seconds=1)
    except OverflowError:
        raise Fault("the start is outside the years 1 to 9999") from None
    seconds, micro = to_seconds(instant)
    return _with_start(spec, seconds + local.offset(seconds), instant, micro)


def _at_wall(spec: Spec, local: Clock, wall: int, micro: int) -> Spec:
    seconds = local.to_utc(wall)
    if not DAY <= seconds < END_OF_TIME:
        raise Fault("the start is outside the years 1 to 9999")
    return _with_start(spec, wall, to_instant(seconds, micro), micro)


def _with_start(spec: Spec, wall: int, instant: datetime, micro: int) -> Spec:
    if spec.rrule is None and spec.cron is None:
        return replace(spec, starts_at=instant)
    if not DAY <= wall < END_OF_TIME:
        raise Fault("the start is outside the years 1 to 9999")
    if spec.rrule is None:
        return replace(spec, starts_at=instant)
    return replace(spec, starts_at=instant, dtstart=to_instant(wall, micro).replace(tzinfo=None))


def _validate(spec: Spec, fields: _Fields, local: Clock) -> Spec:
    """Reject a schedule that does not fire within a century; convert COUNT to a last instant."""
    start = to_seconds(spec.starts_at)[0]
    if spec.cron is not None:
        schedule = compile_schedule(spec)
        if isinstance(schedule, Recurring) and schedule.next_within(start, start + CENTURY) is None:
            raise Fault(cron_never_fires_reason(read_cron(spec.cron)))
    if fields.text is None:
        return spec
    bare = replace(fields.text, rdates=(), exdates=())
    try:
        rule = rule_schedule(spec, local_text(bare, local))
        whole = rule_schedule(spec, local_text(fields.text, local))
    except NothingChosen:
        raise Fault(NOTHING_CHOSEN) from None
    fires = rule.next_within(start, start + CENTURY) is not None
    if fires and bare.rule.count is not None:
        spec = replace(spec, ends_at=_last_by_count(rule, bare.rule, bare.rule.count))
        whole = rule_schedule(spec, local_text(fields.text, local))
    if whole.next_within(start, start + CENTURY) is None:
        raise Fault(ALL_EXCLUDED if fires else never_fires_reason(bare.rule, spec.dtstart, rule, start))
    return spec


def _last_by_count(schedule: Recurring, rule: Rule, count: int) -> datetime | None:
    """Return the last instant by COUNT; None if it is so far ahead that the rule counts as endless."""
    if count > _most_a_day(rule) * _MILLENNIUM:
        return None
    years, steps = _YEARS, _STEPS
    if rule.freq > Freq.DAILY:
        years, steps = _YEARS_BY_DAYS if _slow_to_count(schedule) else _YEARS_BY_TIME, _STEPS_BY_TIME
    try:
        return nth_instant(schedule, count, years, steps)
    except TooFar as far:
        if far.seconds >= CENTURY:
            return None
        raise Fault(f"the last run by COUNT={count} takes too long to compute for this rule: use UNTIL") from None


def _slow_to_count(schedule: Recurring) -> bool:
    walls = schedule.timeline.walls
    return isinstance(walls, Between) and isinstance(walls.walls, Steps) and walls.walls.slow_to_count


def _most_a_day(rule: Rule) -> int:
    """Return an upper bound of the runs per day."""
    seconds, minutes = len(rule.bysecond) or 1, len(rule.byminute) or 1
    if rule.freq <= Freq.DAILY:
        return (len(rule.byhour) or 1) * minutes * seconds
    if rule.freq == Freq.HOURLY:
        return (24 // rule.interval + 1) * minutes * seconds
    return 1_440 // rule.interval * seconds + seconds if rule.freq == Freq.MINUTELY else DAY // rule.interval + 1
