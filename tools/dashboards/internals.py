"""Internals dashboard: the time and resources of each replica."""

from tools.dashboards.panels import AMBER, GREEN, RED, Json, dashboard, graph, link_to, query, row, stat, table

UID = "scheduler-internals"
_ME = 'instance=~"$instance"'
_JOBS = f'job=~"scheduler-.+", {_ME}'


def _rate_by(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}{{{_ME}}}[$__rate_interval]))"


def _mean(metric: str, by: str) -> str:
    # A process never enters some phases. Hide them instead of showing 0 / 0.
    return f"{_rate_by(f'{metric}_sum', by)} / ({_rate_by(f'{metric}_count', by)} > 0)"


def _quantile(share: float, metric: str, by: str) -> str:
    inner = f"sum by (le, {by}) (rate({metric}_bucket{{{_ME}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {inner})"


def build() -> Json:
    """Return the dashboard."""
    state = [
        stat(
            "Replicas up",
            f"sum(up{{{_JOBS}}})",
            "Processes that Prometheus can scrape.",
            unit="short",
            decimals=0,
            steps=(RED, 1, AMBER, 2, GREEN),
        ),
        stat(
            "Postgres",
            f'min(scheduler_dependency_up{{dependency="postgres", {_ME}}})',
            "1 while every selected replica reaches the database.",
            unit="bool_on_off",
            steps=(RED, 1, GREEN),
        ),
        stat(
            "RabbitMQ",
            f'min(scheduler_dependency_up{{dependency="rabbitmq", {_ME}}})',
            "1 while every selected replica can use the broker.",
            unit="bool_on_off",
            steps=(RED, 1, GREEN),
        ),
        stat(
            "Connections lost",
            f"sum(increase(scheduler_dependency_losses_total{{{_ME}}}[$__range]))",
            "Lost connections to the database or the broker, in the selected time range.",
            unit="short",
            decimals=0,
            steps=(GREEN, 1, AMBER, 10, RED),
        ),
    ]
    phases = graph(
        "Loop: time in each phase",
        [query(_rate_by("scheduler_loop_seconds_sum", "instance, phase"), "{{instance}} {{phase}}")],
        "Seconds per second. Near 1 in total, the replica is at its limit.",
        unit="percentunit",
        stack=True,
    )
    slow = graph(
        "Loop: p99 of each phase",
        [query(_quantile(0.99, "scheduler_loop_seconds", "phase"), "{{phase}}")],
        "store, claim, settle: Postgres. publish, confirm: RabbitMQ.",
        unit="s",
        log=True,
        fill=0,
    )
    batches = graph(
        "Batch size, mean",
        [query(_mean("scheduler_batch_size", "instance"), "{{instance}}")],
        "Commands stored or jobs claimed per batch. At SCHEDULER_BATCH_SIZE the replica is behind.",
        unit="short",
        fill=0,
    )
    largest = graph(
        "Batch size, p95",
        [query(_quantile(0.95, "scheduler_batch_size", "instance"), "{{instance}}")],
        "Large batches indicate bursts.",
        unit="short",
        fill=0,
    )
    confirms = graph(
        "Confirms",
        [query(_rate_by("scheduler_confirms_total", "instance, receipt"), "{{instance}} {{receipt}}")],
        "The broker's response to each event.",
        unit="ops",
    )
    retries = graph(
        "Retries and missed",
        [
            query(_rate_by("scheduler_retries_total"), "{{instance}} retries"),
            query(_rate_by("scheduler_jobs_missed_total"), "{{instance}} missed"),
            query(_rate_by("scheduler_jobs_replanned_total"), "{{instance}} planned again"),
        ],
        "Postponed jobs, skipped occurrences, and next runs that moved with their zone or calendar.",
        unit="ops",
    )
    connections = graph(
        "Connections",
        [query(f"scheduler_dependency_up{{{_ME}}}", "{{instance}} {{dependency}}")],
        "1 while the replica can use the dependency. /readyz shows the error and its start time.",
        unit="bool_on_off",
        max=1.1,
        min=0,
    )
    losses = graph(
        "Connections lost",
        [query(_rate_by("scheduler_dependency_losses_total", "instance, dependency"),
               "{{instance}} {{dependency}}")],
        "Lost connections per second.",
        unit="ops",
    )
    memory = graph(
        "Memory",
        [query(f"process_resident_memory_bytes{{{_JOBS}}}", "{{instance}}")],
        "It should stay flat.",
        unit="bytes",
        min=0,
    )
    cpu = graph(
        "CPU",
        [query(f"rate(process_cpu_seconds_total{{{_JOBS}}}[$__rate_interval])", "{{instance}}")],
        "Share of one core. Python uses one core: at 1 the replica is at its limit, and another replica helps.",
        unit="percentunit",
        min=0,
    )
    files = graph(
        "Open files",
        [query(f"process_open_fds{{{_JOBS}}}", "{{instance}}")],
        "Mostly connections. It should stay flat.",
        unit="short",
        min=0,
    )
    garbage = graph(
        "Garbage collections",
        [
            query(
                f"sum by (instance) (rate(python_gc_collections_total{{{_JOBS}}}[$__rate_interval]))",
                "{{instance}}",
            )
        ],
        "All generations.",
        unit="ops",
    )
    pruned = graph(
        "Pruned",
        [query(_rate_by("scheduler_jobs_pruned_total"), "{{instance}}")],
        "Finished jobs deleted after SCHEDULER_RETENTION_DAYS. One replica at a time prunes.",
        unit="ops",
    )
    who = table(
        "Versions",
        [query(f"scheduler_build_info{{{_ME}}}", instant=True)],
        "Version, Python and time zone data.",
        hidden=("Value", "__name__"),
    )
    replicas = graph(
        "Heartbeats",
        [query("max by (role) (scheduler_replicas)", "{{role}}")],
        "Processes with a heartbeat in the database.",
        unit="short",
        min=0,
    )
    lines = [
        (4, state),
        (1, [row("Loop")]),
        (9, [phases, slow]),
        (8, [batches, largest]),
        (8, [confirms, retries]),
        (1, [row("Connections")]),
        (7, [connections, losses, replicas]),
        (1, [row("Process")]),
        (7, [memory, cpu, files]),
        (7, [garbage, pruned, who]),
    ]
    description = "Time and resources of each replica."
    return dashboard(UID, "Scheduler: internals", description, lines, link_to("scheduler-overview", "Overview"))
