-- Concurrently: the indexes of lists without the pending jobs that recur, which are in recurring_jobs. An emission of
-- those then leaves no entry in any of them. Without the id, jobs that were stored together lie together, and an entry
-- costs half as much; a page sorts the few of one moment.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_listed ON jobs (status, created_at)
    WHERE job_type IS NOT NULL AND (status <> 'pending' OR (rrule IS NULL AND cron IS NULL AND every IS NULL));
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_listed_of_tenant ON jobs (tenant, status, created_at)
    WHERE tenant <> 'default' AND job_type IS NOT NULL
      AND (status <> 'pending' OR (rrule IS NULL AND cron IS NULL AND every IS NULL));
DROP INDEX CONCURRENTLY IF EXISTS jobs_newest;
DROP INDEX CONCURRENTLY IF EXISTS jobs_of_tenant;
