-- Concurrently: people page through jobs and runs, newest first, by status, tenant, type, and how a name or a type begins.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_newest ON jobs (status, created_at, id) WHERE job_type IS NOT NULL;
-- By type alone: the few types that there are share their entries, so that an emission pays next to nothing for it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_of_type ON jobs (job_type text_pattern_ops);
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_of_tenant ON jobs (tenant, status, created_at, id)
    WHERE tenant <> 'default';
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_named ON jobs (name text_pattern_ops) WHERE name IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS run_history_newest ON run_history (due_at, event_id);
