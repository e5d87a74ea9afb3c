"""The internals: what each replica does with its time."""

from scheduler.dev.dashboards.panels import (
    AMBER,
    GREEN,
    RED,
    Json,
    dashboard,
    graph,
    link_to,
    query,
    row,
    stat,
    table,
)

UID = "scheduler-internals"
_ME = 'instance=~"$instance"'
_JOBS = f'job=~"scheduler-.+", {_ME}'


def _each(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}{{{_ME}}}[$__rate_interval]))"


def _mean(metric: str, by: str) -> str:
    # Phases that a process never enters have no events: 0 / 0 is no answer, and shown as none.
    return f"{_each(f'{metric}_sum', by)} / ({_each(f'{metric}_count', by)} > 0)"


def _quantile(share: float, metric: str, by: str) -> str:
    inner = f"sum by (le, {by}) (rate({metric}_bucket{{{_ME}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {inner})"


def build() -> Json:
    """Return the dashboard."""
    state = [
        stat(
            "Replicas that answer",
            f"sum(up{{{_JOBS}}})",
            "Processes that Prometheus can scrape.",
            unit="short",
            decimals=0,
            steps=(RED, 1, AMBER, 2, GREEN),
        ),
        stat(
            "Postgres",
            f'min(scheduler_dependency_up{{dependency="postgres", {_ME}}})',
            "1 while every chosen replica reaches the database.",
            unit="bool_on_off",
            steps=(RED, 1, GREEN),
        ),
        stat(
            "RabbitMQ",
            f'min(scheduler_dependency_up{{dependency="rabbitmq", {_ME}}})',
            "1 while every chosen replica can work with the broker.",
            unit="bool_on_off",
            steps=(RED, 1, GREEN),
        ),
        stat(
            "Connections lost",
            f"sum(increase(scheduler_dependency_losses_total{{{_ME}}}[$__range]))",
            "How often a replica lost its database or its broker, over the time range above.",
            unit="short",
            decimals=0,
            steps=(GREEN, 1, AMBER, 10, RED),
        ),
    ]
    phases = graph(
        "Loop: time in each phase",
        [query(_each("scheduler_loop_seconds_sum", "instance, phase"), "{{instance}} {{phase}}")],
        "Seconds of each second. Nearer to 1 in all: the replica is at its limit.",
        unit="percentunit",
        stack=True,
    )
    slow = graph(
        "Loop: p99 of each phase",
        [query(_quantile(0.99, "scheduler_loop_seconds", "phase"), "{{phase}}")],
        "store, claim, publish, confirm, settle: which one is slow says where to look.",
        unit="s",
        log=True,
        fill=0,
    )
    batches = graph(
        "Batch size, mean",
        [query(_mean("scheduler_batch_size", "instance"), "{{instance}}")],
        "Commands stored or jobs claimed at once. At SCHEDULER_BATCH_SIZE the replica is behind.",
        unit="short",
        fill=0,
    )
    largest = graph(
        "Batch size, p95",
        [query(_quantile(0.95, "scheduler_batch_size", "instance"), "{{instance}}")],
        "The larger batches: bursts.",
        unit="short",
        fill=0,
    )
    confirms = graph(
        "Confirms",
        [query(_each("scheduler_confirms_total", "instance, receipt"), "{{instance}} {{receipt}}")],
        "What the broker said of each event.",
        unit="ops",
    )
    retries = graph(
        "Retries and missed",
        [
            query(_each("scheduler_retries_total"), "{{instance}} retries"),
            query(_each("scheduler_jobs_missed_total"), "{{instance}} missed"),
        ],
        "Jobs put back for later, and occurrences passed over.",
        unit="ops",
    )
    connections = graph(
        "Connections",
        [query(f"scheduler_dependency_up{{{_ME}}}", "{{instance}} {{dependency}}")],
        "1 while the replica can work with it; /readyz says why not, and since when.",
        unit="bool_on_off",
        max=1.1,
        min=0,
    )
    losses = graph(
        "Connections lost",
        [query(_each("scheduler_dependency_losses_total", "instance, dependency"), "{{instance}} {{dependency}}")],
        "Each time one went away.",
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
        "Of one core. Python works on one: at 1 it is at its limit, and another replica helps.",
        unit="percentunit",
        min=0,
    )
    files = graph(
        "Open files",
        [query(f"process_open_fds{{{_JOBS}}}", "{{instance}}")],
        "Connections mostly; it should stay flat.",
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
        "Of all generations.",
        unit="ops",
    )
    pruned = graph(
        "Pruned",
        [query(_each("scheduler_jobs_pruned_total"), "{{instance}}")],
        "Finished jobs deleted after SCHEDULER_RETENTION_DAYS; one replica at a time does it.",
        unit="ops",
    )
    who = table(
        "What runs",
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
    about = "What each replica does with its time."
    return dashboard(UID, "Scheduler: internals", about, lines, link_to("scheduler-overview", "Overview"))
