-- Concurrently: find the entries of a bulk action.
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_of_batch ON audit (batch, id) WHERE batch IS NOT NULL;
