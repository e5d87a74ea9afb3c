-- List the jobs due next, overdue ones first.
SELECT id, job_type, coalesce(rrule, cron, 'every ' || every, 'once') AS schedule,
       extract(epoch FROM wake_at - now())::float8 AS seconds, retries
FROM jobs
WHERE status = 'pending'
ORDER BY wake_at
LIMIT %(limit)s
