-- Delete some of the oldest finished jobs, in one replica at a time. Rows that a consumer has locked for a new command
-- are skipped. A tombstone, or a row created by a command before its request, lives for at least a day, so that an
-- older request cannot override it. A job with an open run keeps its row, which has the owner of the run.
WITH turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(%(lock)s) AS mine
), old AS MATERIALIZED (
    SELECT id
    FROM jobs
    WHERE (SELECT mine FROM turn)
      AND finished_at < now() - make_interval(days => %(days)s)
      AND (status = 'done' AND cancelled_at IS NULL
           OR status IN ('done', 'cancelled', 'awaiting')
              AND finished_at < now() - make_interval(days => greatest(%(days)s, 1)))
      AND NOT EXISTS (SELECT FROM runs WHERE runs.job_id = jobs.id)
    ORDER BY finished_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), versions AS (
    DELETE FROM job_versions USING old WHERE job_versions.job_id = old.id
)
DELETE FROM jobs USING old WHERE jobs.id = old.id
