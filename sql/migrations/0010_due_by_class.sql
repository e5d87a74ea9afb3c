-- Concurrently: the indexes of the claim by class of priority.
-- The claim walks one of them for each class from its low end. The indexes by time alone stay for processes of the
-- release before, and go with the next.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_due_by_class ON jobs (coalesce(priority, 'normal'), wake_at)
    WHERE status = 'pending';
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_due_by_class ON runs (coalesce(priority, 'normal'), wake_at);
