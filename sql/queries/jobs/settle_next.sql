-- Advance jobs to their next occurrence after a confirmed one.
UPDATE jobs
SET next_run_at = following, retries = 0, retry_at = NULL, held_by = NULL, occurrence = occurrence + 1,
    last_due_at = next_run_at, last_emitted_at = %(emitted_at)s, last_confirmed_at = %(confirmed_at)s
FROM unnest(%(places)s::tid[], %(following)s::timestamptz[]) AS settled (place, following)
WHERE jobs.ctid = place
