-- Keep the jobs whose event was refused: still due, tried again later.
UPDATE jobs
SET retries = retries + 1, retry_at = clock_timestamp() + make_interval(secs => delay)
FROM unnest(%(ids)s::uuid[], %(delays)s::float8[]) AS settled (job_id, delay)
WHERE id = job_id
