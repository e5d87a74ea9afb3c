"""Every metric of the sidecar, by the contract's names. No label carries a value that a message chose."""

import platform
from collections.abc import Iterable
from functools import cache

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from scheduler import __version__
from scheduler.ops.histogram import BatchHistogram

# When each series began is of no use to us, and would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

LAG_BUCKETS = (
    0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.04, 0.05, 0.1, 0.25, 0.5,
    1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
)  # fmt: skip
CLASSES = ("high", "normal", "low")  # of priority
_PHASE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_RUN_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400, 86400)
_BATCH_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)

jobs_queued = Counter("jobs_queued_total", "Requests stored.")
jobs_cancelled = Counter("jobs_cancelled_total", "Cancels that took effect.")
jobs_due = Counter("jobs_due_total", "ScheduleDue events confirmed by the broker.")
due_lag = Histogram(
    "scheduler_due_lag_seconds",
    "From an occurrence's due_at to its confirm by the broker.",
    buckets=LAG_BUCKETS,
)
commands_rejected = Counter(
    "scheduler_commands_rejected_total", "Commands sent to schedule.dead, by kind of problem.", ["reason"]
)
jobs_missed = Counter("scheduler_jobs_missed_total", "Occurrences passed over.")
publish_failures = Counter(
    "scheduler_publish_failures_total",
    "Events the broker returned, refused or did not confirm in time.",
    ["reason"],
)
confirms = Counter("scheduler_confirms_total", "What the broker said of each event published.", ["receipt"])
retries = Counter("scheduler_retries_total", "Jobs put back, to be tried again after a pause.")
backlog_jobs = Gauge("scheduler_backlog_jobs", "Jobs due and not yet emitted (counted up to 100,000).")
backlog_by_class = Gauge(
    "scheduler_backlog_class_jobs", "Jobs due and not yet emitted, by class of priority.", ["class"]
)
due_by_class = Counter("scheduler_due_class_total", "ScheduleDue events confirmed, by class.", ["class"])
lag_by_class = Histogram(
    "scheduler_due_lag_class_seconds", "As scheduler_due_lag_seconds, of jobs that were given a priority.",
    ["class"], buckets=LAG_BUCKETS,
)
oldest_due_age = Gauge("scheduler_oldest_due_age_seconds", "Age of the oldest occurrence not yet emitted.")
pending_jobs = Gauge("scheduler_pending_jobs", "Jobs that wait for their next occurrence (estimate).")
batch_size = Histogram(
    "scheduler_batch_size", "Commands stored or jobs claimed at once.", buckets=_BATCH_BUCKETS
)
loop_seconds = Histogram(
    "scheduler_loop_seconds", "Time spent in each phase of the loop.", ["phase"], buckets=_PHASE_BUCKETS
)
dependency_up = Gauge(
    "scheduler_dependency_up", "1 while this process can work with the dependency, else 0.", ["dependency"]
)
dependency_losses = Counter(
    "scheduler_dependency_losses_total", "How often a dependency that was there went missing.", ["dependency"]
)
replicas = Gauge(
    "scheduler_replicas", "Processes with a heartbeat in the database, as this one sees them.", ["role"]
)
pruned = Counter("scheduler_jobs_pruned_total", "Finished jobs deleted after SCHEDULER_RETENTION_DAYS.")
runs = Counter("scheduler_runs_total", "Runs of tracked jobs that have ended, by how.", ["status"])
run_attempts = Counter("scheduler_run_attempts_total", "Attempts that have come to an end, by how.", ["outcome"])
runs_open = Gauge("scheduler_runs_open", "Runs that are delivered, at work or waiting (counted up to 100,000).")
runs_dead = Gauge("scheduler_runs_dead", "Runs given up that are still kept (counted up to 100,000).")
runs_overdue = Gauge("scheduler_runs_overdue", "Runs open beyond their deadline (counted up to 100,000).")
run_seconds = Histogram(
    "scheduler_run_seconds", "From the last attempt's start to the end of its run.", buckets=_RUN_BUCKETS
)
results = Counter("scheduler_results_total", "Results taken, by what became of them.", ["status"])
results_unknown = Counter(
    "scheduler_results_unknown_total", "Results dropped because their event stayed unknown for an hour."
)
partitions_dropped = Counter("scheduler_run_partitions_dropped_total", "Days of history dropped.")
commands_running = Gauge("scheduler_commands_running", "Commands at work in this worker.")
commands_taken = Counter("scheduler_commands_taken_total", "Commands that this worker began.", ["command"])
commands_ended = Counter(
    "scheduler_commands_ended_total", "Commands that have ended, by how.", ["command", "outcome"]
)
commands_unoffered = Counter(
    "scheduler_commands_unoffered_total", "Events returned because no worker offers their command, at each try."
)
command_seconds = Histogram(
    "scheduler_command_seconds", "From a command's start to its end.", ["command"], buckets=_RUN_BUCKETS
)
WEBHOOK_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "timeout", "connection", "refused", "invalid", "put_off")
webhook_requests = Counter(
    "scheduler_webhook_requests_total",
    "Webhook attempts by what came of them: the class of the answer, or why there is none.",
    ["class"],
)
webhook_seconds = Histogram(
    "scheduler_webhook_seconds", "From the first dial of a webhook to the end of its answer.",
    buckets=_RUN_BUCKETS[:14],
)
webhooks_in_flight = Gauge("scheduler_webhooks_in_flight", "Webhooks that this worker is calling.")
webhooks_waiting = Gauge("scheduler_webhooks_waiting", "Webhooks that wait in this worker for their turn.")
webhook_endpoints_failing = Gauge(
    "scheduler_webhook_endpoints_failing", "Endpoints that have answered this worker no call well for an hour."
)
api_requests = Counter(
    "scheduler_api_requests_total", "Requests to the API and the console.", ["route", "status"]
)
api_seconds = Histogram(
    "scheduler_api_seconds", "From a request's first byte to the end of its answer.", ["route"],
    buckets=_PHASE_BUCKETS,
)
delayed_messages = Gauge("scheduler_delayed_messages", "Delayed messages that wait to come out (estimate).")
delayed_in = Counter("scheduler_delayed_in_total", "Delayed messages stored.")
delayed_out = Counter("scheduler_delayed_out_total", "Delayed messages that came out, confirmed by the broker.")
delayed_dropped = Counter(
    "scheduler_delayed_dropped_total", "Delayed messages not stored: cancelled, or there already.", ["reason"]
)
delayed_dead = Counter("scheduler_delayed_dead_total", "Delayed messages given up after an hour without a queue.")
delayed_lag = BatchHistogram(
    "scheduler_delayed_lag_seconds", "From a delayed message's time to its confirm by the broker.",
    buckets=LAG_BUCKETS,
)
build_info = Gauge(
    "scheduler_build_info", "Always 1; the labels say what runs.", ["version", "python", "tzdata"]
)


