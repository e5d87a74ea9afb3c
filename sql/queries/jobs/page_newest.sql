-- The newest matching jobs. Each status has its own range of an index, read up to a page's length after the last page;
-- types, tenants and unusual priorities have indexes with a range per status. Pending recurring jobs have their own
-- table (migrations 0012 and 0018) and are looked up by id; OFFSET 0 prevents the planner from scanning all of `jobs`
-- instead. Jobs without a request are not listed. If the order starts with another column, that column has only one
-- value: this leaves the planner only the index that starts with it, because by its statistics it would sometimes walk
-- the whole list for rare values.
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
