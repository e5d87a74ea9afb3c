-- The newest of the jobs that are wanted: each status has its own stretch of an index, read up to a page's length from
-- where the last page ended; pending jobs that recur have a table of their own (migration 0012), each looked up by its
-- id: OFFSET 0 keeps the planner from walking all of `jobs` instead. A job that was named but never asked for is none to
-- people.
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'pending' AND rrule IS NULL AND cron IS NULL AND every IS NULL AND {wanted}
 ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by
 FROM recurring_jobs AS made
 CROSS JOIN LATERAL (
     SELECT status, job_type, name, priority, created_by, created_via, rrule, cron, every
     FROM jobs WHERE jobs.id = made.id OFFSET 0) AS known
 WHERE status = 'pending' AND num_nonnulls(rrule, cron, every) > 0 AND {wanted}
 ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'paused' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'done' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'cancelled' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
