-- Ids of jobs that were planned with another state of a calendar. A job that is due is emitted first.
SELECT id::text
FROM jobs
WHERE {outdated} AND (next_run_at > now() OR next_run_at IS NULL)
LIMIT %(limit)s
