-- Store what a batch of commands made of jobs that were there before, and are locked.
UPDATE jobs SET
    status = saved.status, job_type = saved.job_type, payload = saved.payload::json,
    correlation_id = saved.correlation_id, traceparent = saved.traceparent, tracestate = saved.tracestate,
    rrule = saved.rrule, cron = saved.cron, every = saved.every, timezone = saved.timezone,
    dtstart = saved.dtstart, starts_at = saved.starts_at, ends_at = saved.ends_at,
    on_missed = saved.on_missed, max_lateness = saved.max_lateness, next_run_at = saved.next_run_at,
    occurrence = saved.occurrence, retries = saved.retries, retry_at = saved.retry_at,
    triggers = saved.triggers, trigger_at = saved.trigger_at, triggered_at = saved.triggered_at,
    requested_at = saved.requested_at, cancelled_at = saved.cancelled_at, paused_at = saved.paused_at,
    resumed_at = saved.resumed_at, finished_at = saved.finished_at
FROM json_to_recordset(%(jobs)s::json) AS saved (
    id uuid, status job_status, job_type text, payload text, correlation_id text, traceparent text,
    tracestate text, rrule text, cron text, every interval, timezone text, dtstart timestamp,
    starts_at timestamptz, ends_at timestamptz, on_missed missed_policy, max_lateness interval,
    next_run_at timestamptz, occurrence bigint, retries integer, retry_at timestamptz,
    triggers timestamptz[], trigger_at timestamptz, triggered_at timestamptz, requested_at timestamptz,
    cancelled_at timestamptz, paused_at timestamptz, resumed_at timestamptz, finished_at timestamptz
)
WHERE jobs.id = saved.id
