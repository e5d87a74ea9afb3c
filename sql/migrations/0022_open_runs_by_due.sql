-- Concurrently: the open runs by when they were due, for lists; without it a page sorts all that are open. It takes the place
-- of an index of what is due (0017), so that a step of a run costs what it did before.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_newest ON runs (due_at, event_id) WHERE due_at IS NOT NULL;
