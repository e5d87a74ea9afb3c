-- Tell which of these jobs have an open run, and which one.
SELECT DISTINCT ON (job_id) job_id::text, event_id::text
FROM runs
WHERE job_id = ANY (%(ids)s::uuid[]) AND status IN ('delivered', 'running', 'waiting')
ORDER BY job_id, due_at
