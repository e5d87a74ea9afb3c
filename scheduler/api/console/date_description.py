"""Describe weekdays, days of a month, months and times of day in English."""

from collections.abc import Iterable, Sequence

from scheduler.api.console.formatting import join_words, ordinal

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")
_WORKDAYS, _WEEKEND = {0, 1, 2, 3, 4}, {5, 6}
_MAX_TIMES = 6  # above it, a number is clearer than a list


def all_workdays(days: Iterable[int]) -> bool:
    """Return whether these are Monday to Friday."""
    return set(days) == _WORKDAYS


def weekdays(days: Iterable[int], *, one: bool = False) -> str:
    """Describe weekdays (Monday is 0): Fridays; weekdays; Mondays and Thursdays. With `one`: Monday or Friday."""
    chosen = sorted(set(days))
    if one:
        return " or ".join(WEEKDAYS[day] for day in chosen)
    if len(chosen) == len(WEEKDAYS):
        return "every day"
    if all_workdays(chosen):
        return "weekdays"
    if set(chosen) == _WEEKEND:
        return "weekends"
    return join_words([f"{WEEKDAYS[day]}s" for day in chosen])


def nth_weekdays(days: Sequence[tuple[int, int]]) -> str:
    """Describe weekdays with ordinals: the last Friday; the 1st and 3rd Monday."""
    ordinals: dict[int, list[int]] = {}
    for nth, day in days:
        ordinals.setdefault(day, []).append(nth)
    texts = []
    for day, nths in sorted(ordinals.items()):
        if 0 in nths:
            texts.append(f"every {WEEKDAYS[day]}")
        else:
            texts.append(
                f"the {join_words([ordinal(nth) for nth in sorted(nths, key=_first_to_last)])} {WEEKDAYS[day]}"
            )
    return join_words(texts)


def days_of_month(days: Iterable[int]) -> str:
    """Describe days of a month: 1st and 15th; last day."""
    texts = [f"{ordinal(day)} day" if day < 0 else ordinal(day) for day in sorted(days, key=_first_to_last)]
    return join_words(texts)


def months(chosen: Iterable[int]) -> str:
    """Describe months (January is 1)."""
    return join_words([MONTHS[month - 1] for month in chosen])


def clock_times(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    """Describe times of day: at 09:00 and 17:30."""
    times = [(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
    if len(times) > _MAX_TIMES:
        return f"at {len(times)} times a day"
    return "at " + join_words([f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")
                           for hour, minute, second in times])


def _first_to_last(position: int) -> tuple[bool, int]:
    return position < 0, position
