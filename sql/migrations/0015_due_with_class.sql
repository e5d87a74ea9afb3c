-- Concurrently: one index for the claim instead of two, by time and with the class of priority beside it. Processes of
-- the release before, which know no classes, walk it as they walked the one by time alone.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_due_with_class ON jobs (wake_at, coalesce(priority, 'normal'))
    WHERE status = 'pending';
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_due_with_class ON runs (wake_at, coalesce(priority, 'normal'));
