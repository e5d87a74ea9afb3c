-- Concurrently: find the caller of a trigger by the due time of its run.
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_of_trigger ON audit (thing, (after ->> 'due_at')) WHERE action = 'trigger';
