-- The pending and paused jobs that use a calendar, by tenant and id. A tenant's own calendar hides that of all tenants.
SELECT jobs.id::text, jobs.tenant, jobs.name, jobs.job_type, jobs.next_run_at
FROM jobs
WHERE jobs.calendar = %(name)s AND jobs.status IN ('pending', 'paused')
  AND CASE WHEN %(owner)s <> '*' THEN jobs.tenant = %(owner)s
           ELSE (%(counted)s::text IS NULL OR jobs.tenant = %(counted)s)
                AND NOT EXISTS (SELECT FROM calendars AS own
                                WHERE own.name = %(name)s AND own.tenant = jobs.tenant AND own.content IS NOT NULL) END
ORDER BY jobs.tenant, jobs.id
LIMIT %(limit)s
