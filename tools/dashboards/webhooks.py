"""Overview rows for workers and webhooks."""

from tools.dashboards.panels import AMBER, BLUE, GREEN, Json, graph, query, row, stat

_ME = 'instance=~"$instance"'
_CALLS = f"rate(scheduler_webhook_requests_total{{{_ME}}}[$__rate_interval])"


def _seconds(share: float) -> Json:
    buckets = f"sum by (le) (rate(scheduler_webhook_seconds_bucket{{{_ME}}}[$__rate_interval]))"
    return query(f"histogram_quantile({share}, {buckets})", f"p{round(share * 100)}")


def rows() -> list[tuple[int, list[Json]]]:
    """Return the panels of the row."""
    workers = stat(
        "Workers",
        'max(scheduler_replicas{role="worker"})',
        "Workers with a heartbeat. scheduler top shows what each one runs.",
        unit="short",
        decimals=0,
        steps=(BLUE,),
    )
    failing = stat(
        "Endpoints failing",
        "max(scheduler_webhook_endpoints_failing)",
        "Endpoints without a 2xx response for an hour. The workers' logs name them.",
        unit="short",
        decimals=0,
        steps=(GREEN, 1, AMBER),
    )
    refused = stat(
        "Blocked calls",
        f'sum(increase(scheduler_webhook_requests_total{{class="refused", {_ME}}}[$__range]))',
        "Calls to addresses that are not public, in the selected time range: a mistake or an attack.",
        unit="short",
        decimals=0,
        steps=(GREEN, 1, AMBER),
    )
    calls = graph(
        "Webhooks by response",
        [query(f"sum by (class) ({_CALLS})", "{{class}}")],
        "put_off: the endpoint has no free slot. The call is postponed and does not count as an attempt.",
        unit="ops",
        stack=True,
    )
    time = graph(
        "Webhook time",
        [_seconds(0.5), _seconds(0.95), _seconds(0.99)],
        "From the first connect to the end of the response, for all endpoints together.",
        unit="s",
        log=True,
        fill=0,
    )
    in_flight = graph(
        "Webhooks in flight",
        [
            query(f"sum(scheduler_webhooks_in_flight{{{_ME}}})", "in flight"),
            query(f"sum(scheduler_webhooks_waiting{{{_ME}}})", "waiting for a slot"),
            query('sum(rabbitmq_detailed_queue_messages{queue=~"scheduler_webhooks.*"})', "in the queue"),
        ],
        "If the queue only grows, add workers or raise SCHEDULER_WORKER_CONCURRENCY.",
        unit="short",
    )
    return [(1, [row("Workers and webhooks")]), (4, [workers, failing, refused]), (8, [calls, time, in_flight])]
