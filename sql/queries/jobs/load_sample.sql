-- A random part of the matching pending jobs, without payloads: to estimate what is ahead.
SELECT {selected}
FROM jobs TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (7)
WHERE status = 'pending' AND next_run_at IS NOT NULL
  AND (%(tenant)s IS NULL OR tenant = %(tenant)s) AND (%(job_type)s IS NULL OR job_type = %(job_type)s)
LIMIT %(most)s
