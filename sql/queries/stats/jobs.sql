-- Count jobs by status. For all tenants, use the estimate of ANALYZE if it is well beyond the limit; otherwise count
-- each status up to the limit, by its range of the index.
WITH known AS (
    SELECT value AS status, (reltuples * frequency)::bigint AS estimate
    FROM pg_class, pg_stats, unnest(most_common_vals::text::text[], most_common_freqs) AS common (value, frequency)
    WHERE pg_class.oid = 'jobs'::regclass AND tablename = 'jobs' AND attname = 'status'
      AND schemaname = relnamespace::regnamespace::text AND %(tenant)s IS NULL
)
SELECT status,
       CASE WHEN estimate > 1.2 * %(most)s THEN estimate ELSE (
           CASE status
           WHEN 'pending' THEN (
               SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'pending'
                 AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s) AS few)
           WHEN 'paused' THEN (
               SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'paused'
                 AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s) AS few)
           WHEN 'done' THEN (
               SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'done'
                 AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s) AS few)
           ELSE (
               SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'cancelled'
                 AND job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s) AS few)
           END) END AS counted
FROM unnest(ARRAY['pending', 'paused', 'done', 'cancelled']) AS status
LEFT JOIN known USING (status)
