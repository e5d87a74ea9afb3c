"""Draw docs/recurrence/*.svg from what the planner gives, readable in light and dark themes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from scheduler.domain.recurrence import resolve
from scheduler.domain.recurrence.adjustment_fields import read_adjustments
from scheduler.domain.recurrence.planner import Adjustments, Planner
from scheduler.domain.recurrence.zone_data import PACKAGED, ZoneData
from scheduler.domain.recurrence.zones import Clock, clock_in

FOLDER = Path(__file__).parents[1] / "docs" / "recurrence"
WIDTH, LEFT, RIGHT, TOP, LANE = 860, 170, 20, 52, 58
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px; fill: #59636e }
.axis, .tick { stroke: #d1d9e0 } .closed { fill: #d1242f; opacity: .13 } .open { fill: #1a7f37; opacity: .14 }
.nominal { fill: none; stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 3 2 } .due { fill: #0969da }
.move { stroke: #0969da; stroke-width: 1.5; fill: none; marker-end: url(#tip) } .tip { fill: #0969da }
.none { stroke: #d1242f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .axis, .tick { stroke: #3d444d } .nominal { stroke: #9198a1 }
  .closed { fill: #f85149; opacity: .22 } .open { fill: #3fb950; opacity: .2 }
  .due, .tip { fill: #58a6ff } .move { stroke: #58a6ff } .none { stroke: #f85149 }
}"""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0L6 3L0 6z"/></marker></defs>'
)

Instants = Sequence[tuple[datetime, datetime | None]]  # nominal_at and due_at; None: not emitted


@dataclass
class Picture:
    """Lanes of occurrences over a span of time."""

    title: str
    start: datetime
    end: datetime
    ticks: Mapping[datetime, str]
    lanes: list[tuple[str, str, Instants]] = field(default_factory=list)  # label, note, occurrences
    bands: list[tuple[datetime, datetime, str, str]] = field(default_factory=list)  # with class and label

    def svg(self) -> str:
        """Return the picture as SVG."""
        height = TOP + LANE * len(self.lanes) + 14
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>",
            TIP,
        ]
        for first, last, kind, label in self.bands:
            left, right = self._x(max(first, self.start)), self._x(min(last, self.end))
            caption = _text((left + right) / 2, TOP + 4, label, "small", "middle")
            parts.append(f'<rect class="{kind}" x="{left}" y="{TOP - 8}" width="{right - left:.1f}" '
                         f'height="{height - TOP}"/>{caption}')
        for at, label in self.ticks.items():
            x = self._x(at)
            parts.append(f'<path class="tick" d="M{x} {TOP - 14}V{height - 10}"/>'
                         f'{_text(x, TOP - 20, label, "small", "middle")}')
        for number, lane in enumerate(self.lanes):
            parts += self._lane(TOP + LANE * number + 34, *lane)
        return "\n".join([*parts, "</svg>", ""])

    def _lane(self, y: int, label: str, note: str, instants: Instants) -> list[str]:
        parts = [
            f'<path class="axis" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>', _text(8, y, label),
            _text(8, y + 15, note, "small"),
        ]
        for nominal, due in instants:
            x = self._x(nominal)
            if due is None:
                parts.append(f'<path class="none" d="M{x - 5} {y - 5}l10 10m0 -10l-10 10"/>')
                continue
            if due != nominal:
                to, tip = self._x(due), -8 if due > nominal else 8
                parts.append(f'<circle class="nominal" cx="{x}" cy="{y}" r="5"/><path class="move" '
                             f'd="M{x} {y - 6}Q{(x + to) / 2:.1f} {y - 22} {to + tip / 2:.1f} {y - 7}"/>')
            parts.append(f'<circle class="due" cx="{self._x(due)}" cy="{y}" r="5"/>')
        return parts

    def _x(self, at: datetime) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * ((at - self.start) / (self.end - self.start)), 1)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def utc(text: str) -> datetime:
    """Return an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def instants(start: datetime, end: datetime, local: Clock | None = None, /, **fields: Any) -> Instants:
    """Return the occurrences of a request's schedule fields, moved and merged ones too."""
    adjustments = read_adjustments(fields) or Adjustments()
    given = {name: fields.get(name) for name in ("run_at", "rrule", "cron", "every", "timezone")}
    planner = Planner(resolve(**given, stored_at=start, keep_wall=True), adjustments, None, local)
    nominals = takewhile(lambda at: at < end, planner.schedule.since(start))
    return [(at, planner.planned_of(at)) for at in nominals]


