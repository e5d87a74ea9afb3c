"""The load of the coming seven days by hour: how many occurrences the pending jobs will have."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from scheduler.domain.calendars import EffectiveCalendar
from scheduler.domain.jobs.adjusted import planner_of
from scheduler.domain.jobs.job import Job
from scheduler.domain.recurrence import compile_schedule
from scheduler.postgres.effective_calendars import TenantCalendar
from scheduler.postgres.jobs.load_rows import LoadRows

HOURS = 7 * 24
_HOUR = timedelta(hours=1)
_MICRO = timedelta(microseconds=1)
_HOUR_MICROS = _HOUR // _MICRO
_MAX_STEPS = 40_000  # of all jobs; an occurrence of a rule takes as long as `_RULE_STEPS` hours of an interval
_RULE_STEPS = 20
_MAX_OF_RULE = 200  # occurrences of one rule; the rest of the week goes on at the same rate


class JobLoad(NamedTuple):
    """One job, and its occurrences by hour."""

    id: str
    name: str | None
    job_type: str
    tenant: str
    hours: Mapping[int, float]  # only hours with occurrences


@dataclass(frozen=True, slots=True)
class Load:
    """Occurrences by hour from `start` on; each job stands for `scale` jobs."""

    start: datetime
    jobs: Sequence[JobLoad]
    scale: float
    exact: bool
    hours: Sequence[int]  # of all jobs
    types: Sequence[tuple[str, int]]  # those with the most occurrences first
    tenants: Sequence[tuple[str, int]]

    def of_hour(self, hour: int) -> list[tuple[JobLoad, int]]:
        """Return the jobs with occurrences in an hour, those with the most first."""
        found = [(job, round(job.hours[hour])) for job in self.jobs if hour in job.hours]
        return sorted(found, key=lambda pair: -pair[1])

    def largest(self, by: str, hour: int) -> list[tuple[str, int]]:
        """Return the types or tenants with the most occurrences in an hour."""
        totals: dict[str, float] = defaultdict(float)
        for job in self.jobs:
            totals[getattr(job, by)] += job.hours.get(hour, 0)
        return _ranked(totals, self.scale)


def compute_load(rows: LoadRows, start: datetime) -> Load:
    """Return the load from an hour on, within a limited number of steps."""
    jobs = list(rows.jobs)
    random.Random(7).shuffle(jobs)  # noqa: S311 - if the steps do not suffice for all, those computed are typical
    loads: list[JobLoad] = []
    exact, steps = rows.scale == 1, 0
    for job in jobs:
        if steps >= _MAX_STEPS:
            exact = False
            break
        hours, whole, taken = _hours_of(job, rows.calendars, start)
        steps += taken
        exact = exact and whole
        about = job.requested
        loads.append(JobLoad(job.id, about.name, about.job_type, job.tenant, hours))
    return _summed(start, loads, rows.scale * len(jobs) / max(len(loads), 1), exact=exact)


def _summed(start: datetime, jobs: Sequence[JobLoad], scale: float, *, exact: bool) -> Load:
    hours = [0.0] * HOURS
    types: dict[str, float] = defaultdict(float)
    tenants: dict[str, float] = defaultdict(float)
    for job in jobs:
        for hour, number in job.hours.items():
            hours[hour] += number
        total = sum(job.hours.values())
        types[job.job_type] += total
        tenants[job.tenant] += total
    return Load(start, jobs, scale, exact, [round(scale * number) for number in hours], _ranked(types, scale),
                _ranked(tenants, scale))


def _ranked(totals: Mapping[str, float], scale: float) -> list[tuple[str, int]]:
    ranked = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(name, round(scale * number)) for name, number in ranked if number > 0]


def _hours_of(
    job: Job, calendars: Mapping[TenantCalendar, EffectiveCalendar], start: datetime
) -> tuple[Mapping[int, float], bool, int]:
    """Return the occurrences by hour, whether they are exact, and the steps taken."""
    spec = job.requested.spec
    if job.next_run_at is None:
        return {}, True, 1
    if spec.every is not None and not spec.adjusted:
        hours = _of_interval((job.next_run_at - start) // _MICRO, spec.every // _MICRO)
        return hours, True, len(hours) + 1
    hours = defaultdict(float)
    number, last = 0, job.next_run_at
    for instant in islice(_instants(job, calendars), _MAX_OF_RULE):
        hour = max(0, (instant - start) // _HOUR)
        if hour >= HOURS:
            return hours, True, number * _RULE_STEPS + 1
        hours[hour] += 1
        number, last = number + 1, instant
    if number < _MAX_OF_RULE:
        return hours, True, number * _RULE_STEPS + 1
    rate = number / max((last - job.next_run_at) / _HOUR, 1e-6)
    hours |= dict.fromkeys(range(max(0, (last - start) // _HOUR), HOURS), rate)
    return hours, False, number * _RULE_STEPS


def _instants(job: Job, calendars: Mapping[TenantCalendar, EffectiveCalendar]) -> Iterator[datetime]:
    """Yield the due times of a job, from its next run on."""
    spec, following = job.requested.spec, job.next_run_at
    assert following is not None  # noqa: S101 - the caller checked it
    effective = None if spec.calendar is None else calendars.get(TenantCalendar(job.tenant, spec.calendar))
    if spec.adjusted and (spec.calendar is None or effective is not None):
        planned = planner_of(job, spec, effective).after(following)
        later: Iterable[datetime] = (occurrence.due_at for occurrence in planned)
    else:
        later = compile_schedule(spec).after(following)
    yield following
    yield from (instant for instant in later if instant > following)


def _of_interval(first: int, step: int) -> Mapping[int, float]:
    """Count first, first + step and so on by hour, in microseconds after the start; a late one counts once."""
    hours: dict[int, float] = {}
    if first < 0:
        hours[0] = 1.0
        first += -(first // step) * step
    if step >= _HOUR_MICROS:
        for instant in range(first, HOURS * _HOUR_MICROS, step):
            hours[instant // _HOUR_MICROS] = hours.get(instant // _HOUR_MICROS, 0.0) + 1
        return hours
    for hour in range(first // _HOUR_MICROS, HOURS):
        begins, ends = hour * _HOUR_MICROS - first, (hour + 1) * _HOUR_MICROS - first
        hours[hour] = hours.get(hour, 0.0) - (-ends // step) + min(0, -begins // step)
    return hours
