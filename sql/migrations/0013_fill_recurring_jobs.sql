-- Note the jobs that recur already; nobody waits for it.
INSERT INTO recurring_jobs (created_at, id, tenant)
SELECT created_at, id, tenant
FROM jobs
WHERE rrule IS NOT NULL OR cron IS NOT NULL OR every IS NOT NULL
ON CONFLICT DO NOTHING;
