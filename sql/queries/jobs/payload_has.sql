-- Jobs with a value at a path of the payload, among the newest ones of the caller.
SELECT jobs.id::text, jobs.name, jobs.job_type, jobs.tenant, jobs.status::text
FROM (SELECT id, created_at FROM ({newest}) AS newest ORDER BY created_at DESC, id DESC LIMIT %(limit)s) AS newest
JOIN jobs USING (id)
WHERE jobs.payload #>> %(path)s::text[] = %(value)s
ORDER BY newest.created_at DESC, id DESC
LIMIT %(shown)s
