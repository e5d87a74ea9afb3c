"""Overview row for commands that workers run."""

from tools.dashboards.panels import BLUE, GREEN, RED, Json, graph, query, row, stat

_ME = 'instance=~"$instance"'


def _time(share: float) -> Json:
    buckets = f"sum by (command, le) (rate(scheduler_command_seconds_bucket{{{_ME}}}[$__rate_interval]))"
    return query(f"histogram_quantile({share}, {buckets})", f"{{{{command}}}} p{round(share * 100)}")


def lines() -> list[tuple[int, list[Json]]]:
    """Return the panels of the row Commands."""
    running = stat(
        "Running commands",
        f"sum(scheduler_commands_running{{{_ME}}})",
        "In all workers.",
        unit="short",
        decimals=0,
        steps=(BLUE,),
    )
    not_offered = stat(
        "Not offered",
        f"sum(increase(scheduler_commands_unoffered_total{{{_ME}}}[5m]))",
        "Events in the last five minutes with a command that no worker offers. scheduler job show ID names it.",
        unit="short",
        decimals=0,
        steps=(GREEN, 1, RED),
    )
    started = graph(
        "Commands started",
        [query(f"sum by (command) (rate(scheduler_commands_taken_total{{{_ME}}}[$__rate_interval]))",
               "{{command}}")],
        "By the command names in the workers' files.",
        unit="ops",
        stack=True,
    )
    finished = graph(
        "Commands finished",
        [query(f"sum by (command, outcome) (rate(scheduler_commands_ended_total{{{_ME}}}[$__rate_interval]))",
               "{{command}} {{outcome}}")],
        "snoozed: the worker was stopped. superseded: terminated because another worker has the run.",
        unit="ops",
        stack=True,
    )
    time = graph(
        "Command time", [_time(0.5), _time(0.99)], "From a command's start to its end.", unit="s", log=True, fill=0
    )
    return [(1, [row("Commands")]), (5, [running, not_offered]), (8, [started, finished, time])]
