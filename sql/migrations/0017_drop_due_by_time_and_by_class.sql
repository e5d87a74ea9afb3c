-- Concurrently: what the indexes of 0015 stand for.
DROP INDEX CONCURRENTLY IF EXISTS jobs_due_by_time;
DROP INDEX CONCURRENTLY IF EXISTS jobs_due_by_class;
DROP INDEX CONCURRENTLY IF EXISTS runs_due_by_time;
DROP INDEX CONCURRENTLY IF EXISTS runs_due_by_class;
