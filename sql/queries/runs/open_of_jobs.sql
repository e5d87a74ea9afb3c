-- Return an open run of each of these jobs.
SELECT DISTINCT ON (job_id) job_id::text, event_id::text
FROM runs
WHERE job_id = ANY (%(ids)s::uuid[]) AND status IN ('delivered', 'running', 'waiting')
ORDER BY job_id, due_at
