-- Store what a batch of commands made of its jobs. A row that another consumer created or changed since it
-- was read is left alone and not counted: the caller reads it again and applies its commands to that.
INSERT INTO jobs (
    id, status, job_type, payload, correlation_id, traceparent, tracestate,
    rrule, cron, every, timezone, dtstart, starts_at, ends_at, on_missed, max_lateness,
    next_run_at, occurrence, retries, retry_at, triggers, trigger_at, triggered_at,
    requested_at, cancelled_at, paused_at, resumed_at, version, finished_at
)
SELECT id, status, job_type, payload::json, correlation_id, traceparent, tracestate,
       rrule, cron, every, timezone, dtstart, starts_at, ends_at, on_missed, max_lateness,
       next_run_at, occurrence, retries, retry_at, triggers, trigger_at, triggered_at,
       requested_at, cancelled_at, paused_at, resumed_at, version,
       CASE WHEN status IN ('done', 'cancelled', 'awaiting') THEN now() END
FROM json_to_recordset(%(jobs)s::json) AS saved (
    id uuid, status job_status, job_type text, payload text, correlation_id text, traceparent text,
    tracestate text, rrule text, cron text, every interval, timezone text, dtstart timestamp,
    starts_at timestamptz, ends_at timestamptz, on_missed missed_policy, max_lateness interval,
    next_run_at timestamptz, occurrence bigint, retries integer, retry_at timestamptz,
    triggers timestamptz[], trigger_at timestamptz, triggered_at timestamptz, requested_at timestamptz, cancelled_at timestamptz,
    paused_at timestamptz, resumed_at timestamptz, version integer
)
ORDER BY id
ON CONFLICT (id) DO UPDATE SET
    status = excluded.status, job_type = excluded.job_type, payload = excluded.payload,
    correlation_id = excluded.correlation_id, traceparent = excluded.traceparent,
    tracestate = excluded.tracestate, rrule = excluded.rrule, cron = excluded.cron, every = excluded.every,
    timezone = excluded.timezone, dtstart = excluded.dtstart, starts_at = excluded.starts_at,
    ends_at = excluded.ends_at, on_missed = excluded.on_missed, max_lateness = excluded.max_lateness,
    next_run_at = excluded.next_run_at, occurrence = excluded.occurrence, retries = excluded.retries,
    retry_at = excluded.retry_at, triggers = excluded.triggers, trigger_at = excluded.trigger_at,
    triggered_at = excluded.triggered_at,
    requested_at = excluded.requested_at, cancelled_at = excluded.cancelled_at,
    paused_at = excluded.paused_at, resumed_at = excluded.resumed_at, version = excluded.version,
    finished_at = excluded.finished_at
WHERE jobs.version = excluded.version - 1
