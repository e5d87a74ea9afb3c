"""Overview dashboard: whether reminders are on time, and the cause if they are late."""

from tools.dashboards import commands, delayed, webhooks
from tools.dashboards.panels import (
    AMBER,
    BLUE,
    GREEN,
    RED,
    Json,
    dashboard,
    graph,
    heatmap,
    link_to,
    query,
    row,
    stat,
)

UID = "scheduler-overview"
_ME = 'instance=~"$instance"'
_BUCKETS = f"scheduler_due_lag_seconds_bucket{{{_ME}}}"


def _lag(share: float) -> Json:
    expression = f"histogram_quantile({share}, sum by (le) (rate({_BUCKETS}[$__rate_interval])))"
    return query(expression, f"p{round(share * 100)}")


def _rate(metric: str, legend: str) -> Json:
    return query(f"sum(rate({metric}{{{_ME}}}[$__rate_interval]))", legend)


def _by_reason(metric: str) -> Json:
    return query(f"sum by (reason) (rate({metric}{{{_ME}}}[$__rate_interval]))", "{{reason}}")


def _by(label: str, metric: str) -> Json:
    return query(f"sum by ({label}) (rate({metric}{{{_ME}}}[$__rate_interval]))", f"{{{{{label}}}}}")


def _run_time(share: float) -> Json:
    buckets = f"sum by (le) (rate(scheduler_run_seconds_bucket{{{_ME}}}[$__rate_interval]))"
    return query(f"histogram_quantile({share}, {buckets})", f"p{round(share * 100)}")


def _succeeded(window: str) -> str:
    inside = f'scheduler_runs_total{{status="succeeded", {_ME}}}'
    ended = f'scheduler_runs_total{{status=~"succeeded|dead", {_ME}}}'
    return f"sum(increase({inside}[{window}])) / (sum(increase({ended}[{window}])) > 0)"


def _on_time(window: str) -> str:
    inside = f'scheduler_due_lag_seconds_bucket{{le="0.5", {_ME}}}'
    everything = f"scheduler_due_lag_seconds_count{{{_ME}}}"
    return f"sum(increase({inside}[{window}])) / (sum(increase({everything}[{window}])) > 0)"


def build() -> Json:
    """Return the dashboard."""
    numbers = [
        stat(
            "On time",
            _on_time("$__range"),
            "Reminders emitted within 500 ms of their due time in the selected range. The objective is 99 %.",
            unit="percentunit",
            decimals=2,
            max=1,
            steps=(RED, 0.95, AMBER, 0.99, GREEN),
        ),
        stat(
            "Oldest due",
            "max(scheduler_oldest_due_age_seconds)",
            "Age of the oldest due reminder. Seconds are normal under load; a minute is not.",
            unit="s",
            decimals=1,
            steps=(GREEN, 10, AMBER, 60, RED),
        ),
        stat(
            "Backlog",
            "max(scheduler_backlog_jobs)",
            "Reminders that are due and not yet emitted; counted up to 100,000.",
            unit="short",
            decimals=0,
            steps=(GREEN, 1000, AMBER, 10000, RED),
        ),
        stat(
            "Pending",
            "max(scheduler_pending_jobs)",
            "Reminders that are not due yet (estimate).",
            unit="short",
            steps=(BLUE,),
        ),
        stat(
            "Dead letters",
            'sum(rabbitmq_detailed_queue_messages{queue="scheduler_dead"})',
            "Messages in scheduler_dead: rejected commands and dead runs.",
            unit="short",
            decimals=0,
            steps=(GREEN, 1, AMBER, 100, RED),
        ),
        stat(
            "Producers",
            'max(scheduler_replicas{role="producer"})',
            "Producers with a heartbeat.",
            unit="short",
            decimals=0,
            steps=(RED, 1, GREEN),
        ),
    ]
    lag = graph(
        "Lag: due to confirmed",
        [_lag(0.5), _lag(0.95), _lag(0.99)],
        "From due_at to the broker's confirm. The dashed line is the objective.",
        unit="s",
        log=True,
        fill=0,
        steps=(GREEN, 0.5, RED),
    )
    on_time = graph(
        "On time, against the objective",
        [query(_on_time("$__rate_interval"), "within 500 ms")],
        "The share within 500 ms; gaps are times without any reminder.",
        unit="percentunit",
        fill=0,
        max=1,
        steps=(RED, 0.99, GREEN),
    )
    spread = heatmap(
        "Lag distribution",
        f"sum by (le) (increase({_BUCKETS}[$__rate_interval]))",
        "Number of reminders by lag. A second band above the first is a slow replica or a restart.",
    )
    flow = graph(
        "In and out",
        [
            _rate("jobs_due_total", "due /s"),
            _rate("jobs_queued_total", "queued /s"),
            _rate("jobs_cancelled_total", "cancelled /s"),
            _rate("scheduler_jobs_missed_total", "missed /s"),
        ],
        "Emitted events, received requests and cancels, skipped occurrences.",
        unit="ops",
    )
    backlog = graph(
        "Backlog",
        [query("max(scheduler_backlog_jobs)", "due, not emitted")],
        "Due jobs that are not yet emitted.",
        unit="short",
        fill=20,
    )
    oldest = graph(
        "Oldest due",
        [query("max(scheduler_oldest_due_age_seconds)", "age")],
        "It grows by a second per second while nothing is emitted.",
        unit="s",
        fill=20,
    )
    refused = graph(
        "Rejected commands",
        [_by_reason("scheduler_commands_rejected_total")],
        "Commands sent to schedule.dead. The header x-rejected-reason has the cause.",
        unit="ops",
        stack=True,
    )
    failures = graph(
        "Publish failures",
        [_by_reason("scheduler_publish_failures_total")],
        "Events that reached no queue. Producers retry them.",
        unit="ops",
        stack=True,
    )
    queues = graph(
        "Queues",
        [
            query(
                "sum by (queue) (rabbitmq_detailed_queue_messages{"
                'queue=~"scheduler_inbox|scheduler_dead|mainapp_due"})',
                "{{queue}}",
            )
        ],
        "Messages for the sidecar (scheduler_inbox), the host (mainapp_due) and the operator (scheduler_dead).",
        unit="short",
    )
    lines = [
        (5, numbers),
        (9, [lag, on_time]),
        (9, [spread, flow]),
        (1, [row("Causes of lateness")]),
        (8, [backlog, oldest]),
        (8, [refused, failures, queues]),
        *_classes(),
        *_runs(),
        *delayed.rows(),
        *commands.lines(),
        *webhooks.rows(),
    ]
    description = "Are reminders on time, and if not, why?"
    return dashboard(UID, "Scheduler: overview", description, lines, link_to("scheduler-internals", "Internals"))


