"""The rows of the overview about workers and webhooks."""

from scheduler.dev.dashboards.panels import AMBER, BLUE, GREEN, Json, graph, query, row, stat

_ME = 'instance=~"$instance"'
_CALLS = f"rate(scheduler_webhook_requests_total{{{_ME}}}[$__rate_interval])"


def _seconds(share: float) -> Json:
    buckets = f"sum by (le) (rate(scheduler_webhook_seconds_bucket{{{_ME}}}[$__rate_interval]))"
    return query(f"histogram_quantile({share}, {buckets})", f"p{round(share * 100)}")


def rows() -> list[tuple[int, list[Json]]]:
    """Return the lines."""
    workers = stat(
        "Workers",
        'max(scheduler_replicas{role="worker"})',
        "Workers that say they live: scheduler top tells what each is busy with.",
        unit="short",
        decimals=0,
        steps=(BLUE,),
    )
    failing = stat(
        "Endpoints failing",
        "max(scheduler_webhook_endpoints_failing)",
        "Endpoints that have answered no call well for an hour; the worker's log names each.",
        unit="short",
        decimals=0,
        steps=(GREEN, 1, AMBER),
    )
    refused = stat(
        "Refused",
        f'sum(increase(scheduler_webhook_requests_total{{class="refused", {_ME}}}[$__range]))',
        "Calls to addresses that are not public, over the time range above: a mistake, or somebody tries.",
        unit="short",
        decimals=0,
        steps=(GREEN, 1, AMBER),
    )
    calls = graph(
        "Webhooks by answer",
        [query(f"sum by (class) ({_CALLS})", "{{class}}")],
        "put_off: the endpoint has no turn for it yet; it comes back later and counts as no attempt.",
        unit="ops",
        stack=True,
    )
    time = graph(
        "Webhook time",
        [_seconds(0.5), _seconds(0.95), _seconds(0.99)],
        "From the first dial to the end of the answer, all endpoints together.",
        unit="s",
        log=True,
        fill=0,
    )
    standing = graph(
        "Webhooks in flight",
        [
            query(f"sum(scheduler_webhooks_in_flight{{{_ME}}})", "in flight"),
            query(f"sum(scheduler_webhooks_waiting{{{_ME}}})", "waiting for their turn"),
            query('sum(rabbitmq_detailed_queue_messages{queue="scheduler_webhooks"})', "in the queue"),
        ],
        "A queue that only grows: more workers, or a higher SCHEDULER_WORKER_CONCURRENCY.",
        unit="short",
    )
    return [(1, [row("Workers and webhooks")]), (4, [workers, failing, refused]), (8, [calls, time, standing])]
