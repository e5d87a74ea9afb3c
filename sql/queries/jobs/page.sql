-- One page of jobs, newest first: each status has its own stretch of the index, read up to a page's length from where
-- the last page ended, and the four are merged. A job that was named but never asked for is none to people.
SELECT {selected}, {beside}
FROM (
    SELECT id
    FROM (
        (SELECT id, created_at FROM jobs
         WHERE status = 'pending' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
        UNION ALL
        (SELECT id, created_at FROM jobs
         WHERE status = 'paused' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
        UNION ALL
        (SELECT id, created_at FROM jobs
         WHERE status = 'done' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
        UNION ALL
        (SELECT id, created_at FROM jobs
         WHERE status = 'cancelled' AND {wanted} ORDER BY created_at DESC, id DESC LIMIT %(limit)s)
    ) AS newest
    ORDER BY created_at DESC, id DESC
    LIMIT %(limit)s
) AS page
JOIN jobs USING (id)
ORDER BY created_at DESC, id DESC
