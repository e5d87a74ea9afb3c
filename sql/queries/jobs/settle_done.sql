-- Finish jobs whose last occurrence was confirmed.
UPDATE jobs
SET status = 'done', next_run_at = NULL, finished_at = now(), retries = 0, retry_at = NULL, held_by = NULL,
    occurrence = occurrence + 1, last_due_at = next_run_at,
    last_emitted_at = %(emitted_at)s, last_confirmed_at = %(confirmed_at)s
WHERE ctid = ANY (%(places)s::tid[])
