-- Count finished runs by status up to a limit; beyond it, extrapolate the shares to the total estimated by ANALYZE.
SELECT status::text,
       CASE WHEN sum(count(*)) OVER () < %(most)s OR %(tenant)s IS NOT NULL THEN count(*)
            ELSE greatest(count(*), (count(*) / sum(count(*)) OVER () * (
                SELECT sum(reltuples) FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
                WHERE inhparent = 'run_history'::regclass AND reltuples > 0))::bigint) END
FROM (SELECT status FROM run_history WHERE
  job_type IS NOT NULL AND (%(tenant)s IS NULL OR tenant = %(tenant)s) LIMIT %(most)s) AS few
GROUP BY status
