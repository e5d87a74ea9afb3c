-- Delete some of the oldest finished jobs; only one replica at a time does. The rows that a consumer has just
-- locked, for a new command to an old id, are skipped.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(%(lock)s) AS mine
), old AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE (SELECT mine FROM turn)
      AND finished_at < now() - make_interval(days => %(days)s)
      AND status IN ('done', 'cancelled', 'awaiting')
    ORDER BY finished_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM jobs USING old WHERE jobs.id = old.id