def _classes() -> list[tuple[int, list[Json]]]:
    """Return the panels of the row Priorities."""
    panels = [
        graph(
            "Backlog by class",
            [query("max by (class) (scheduler_backlog_class_jobs)", "{{class}}")],
            "Due and not yet emitted jobs, by priority class. Low may be delayed; high should not.",
            unit="short",
        ),
        graph(
            "Emitted by class",
            [_by("class", "scheduler_due_class_total")],
            "Emitted events. Under backlog each class with due jobs gets at least a tenth.",
            unit="short",
        ),
        graph(
            "Lag by class, p99",
            [query("histogram_quantile(0.99, sum by (class, le) "
                   f"(rate(scheduler_due_lag_class_seconds_bucket{{{_ME}}}[$__rate_interval])))", "{{class}}")],
            "Only jobs with a priority.",
            unit="s",
            log=True,
            fill=0,
        ),
    ]
    return [(1, [row("Priorities")]), (8, panels)]


def _runs() -> list[tuple[int, list[Json]]]:
    """Return the panels of the row Runs."""
    success = stat(
        "Successful runs",
        _succeeded("$__range"),
        "Share of finished runs in the selected time range, without cancelled ones.",
        unit="percentunit",
        decimals=2,
        max=1,
        steps=(RED, 0.9, AMBER, 0.99, GREEN),
    )
    counts = [
        stat(
            "Open runs",
            "max(scheduler_runs_open)",
            "Delivered, running, or waiting for a retry; counted up to 100,000.",
            unit="short",
            decimals=0,
            steps=(BLUE,),
        ),
        stat(
            "Overdue runs",
            "max(scheduler_runs_overdue)",
            "Open runs past their deadline that no producer has processed. It should be zero.",
            unit="short",
            decimals=0,
            steps=(GREEN, 1, RED),
        ),
        stat(
            "Dead runs",
            "max(scheduler_runs_dead)",
            "Stored dead runs: scheduler run list --status dead. A retry resets the attempt count.",
            unit="short",
            decimals=0,
            steps=(GREEN, 1, AMBER, 100, RED),
        ),
    ]
    attempts = graph(
        "Attempts by outcome",
        [_by("outcome", "scheduler_run_attempts_total")],
        "timed_out: no worker started it in time, or it took too long. lost: its worker missed its heartbeat.",
        unit="ops",
        stack=True,
    )
    run_counts = graph(
        "Runs: open, overdue, dead",
        [query(f"max(scheduler_runs_{state})", state) for state in ("open", "overdue", "dead")],
        "If open runs only grow, workers are too slow or do not report.",
        unit="short",
    )
    time = graph(
        "Run time",
        [_run_time(0.5), _run_time(0.99)],
        "From the start of the last attempt to the end of the run.",
        unit="s",
        log=True,
        fill=0,
    )
    results = graph(
        "Results by status",
        [_by("status", "scheduler_results_total"), _rate("scheduler_results_unknown_total", "unknown")],
        "superseded: a late result of an earlier attempt. unknown: dropped, no such event for an hour.",
        unit="ops",
        stack=True,
    )
    return [(1, [row("Runs")]), (5, [success, *counts]), (8, [attempts, run_counts]), (8, [time, results])]