@cache
def of_route(route: str, status: int) -> tuple[Counter, Histogram]:
    """Return where the requests of a route that ended so are counted and timed: to look that up takes a while."""
    return api_requests.labels(route, str(status)), api_seconds.labels(route)


def declare_commands(names: Iterable[str]) -> None:
    """Give the metrics of commands the names that the worker's own file lists."""
    for name in names:
        commands_taken.labels(name)
        command_seconds.labels(name)
        for outcome in ("succeeded", "failed", "snoozed", "superseded"):
            commands_ended.labels(name, outcome)


def declare(tzdata: str) -> None:
    """Give the labelled metrics their known values, so that they are there before the first event."""
    build_info.labels(__version__, platform.python_version(), tzdata).set(1)
    for reason in ("returned", "refused", "unconfirmed", "unsendable"):
        publish_failures.labels(reason)
    for reason in ("json", "shape", "schedule", "storage", "redelivered"):
        commands_rejected.labels(reason)
    for receipt in ("confirmed", "returned", "refused", "unconfirmed", "unsendable"):
        confirms.labels(receipt)
    for status in ("succeeded", "dead", "cancelled"):
        runs.labels(status)
    for outcome in ("succeeded", "failed", "timed_out", "lost", "snoozed"):
        run_attempts.labels(outcome)
    for status in ("recorded", "unchanged", "superseded"):
        results.labels(status)
    for reason in ("duplicate", "cancelled"):
        delayed_dropped.labels(reason)
    for name in CLASSES:
        due_by_class.labels(name)
        lag_by_class.labels(name)
    for kind in WEBHOOK_CLASSES:
        webhook_requests.labels(kind)
    for dependency in ("postgres", "rabbitmq"):
        dependency_losses.labels(dependency)
