-- Ids, tenants and statuses of chosen jobs, for bulk commands.
SELECT id, created_at, tenant, status::text
FROM jobs
WHERE id = ANY(%(ids)s::uuid[]) AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
ORDER BY id
