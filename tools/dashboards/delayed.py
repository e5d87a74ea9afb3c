"""Overview row for delayed messages: pending, stored and emitted messages, and their lag."""

from tools.dashboards.panels import BLUE, GREEN, RED, Json, graph, query, row, stat

_ME = 'instance=~"$instance"'


def rows() -> list[tuple[int, list[Json]]]:
    """Return the panels of the row Delayed messages."""
    pending = stat(
        "Pending delayed messages", "max(scheduler_delayed_messages)",
        "Stored and not yet due: scheduler delayed list.", unit="short", decimals=0, steps=(BLUE,),
    )
    dead = stat(
        "Dead delayed messages", f"sum(increase(scheduler_delayed_dead_total{{{_ME}}}[$__range]))",
        "No queue accepted them for an hour. They are in scheduler_dead. Bind a queue to the exit exchange.",
        unit="short", decimals=0, steps=(GREEN, 1, RED),
    )
    flow = graph(
        "Delayed messages in and out",
        [_rate("scheduler_delayed_in_total", "in"), _rate("scheduler_delayed_out_total", "out"),
         query(f"sum by (reason) (rate(scheduler_delayed_dropped_total{{{_ME}}}[$__rate_interval]))",
               "{{reason}}")],
        "Stored, emitted, and dropped as a duplicate or because it was cancelled.", unit="ops",
    )
    lag = graph(
        "Lag of delayed messages", [_lag(0.5), _lag(0.99)],
        "From a message's due time to the broker's confirm.", unit="s", log=True, fill=0,
    )
    return [(1, [row("Delayed messages")]), (8, [pending, dead, flow, lag])]


def _rate(metric: str, legend: str) -> Json:
    return query(f"sum(rate({metric}{{{_ME}}}[$__rate_interval]))", legend)


def _lag(share: float) -> Json:
    buckets = f"sum by (le) (rate(scheduler_delayed_lag_seconds_bucket{{{_ME}}}[$__rate_interval]))"
    return query(f"histogram_quantile({share}, {buckets})", f"p{round(share * 100)}")
