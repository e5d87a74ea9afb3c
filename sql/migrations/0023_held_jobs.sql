-- Concurrently: the jobs that wait for an open run, so that the end of a run finds them without reading other jobs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_held ON jobs (id) WHERE held_by IS NOT NULL;
