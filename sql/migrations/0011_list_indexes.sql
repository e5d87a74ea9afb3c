-- Concurrently: people page through jobs and runs, newest first, by status and tenant, and by how a name
-- begins. There is none by type: every emission would pay for it, and a type is found along the newest.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_newest ON jobs (status, created_at, id) WHERE job_type IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_of_tenant ON jobs (tenant, status, created_at, id)
    WHERE tenant <> 'default';
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_named ON jobs (name text_pattern_ops) WHERE name IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS run_history_newest ON run_history (due_at, event_id);
