-- Lag of the newest finished jobs and of the newest recurring ones, which may never finish; each is looked up by id
-- (OFFSET 0, as in jobs/page_newest), up to a limit.
SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY lag)
FROM (
    (SELECT extract(epoch FROM last_confirmed_at - last_due_at)::float8 * 1000 AS lag
     FROM jobs
     WHERE finished_at IS NOT NULL AND last_confirmed_at IS NOT NULL
       AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
     ORDER BY finished_at DESC
     LIMIT %(most)s)
    UNION ALL
    (SELECT extract(epoch FROM last_confirmed_at - last_due_at)::float8 * 1000
     FROM (SELECT id FROM recurring_jobs
           WHERE %(tenant)s IS NULL OR tenant = %(tenant)s
           ORDER BY created_at DESC, id DESC
           LIMIT %(most)s) AS made
     CROSS JOIN LATERAL (
         SELECT finished_at, last_due_at, last_confirmed_at FROM jobs WHERE jobs.id = made.id OFFSET 0) AS known
     WHERE finished_at IS NULL AND last_confirmed_at IS NOT NULL
     LIMIT %(few)s)
) AS newest
