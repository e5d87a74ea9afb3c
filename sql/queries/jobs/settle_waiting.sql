-- Postpone late jobs until their window opens. `retries` is 0: no event was rejected.
UPDATE jobs
SET retries = 0, retry_at = until, held_by = NULL
FROM unnest(%(ids)s::uuid[], %(until)s::timestamptz[]) AS settled (job_id, until)
WHERE id = job_id
