-- Count jobs by status: each up to a bound, by its stretch of the index. Beyond the bound what ANALYZE has found is enough,
-- where all tenants are asked about.
SELECT status,
       CASE WHEN counted < %(most)s THEN counted ELSE greatest(counted, coalesce((
           SELECT (reltuples * frequency)::bigint
           FROM pg_class, pg_stats,
                unnest(most_common_vals::text::text[], most_common_freqs) AS known (value, frequency)
           WHERE pg_class.oid = 'jobs'::regclass AND tablename = 'jobs' AND attname = 'status'
             AND schemaname = relnamespace::regnamespace::text AND value = status AND %(tenant)s IS NULL
       ), 0)) END AS counted
FROM (
    SELECT 'pending' AS status, (
        SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'pending' AND {theirs} LIMIT %(most)s) AS few) AS counted
    UNION ALL
    SELECT 'paused', (
        SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'paused' AND {theirs} LIMIT %(most)s) AS few)
    UNION ALL
    SELECT 'done', (
        SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'done' AND {theirs} LIMIT %(most)s) AS few)
    UNION ALL
    SELECT 'cancelled', (
        SELECT count(*) FROM (SELECT FROM jobs WHERE status = 'cancelled' AND {theirs} LIMIT %(most)s) AS few)
) AS each
