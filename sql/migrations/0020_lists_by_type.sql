-- Concurrently: the indexes of lists by type and by a priority that is not the usual one. A new job pays for the one what it
-- no longer pays for a second index of what is due (0017).
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_listed_of_type ON jobs (job_type text_pattern_ops, status, created_at)
    WHERE job_type IS NOT NULL AND (status <> 'pending' OR (rrule IS NULL AND cron IS NULL AND every IS NULL));
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_listed_of_priority ON jobs (priority, status, created_at)
    WHERE priority <> 'normal' AND job_type IS NOT NULL
      AND (status <> 'pending' OR (rrule IS NULL AND cron IS NULL AND every IS NULL));
CREATE INDEX CONCURRENTLY IF NOT EXISTS recurring_jobs_of_type ON recurring_jobs (job_type text_pattern_ops, created_at);
CREATE INDEX CONCURRENTLY IF NOT EXISTS recurring_jobs_of_priority ON recurring_jobs (priority, created_at)
    WHERE priority <> 'normal';
