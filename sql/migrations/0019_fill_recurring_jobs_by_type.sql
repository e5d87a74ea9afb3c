-- Say of which type and priority the jobs are that recur already; what a trigger has noted meanwhile is newer.
INSERT INTO recurring_jobs (created_at, id, tenant, job_type, priority)
SELECT created_at, id, tenant, job_type, priority
FROM jobs
WHERE status = 'pending' AND (rrule IS NOT NULL OR cron IS NOT NULL OR every IS NOT NULL)
ON CONFLICT (created_at, id) DO UPDATE SET job_type = excluded.job_type, priority = excluded.priority
    WHERE recurring_jobs.job_type IS NULL;
