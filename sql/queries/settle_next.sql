-- Move the jobs on to their next occurrence.
UPDATE jobs
SET next_run_at = following, retries = 0, retry_at = NULL, occurrence = occurrence + emitted
FROM unnest(%(ids)s::uuid[], %(following)s::timestamptz[], %(emitted)s::integer[])
     AS settled (job_id, following, emitted)
WHERE id = job_id
