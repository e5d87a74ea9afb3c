"""Weekdays, days of a month, months and times of day, as one says them."""

from collections.abc import Iterable, Sequence

from scheduler.api.console.formatting import listed, ordinal

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")
_WORKDAYS, _WEEKEND = {0, 1, 2, 3, 4}, {5, 6}
_MOST_TIMES = 6  # beyond, a list says less than a number


def all_workdays(days: Iterable[int]) -> bool:
    """Tell whether these are Monday to Friday."""
    return set(days) == _WORKDAYS


def weekdays(days: Iterable[int], *, one: bool = False) -> str:
    """Say weekdays, Monday being 0: Fridays; weekdays; Mondays and Thursdays; with `one`: Monday or Friday."""
    chosen = sorted(set(days))
    if one:
        return " or ".join(WEEKDAYS[day] for day in chosen)
    if len(chosen) == len(WEEKDAYS):
        return "every day"
    if all_workdays(chosen):
        return "weekdays"
    if set(chosen) == _WEEKEND:
        return "weekends"
    return listed([f"{WEEKDAYS[day]}s" for day in chosen])


def nth_weekdays(days: Sequence[tuple[int, int]]) -> str:
    """Say weekdays with their place: the last Friday; the 1st and 3rd Monday."""
    places: dict[int, list[int]] = {}
    for nth, day in days:
        places.setdefault(day, []).append(nth)
    said = []
    for day, nths in sorted(places.items()):
        if 0 in nths:
            said.append(f"every {WEEKDAYS[day]}")
        else:
            said.append(
                f"the {listed([ordinal(nth) for nth in sorted(nths, key=_first_to_last)])} {WEEKDAYS[day]}"
            )
    return listed(said)


def days_of_month(days: Iterable[int]) -> str:
    """Say days of a month: 1st and 15th; last day."""
    said = [f"{ordinal(day)} day" if day < 0 else ordinal(day) for day in sorted(days, key=_first_to_last)]
    return listed(said)


def months(chosen: Iterable[int]) -> str:
    """Say months, January being 1."""
    return listed([MONTHS[month - 1] for month in chosen])


def clock_times(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    """Say times of day: at 09:00 and 17:30."""
    times = [(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
    if len(times) > _MOST_TIMES:
        return f"at {len(times)} times a day"
    return "at " + listed([f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
                           for hour, minute, second in times])


def _first_to_last(place: int) -> tuple[bool, int]:
    return place < 0, place
