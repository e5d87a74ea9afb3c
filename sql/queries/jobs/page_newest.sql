-- The newest of the jobs that are wanted: each status has its own stretch of an index, read up to a page's length from
-- where the last page ended; a type, a tenant and a priority that is not the usual one have indexes with a stretch for
-- each status. Pending jobs that recur have a table of their own (migrations 0012 and 0018), each looked up by its id:
-- OFFSET 0 keeps the planner from walking all of `jobs` instead. A job that was named but never asked for is none to
-- people. Where {by} names a column it has one value, and leaves the planner only the index that begins with it: by its
-- statistics it would now and then walk the whole list for what is rare.
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'pending' AND rrule IS NULL AND cron IS NULL AND every IS NULL AND {wanted}
 ORDER BY {by}created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by
 FROM recurring_jobs AS made
 CROSS JOIN LATERAL (
     SELECT status, name, created_by, created_via, rrule, cron, every
     FROM jobs WHERE jobs.id = made.id OFFSET 0) AS known
 WHERE status = 'pending' AND num_nonnulls(rrule, cron, every) > 0 AND {wanted}
 ORDER BY {by}created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'paused' AND {wanted} ORDER BY {by}created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'done' AND {wanted} ORDER BY {by}created_at DESC, id DESC LIMIT %(limit)s)
UNION ALL
(SELECT id, created_at, tenant, status, created_by FROM jobs
 WHERE status = 'cancelled' AND {wanted} ORDER BY {by}created_at DESC, id DESC LIMIT %(limit)s)
