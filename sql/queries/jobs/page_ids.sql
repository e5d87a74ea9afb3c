-- Ids of one page of jobs, newest first, for bulk commands.
SELECT id, created_at, tenant, status::text
FROM ({newest}) AS newest
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s
