-- Advance jobs with a calendar, a window or jitter. A job is done if it has no next occurrence and no skipped one to report.
UPDATE jobs
SET next_run_at = following, nominal_at = nominal, settled_until = settled, settled_due = settled_due_at,
    unsettled = CASE WHEN cardinality(spans::timestamptz[]) > 0 THEN spans::timestamptz[] END,
    reported_until = reported, skip_at = next_skip, calendar_revision = revision,
    retries = 0, retry_at = NULL, held_by = NULL,
    occurrence = occurrence + CASE WHEN due IS NULL THEN 0 ELSE 1 END,
    status = CASE WHEN following IS NULL AND next_skip IS NULL THEN 'done' ELSE status END,
    finished_at = CASE WHEN following IS NULL AND next_skip IS NULL THEN now() END,
    last_due_at = coalesce(due, last_due_at),
    last_emitted_at = CASE WHEN due IS NULL THEN last_emitted_at ELSE %(emitted_at)s END,
    last_confirmed_at = CASE WHEN due IS NULL THEN last_confirmed_at ELSE %(confirmed_at)s END
FROM unnest(%(ids)s::uuid[], %(due)s::timestamptz[], %(following)s::timestamptz[], %(nominal)s::timestamptz[],
            %(settled)s::timestamptz[], %(settled_due)s::timestamptz[], %(unsettled)s::text[],
            %(reported)s::timestamptz[], %(skip_at)s::timestamptz[], %(revisions)s::bigint[])
     AS settlement (job_id, due, following, nominal, settled, settled_due_at, spans, reported, next_skip, revision)
WHERE id = job_id
