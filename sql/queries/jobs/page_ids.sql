-- The ids of one page of jobs, newest first, for those who do something with all of them; see jobs/page.sql.
SELECT id, created_at, tenant, status::text
FROM (
    (SELECT id, created_at, tenant, status FROM jobs
     WHERE status = 'pending' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT id, created_at, tenant, status FROM jobs
     WHERE status = 'paused' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT id, created_at, tenant, status FROM jobs
     WHERE status = 'done' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT id, created_at, tenant, status FROM jobs
     WHERE status = 'cancelled' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
) AS newest
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s
