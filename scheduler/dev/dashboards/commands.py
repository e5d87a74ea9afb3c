"""The row about the commands that workers run."""

from scheduler.dev.dashboards.panels import BLUE, GREEN, RED, Json, graph, query, row, stat

_ME = 'instance=~"$instance"'


def _time(share: float) -> Json:
    buckets = f"sum by (command, le) (rate(scheduler_command_seconds_bucket{{{_ME}}}[$__rate_interval]))"
    return query(f"histogram_quantile({share}, {buckets})", f"{{{{command}}}} p{round(share * 100)}")


def lines() -> list[tuple[int, list[Json]]]:
    """Return the lines of the row."""
    running = stat(
        "Commands at work",
        f"sum(scheduler_commands_running{{{_ME}}})",
        "In all workers, at this moment.",
        unit="short",
        decimals=0,
        steps=(BLUE,),
    )
    not_offered = stat(
        "Not offered",
        f"sum(increase(scheduler_commands_unoffered_total{{{_ME}}}[5m]))",
        "Events of the last five minutes whose command no worker offers: scheduler job show ID names it.",
        unit="short",
        decimals=0,
        steps=(GREEN, 1, RED),
    )
    began = graph(
        "Commands begun",
        [query(f"sum by (command) (rate(scheduler_commands_taken_total{{{_ME}}}[$__rate_interval]))",
               "{{command}}")],
        "By the names in the workers' own files.",
        unit="ops",
        stack=True,
    )
    ended = graph(
        "Commands ended",
        [query(f"sum by (command, outcome) (rate(scheduler_commands_ended_total{{{_ME}}}[$__rate_interval]))",
               "{{command}} {{outcome}}")],
        "snoozed: its worker was stopped; superseded: ended because the run had been given to another worker.",
        unit="ops",
        stack=True,
    )
    time = graph(
        "Command time", [_time(0.5), _time(0.99)], "From a command's start to its end.", unit="s", log=True, fill=0
    )
    return [(1, [row("Commands")]), (5, [running, not_offered]), (8, [began, ended, time])]
