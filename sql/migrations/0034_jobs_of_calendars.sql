-- Concurrently: the jobs that use a calendar, and the jobs with skipped occurrences to report.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_of_calendar ON jobs (calendar, tenant, id)
    WHERE calendar IS NOT NULL AND status IN ('pending', 'paused');
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_with_skips ON jobs (skip_at) WHERE skip_at IS NOT NULL AND status = 'pending';