def holiday() -> Picture:
    """A yearly and weekly job over Christmas, for each value of on_closed."""
    start, end = utc("2026-12-23T00:00"), utc("2026-12-30T00:00")
    days = [start + timedelta(days=number) for number in range(7)]
    calendar = {"weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"}}
    picture = Picture("A weekly job on Christmas Day, for each on_closed", start, end,
                      {day + timedelta(hours=12): f"{day:%a} {day.day} {day:%b}" for day in days})
    picture.bands = [(days[2], days[3], "closed", "Christmas Day"), (days[3], days[5], "closed", "weekend")]
    notes = {"skip": "not emitted", "previous": "on Thursday", "nearest": "the closer one", "next": "on Monday",
             "next_in_month": "on Monday, in December"}
    for policy, note in notes.items():
        fields = {"rrule": "FREQ=WEEKLY;COUNT=1", "run_at": "2026-12-25T09:00:00", "on_closed": policy}
        friday = instants(days[2], end, calendar=calendar, **fields)
        picture.lanes.append((policy, note, friday))
    return picture


def window() -> Picture:
    """Jobs with a window at night."""
    start, end = utc("2026-12-07T12:00"), utc("2026-12-09T12:00")
    night = {"from": "22:00", "to": "06:00"}
    picture = Picture("A window from 22:00 to 06:00", start, end,
                      {at: f"{at:%a %H:%M}" for at in (start + timedelta(hours=6 * n) for n in range(1, 8))})
    picture.bands = [(utc(f"2026-12-0{day}T22:00"), utc(f"2026-12-0{day + 1}T06:00"), "open", "open")
                     for day in (7, 8)]
    schedules: dict[tuple[str, str], dict[str, Any]] = {
        ("daily at 15:00", "waits until 22:00"): {"rrule": "FREQ=DAILY", "run_at": "2026-12-07T15:00:00"},
        ("daily at 02:00", "inside: stays"): {"rrule": "FREQ=DAILY", "run_at": "2026-12-08T02:00:00"},
        ("every 4 hours", "by day merged at 22:00"): {"rrule": "FREQ=HOURLY;INTERVAL=4",
                                                      "run_at": "2026-12-07T14:00:00"},
    }
    picture.lanes = [(*label, instants(start, end - timedelta(hours=8), window=night, **fields))
                     for label, fields in schedules.items()]
    return picture


def spring() -> Picture:
    """A night in which 02:00 to 03:00 does not exist."""
    start, end = utc("2026-03-08T05:00"), utc("2026-03-08T11:00")
    walls = ("00:00", "01:00", "03:00", "04:00", "05:00", "06:00")
    hours = {start + timedelta(hours=number): wall for number, wall in enumerate(walls)}
    picture = Picture("8 March 2026 in New York: the clocks go from 02:00 to 03:00", start - timedelta(minutes=20),
                      end, hours)
    zone = "America/New_York"
    picture.bands = [(utc("2026-03-08T07:00"), utc("2026-03-08T07:03"), "closed", "02:00 to 03:00 is skipped")]
    schedules: dict[tuple[str, str], dict[str, Any]] = {
        ("rrule daily at 02:30", "runs at 03:30"): {"rrule": "FREQ=DAILY", "run_at": "2026-03-07T02:30:00"},
        ("cron 30 2 * * *", "runs at 03:00"): {"cron": "30 2 * * *"},
        ("cron */30 * * * *", "as the clock shows"): {"cron": "*/30 * * * *"},
        ("every PT1H", "elapsed time"): {"every": "PT1H", "run_at": "2026-03-08T00:15:00-05:00"},
    }
    for label, fields in schedules.items():
        picture.lanes.append((*label, instants(start, end, timezone=zone, **fields)))
    return picture


def replanned() -> Picture:
    """The instants of some jobs by two versions of the zone data."""
    zone, start, end = "America/Vancouver", utc("2026-12-07T13:00"), utc("2026-12-07T21:00")
    picture = Picture("7 December 2026 in Vancouver, by old rules (-08:00) and new ones (-07:00)", start, end,
                      {at: f"{at:%H:%M}Z" for at in (start + timedelta(hours=n) for n in range(1, 8))})
    rules = (ZoneData(name, "", {zone: PACKAGED.file(name)}) for name in ("Etc/GMT+8", "Etc/GMT+7"))
    old, new = (clock_in(data, zone) for data in rules)
    daily = {"cron": "0 9 * * *", "timezone": zone}
    office = {"window": {"from": "10:00", "to": "12:00"}, "run_at": "2026-12-07T15:00:00Z", "timezone": zone}
    fixed = {"run_at": "2026-12-07T17:30:00Z", "timezone": zone}
    schedules: dict[str, dict[str, Any]] = {
        "09:00 every day": daily, "window from 10:00": office, "run_at 17:30Z": fixed,
    }
    for label, fields in schedules.items():
        before, after = (instants(start, end, local, **fields) for local in (old, new))
        moves = [(first[1] or first[0], second[1]) for first, second in zip(before, after, strict=True)]
        note = "keeps its instant" if all(first == second for first, second in moves) else "keeps its wall time"
        picture.lanes.append((label, note, moves))
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "holiday.svg": holiday, "window.svg": window, "spring-forward.svg": spring, "replanned-zone.svg": replanned,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw().svg(), encoding="utf-8")
