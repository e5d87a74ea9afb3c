-- The names of these jobs.
SELECT id::text, coalesce(name, job_type) FROM jobs WHERE id = ANY(%(ids)s::uuid[]) AND job_type IS NOT NULL
