"""All metrics of the sidecar, with the contract's names. No label contains a value from a message."""

import platform
from collections.abc import Iterable
from functools import cache

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from scheduler import __version__
from scheduler.ops.histogram import BatchHistogram

# Creation times are of no use here and would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

LAG_BUCKETS = (
    0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.04, 0.05, 0.1, 0.25, 0.5,
    1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
)  # fmt: skip
CLASSES = ("high", "normal", "low")  # priority classes
_PHASE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_RUN_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400, 86400)
_BATCH_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)

jobs_queued = Counter("jobs_queued_total", "Requests stored.")
jobs_cancelled = Counter("jobs_cancelled_total", "Cancels that took effect.")
jobs_due = Counter("jobs_due_total", "ScheduleDue events confirmed by the broker.")
due_lag = Histogram(
    "scheduler_due_lag_seconds",
    "Time from an occurrence's due_at to the broker's confirm.",
    buckets=LAG_BUCKETS,
)
commands_rejected = Counter(
    "scheduler_commands_rejected_total", "Commands rejected to schedule.dead, by reason.", ["reason"]
)
replies_dropped = Counter(
    "scheduler_replies_dropped_total",
    "Replies that were not sent or not confirmed, by reason.", ["reason"],
)
jobs_missed = Counter("scheduler_jobs_missed_total", "Occurrences skipped or missed.")
jobs_replanned = Counter(
    "scheduler_jobs_replanned_total", "Next runs that moved because a zone or a calendar changed.", ["reason"],
)
publish_failures = Counter(
    "scheduler_publish_failures_total",
    "Events that the broker returned, refused or did not confirm in time, by reason.",
    ["reason"],
)
confirms = Counter("scheduler_confirms_total", "Published events, by the broker's response.", ["receipt"])
retries = Counter("scheduler_retries_total", "Jobs postponed after a failed emission.")
backlog_jobs = Gauge("scheduler_backlog_jobs", "Jobs due and not yet emitted (counted up to 100,000).")
backlog_by_class = Gauge(
    "scheduler_backlog_class_jobs", "Jobs due and not yet emitted, by priority class.", ["class"]
)
due_by_class = Counter("scheduler_due_class_total", "ScheduleDue events confirmed, by priority class.", ["class"])
lag_by_class = Histogram(
    "scheduler_due_lag_class_seconds", "scheduler_due_lag_seconds for jobs with a priority, by class.",
    ["class"], buckets=LAG_BUCKETS,
)
oldest_due_age = Gauge("scheduler_oldest_due_age_seconds", "Age of the oldest occurrence not yet emitted.")
pending_jobs = Gauge("scheduler_pending_jobs", "Pending jobs (estimate).")
batch_size = Histogram(
    "scheduler_batch_size", "Commands stored or jobs claimed per batch.", buckets=_BATCH_BUCKETS
)
loop_seconds = Histogram(
    "scheduler_loop_seconds", "Time spent in each phase of the loop.", ["phase"], buckets=_PHASE_BUCKETS
)
dependency_up = Gauge(
    "scheduler_dependency_up", "1 if the dependency is available to this process, else 0.", ["dependency"]
)
dependency_lag = Gauge(
    "scheduler_dependency_lag_seconds", "How far the API's read replica is behind its primary.", ["dependency"]
)
dependency_losses = Counter(
    "scheduler_dependency_losses_total", "Times that an available dependency became unavailable.", ["dependency"]
)
replicas = Gauge(
    "scheduler_replicas", "Live processes by role, from their heartbeats in the database.", ["role"]
)
pruned = Counter("scheduler_jobs_pruned_total", "Finished jobs deleted after SCHEDULER_RETENTION_DAYS.")
runs = Counter("scheduler_runs_total", "Finished runs, by status.", ["status"])
run_attempts = Counter("scheduler_run_attempts_total", "Finished attempts, by outcome.", ["outcome"])
runs_open = Gauge("scheduler_runs_open", "Open runs: delivered, running or waiting (counted up to 100,000).")
runs_dead = Gauge("scheduler_runs_dead", "Dead runs not yet pruned (counted up to 100,000).")
notifications = Counter(
    "scheduler_notifications_total", "Calls of SCHEDULER_NOTIFY_WEBHOOK, by outcome.", ["outcome"]
)
work_unoffered = Gauge(
    "scheduler_work_unoffered",
    "Attempts in a queue that no live worker offers to do (of the first 10,000 open runs).",
)
work_longest_wait = Gauge(
    "scheduler_work_longest_wait_seconds",
    "How long the oldest attempt has waited for a worker to start it (of the first 10,000 open runs).",
)
runs_overdue = Gauge("scheduler_runs_overdue", "Open runs past their deadline (counted up to 100,000).")
run_seconds = Histogram(
    "scheduler_run_seconds", "Time from the start of the last attempt to the end of its run.", buckets=_RUN_BUCKETS
)
results = Counter("scheduler_results_total", "Results received, by reply status.", ["status"])
results_unknown = Counter(
    "scheduler_results_unknown_total", "Results dropped because their event stayed unknown for an hour."
)
partitions_dropped = Counter("scheduler_run_partitions_dropped_total", "History partitions dropped.")
commands_running = Gauge("scheduler_commands_running", "Commands running in this worker.")
commands_taken = Counter("scheduler_commands_taken_total", "Commands started by this worker.", ["command"])
commands_ended = Counter(
    "scheduler_commands_ended_total", "Finished commands, by outcome.", ["command", "outcome"]
)
commands_unoffered = Counter(
    "scheduler_commands_unoffered_total", "Events returned because no worker offers their command."
)
command_seconds = Histogram(
    "scheduler_command_seconds", "Duration of commands.", ["command"], buckets=_RUN_BUCKETS
)
WEBHOOK_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "timeout", "connection", "refused", "invalid", "put_off")
webhook_requests = Counter(
    "scheduler_webhook_requests_total",
    "Webhook attempts, by class of the HTTP status or by the reason for no response.",
    ["class"],
)
webhook_seconds = Histogram(
    "scheduler_webhook_seconds", "Duration of webhook exchanges, connecting included.",
    buckets=_RUN_BUCKETS[:14],
)
webhooks_in_flight = Gauge("scheduler_webhooks_in_flight", "Webhook requests in flight from this worker.")
webhooks_waiting = Gauge("scheduler_webhooks_waiting", "Webhooks without a concurrency slot in this worker.")
webhook_endpoints_failing = Gauge(
    "scheduler_webhook_endpoints_failing", "Endpoints without a successful response to this worker for an hour."
)
api_requests = Counter(
    "scheduler_api_requests_total", "Requests to the API and the console.", ["route", "status"]
)
api_seconds = Histogram(
    "scheduler_api_seconds", "Duration of API requests.", ["route"],
    buckets=_PHASE_BUCKETS,
)
delayed_messages = Gauge("scheduler_delayed_messages", "Pending delayed messages (estimate).")
calendars_expiring = Gauge(
    "scheduler_calendars_expiring", "Calendars in use whose listed dates end within 30 days."
)
delayed_in = Counter("scheduler_delayed_in_total", "Delayed messages stored.")
delayed_out = Counter("scheduler_delayed_out_total", "Delayed messages published and confirmed by the broker.")
delayed_dropped = Counter(
    "scheduler_delayed_dropped_total", "Delayed messages not stored, by reason.", ["reason"]
)
delayed_dead = Counter("scheduler_delayed_dead_total", "Delayed messages dead-lettered as unroutable.")
delayed_lag = BatchHistogram(
    "scheduler_delayed_lag_seconds", "Time from a delayed message's due time to the broker's confirm.",
    buckets=LAG_BUCKETS,
)
build_info = Gauge(
    "scheduler_build_info", "Always 1; version information in the labels.", ["version", "python", "tzdata"]
)


@cache
def of_route(route: str, status: int) -> tuple[Counter, Histogram]:
    """Return the counter and histogram for a route and status; cached because looking up labels is slow."""
    return api_requests.labels(route, str(status)), api_seconds.labels(route)


def declare_commands(names: Iterable[str], in_pools: Iterable[str]) -> None:
    """Create the series of the commands in the worker's file; `in_pools` has them with the worker's pools."""
    for name in in_pools:
        commands_taken.labels(name)
    for name in names:
        command_seconds.labels(name)
        for outcome in ("succeeded", "failed", "snoozed", "superseded"):
            commands_ended.labels(name, outcome)


def declare(tzdata: str) -> None:
    """Create the labelled series, so that they exist before the first event."""
    build_info.labels(__version__, platform.python_version(), tzdata).set(1)
    for reason in ("zone", "calendar"):
        jobs_replanned.labels(reason)
    for reason in ("returned", "refused", "unconfirmed", "unsendable", "slow"):
        publish_failures.labels(reason)
    for reason in ("json", "shape", "schedule", "storage", "redelivered"):
        commands_rejected.labels(reason)
    for receipt in ("confirmed", "returned", "refused", "unconfirmed", "unsendable", "slow"):
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
