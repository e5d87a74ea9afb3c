-- Lock the rows that a batch of commands is about, in id order so that two consumers never deadlock.
SELECT id, status, job_type, payload::text AS payload, correlation_id, traceparent, tracestate,
       rrule, cron, every, timezone, dtstart, starts_at, ends_at, on_missed, max_lateness,
       next_run_at, occurrence, retries, retry_at, triggers, trigger_at, triggered_at,
       requested_at, cancelled_at, paused_at, resumed_at
FROM jobs
WHERE id = ANY (%(ids)s::uuid[])
ORDER BY id
FOR UPDATE
