-- Finish the jobs whose last occurrence was confirmed or passed over.
UPDATE jobs
SET status = 'done', next_run_at = NULL, finished_at = now(), retries = 0, retry_at = NULL,
    occurrence = occurrence + %(emitted)s
WHERE id = ANY (%(ids)s::uuid[])
