-- The statuses of these jobs.
SELECT id::text, status::text FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND job_type IS NOT NULL
