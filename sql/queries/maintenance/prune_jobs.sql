-- Delete some of the oldest finished jobs; only one replica at a time does. The rows that a consumer has just
-- locked, for a new command to an old id, are skipped. A row that remembers a cancel, or a command that came before its
-- request, lives for a day at least: an older request must not win over it. A job with an open run keeps its row, which
-- says who owns the run.
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
)
DELETE FROM jobs USING old WHERE jobs.id = old.id
